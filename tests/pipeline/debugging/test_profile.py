"""`strategos run --profile`: short for a setting, and rejected like it."""

from __future__ import annotations

from strategos.pipeline import cli


def test_a_range_of_steps_that_ends_before_it_starts_is_rejected(
    copy_workload, tmp_path, capsys
):
    copy_workload("explained", tmp_path)
    (tmp_path / "rows.csv").write_text("id,distance,carrier,late\n1,2,3,0\n")
    code = cli.main(["run", str(tmp_path / "pipeline.yaml"), "--profile", "20..10"])
    assert code == 2
    message = capsys.readouterr().err
    assert "trainer.callbacks.tensorboard.profile: received" in message
    assert "Write `10..20`." in message
