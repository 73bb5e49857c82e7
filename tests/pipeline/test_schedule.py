"""What `strategos schedule export` prints for other clocks."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from strategos.pipeline import cli


def export(capsys, workload, to, *arguments, expect=0):
    code = cli.main(["schedule", "export", str(workload), "--to", to, *arguments])
    assert code == expect
    return capsys.readouterr()


@pytest.mark.parametrize(
    ("every", "fields"),
    [("1m", "*/1 * * * *"), ("15m", "*/15 * * * *"), ("1h", "0 * * * *")],
)
def test_a_line_of_cron(workload, capsys, every, fields):
    line = export(capsys, workload, "cron", "--every", every).out
    assert line.startswith(f"{fields}  ")
    assert f"retrain {workload} --if-due >> {workload.parent}/retrain.log" in line


def test_cron_ends_a_command_at_a_percent_sign_that_is_not_escaped(workload, capsys):
    setting = "data.spans=1..2"
    overlay = workload.parent / "100%.yaml"
    overlay.write_text("trainer: {epochs: 2}\n")
    words = ("--overlay", str(overlay), "--set", setting)
    line = export(capsys, workload, "cron", *words).out
    assert rf"--overlay {workload.parent}/100\%.yaml --set {setting} --if-due" in line


@pytest.mark.parametrize("every", ["30s", "7m", "2h"])
def test_what_cron_cannot_do_is_told(workload, capsys, every):
    told = export(capsys, workload, "cron", "--every", every, expect=2).err
    assert "--every: received" in told
    assert "minutes that divide an hour" in told


def test_units_of_systemd_are_valid(workload, capsys, tmp_path):
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    words = ("--every", "30s", "--set", 'trainer.hyperparameters={"a b": "$5 50%"}')
    printed = export(capsys, workload, "systemd", *words).out
    units = {}
    for part in printed.split("# /etc/systemd/system/")[1:]:
        name, text = part.split("\n", 1)
        units[name] = tmp_path / name
        units[name].write_text(text)
    assert list(units) == ["strategos-flights.service", "strategos-flights.timer"]
    done = subprocess.run(
        ["systemd-analyze", "verify", *units.values()], capture_output=True, text=True
    )
    told = [line for line in done.stderr.splitlines() if "strategos-flights" in line]
    assert not told
    service = units["strategos-flights.service"].read_text()
    assert r'"trainer.hyperparameters={\"a b\": \"$$5 50%%\"}" --if-due' in service
