from __future__ import annotations

import json

import pytest
from tfx.types import standard_artifacts

from strategos.components.errors import GateStoppedError
from strategos.components.evaluation.outcome import summary
from strategos.components.evaluation.outcome.bounds import judge
from strategos.components.evaluation.slices.measured import SliceMetrics
from strategos.components.gate import evaluation as gate


def publish(folder, auc_by_carrier, at_least=0.6):
    """Artifacts in the form of the Evaluator, judged by its rules."""
    slices = [SliceMetrics(None, None, 1000, {"auc": 0.8})]
    slices += [
        SliceMetrics("carrier", name, 100, {"auc": auc})
        for name, auc in auc_by_carrier.items()
    ]
    bounds = {"auc": {"slices": {"carrier": {"at_least": at_least}}}}
    verdict = summary.summarize(
        task="binary",
        label="late",
        slices=slices,
        checks=judge(bounds, slices),
    )
    (folder / summary.FILE).write_text(json.dumps(verdict))
    evaluation = standard_artifacts.ModelEvaluation()
    evaluation.uri = str(folder)
    blessing = standard_artifacts.ModelBlessing()
    blessing.set_int_custom_property("blessed", int(verdict["blessed"]))
    return {"evaluation": [evaluation], "blessing": [blessing]}


def test_blessed_model_passes(tmp_path):
    gate.Executor().Do(publish(tmp_path, {"OO": 0.9}), {}, {})


def test_failed_bound_stops_and_says_which_on_what_by_how_much(tmp_path):
    with pytest.raises(GateStoppedError) as stopped:
        gate.Executor().Do(publish(tmp_path, {"OO": 0.5, "UA": 0.7}), {}, {})
    lines = str(stopped.value).splitlines()
    assert lines[0] == "The model is not blessed: 1 bound of the evaluator failed."
    assert lines[1] == (
        "  auc, carrier=OO: at least 0.6 required, 0.5 received (100 examples)"
    )
    assert "last good model" in lines[-1] and "evaluator.bounds" in lines[-1]
    assert stopped.value.exit_code == 3


def test_long_list_of_failures_is_capped(tmp_path):
    carriers = {f"C{i:02d}": 0.1 for i in range(14)}
    with pytest.raises(GateStoppedError) as stopped:
        gate.Executor().Do(publish(tmp_path, carriers), {}, {})
    lines = str(stopped.value).splitlines()
    assert lines[0].startswith("The model is not blessed: 14 bounds")
    assert sum("carrier=" in line for line in lines) == 10
    assert lines[-2] == "  and 4 more"
