"""Every warning of a run stands in its table, also once its node is cached."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.long

TRANSFORM = "`stats_options_updater_fn` is not called"
ANOMALY = "AnomalyGate: anomaly: split `train`: feature `late`"
CHOICE = "Trainer: rows of `eval` both choose (early_stopping) and judge the model"
CONSTANT = "Evaluator: the model predicts the same for all "
TRIVIAL = "Evaluator: the model is not better than always predicting the mean of `late`"


@pytest.fixture(scope="module")
def warned(make_small, write_span, tmp_path_factory):
    """A workspace whose Transform, AnomalyGate, Trainer and Evaluator warn."""
    settings = ("schema.on_anomaly=warn", "trainer.callbacks.early_stopping={}")
    made = make_small(tmp_path_factory.mktemp("checkout"), *settings)
    write_span(made.folder, 3)
    model = made.folder / "model.py"
    model.write_text(model.read_text().replace('"sigmoid"', '"softmax"'))
    with (made.folder / "preprocessing.py").open("a") as file:
        file.write("\n\ndef stats_options_updater_fn(kind, options):\n    pass\n")
    schema = made.folder.parent / "schema.pbtxt"
    domain = 'name: "late" type: INT int_domain { min: 0 max: 0 }'
    schema.write_text(schema.read_text().replace('name: "late" type: INT', domain))
    return made


def shown(output):
    """The warnings in a table, without their label."""
    lines = output.splitlines()
    marked = (line.strip() for line in lines)
    return [line.split(None, 1)[1] for line in marked if line.startswith("warning ")]


def test_a_model_with_one_answer_is_not_blessed_and_its_warnings_are_kept(warned):
    done = warned.run(expect=3)
    found = shown(done.stdout)
    for expected in (TRANSFORM, ANOMALY, CHOICE, TRIVIAL):
        assert [line for line in found if expected in line], (expected, done.stdout)
    assert "verdict    not blessed" in done.stdout
    assert "the model predicts the same for all" in done.stdout
    later = warned.strategos("runs", "show", str(warned.yaml))
    assert shown(later.stdout) == found
    run = warned.last_run()
    assert run["outcome"] == "not blessed" and not run["pushed"]
    assert [f"{node}: {text}" for node, text in run["warnings"]] == found


def test_warnings_of_cached_nodes_stand_in_the_table_of_later_runs(warned):
    lenient = ("--set", "evaluator.allow_constant=true")
    done = warned.run(*lenient)
    states = warned.states()
    for node in ("ExampleGen", "ExampleValidator", "Transform", "Trainer"):
        assert states[node] == "cached", states
    found = shown(done.stdout)
    for expected in (TRANSFORM, ANOMALY, CHOICE, CONSTANT, TRIVIAL):
        assert [line for line in found if expected in line], (expected, done.stdout)
    again = warned.run(*lenient)
    assert set(warned.states().values()) == {"cached"}
    assert sorted(shown(again.stdout)) == sorted(found)
    assert warned.last_run()["outcome"] == "blessed"
