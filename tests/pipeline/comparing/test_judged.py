"""What `strategos explain blessing` says of a verdict."""

from __future__ import annotations

import pytest

from strategos.components.errors import UserError
from strategos.components.evaluation.outcome import summary
from strategos.components.evaluation.outcome.bounds import judge
from strategos.components.evaluation.slices.measured import SliceMetrics, Trivial
from strategos.pipeline.comparing import judged
from strategos.pipeline.history.runs import Run

BOUNDS = {
    "auc": {
        **{"at_least": 0.7, "may_drop": 0.005, "better_than": "trivial"},
        **{"min_examples": 50, "slices": {"carrier": {"at_least": 0.75}}},
    },
    "log_loss": {"at_most": 0.5},
}
OVERALL = SliceMetrics(
    feature=None,
    value=None,
    examples=500,
    metrics={"auc": 0.74, "log_loss": 0.4},
    baseline={"auc": 0.75, "log_loss": 0.41},
    errors={},
    trivial=Trivial(0.2, {"auc": 0.5, "log_loss": 0.6}, is_perfect=False),
)
CARRIERS = [
    SliceMetrics("carrier", "UA", 100, {"auc": 0.8, "log_loss": 0.3}),
    SliceMetrics("carrier", "F9", 3, {"auc": 0.1, "log_loss": 0.9}),
]


def run(**fields):
    known = {"run_id": "r1", "pipeline": "p", "started": 0.0, "finished": 1.0}
    return Run(**{**known, "outcome": "not blessed", **fields})


def verdict():
    slices = [OVERALL, *CARRIERS]
    return summary.summarize(
        task="binary",
        label="late",
        slices=slices,
        checks=judge(BOUNDS, slices),
        objections=["the model is too large"],
    )


def test_each_bound_has_its_state_and_what_is_left_of_it():
    found = judged.blessing(run(summary=verdict()))
    margins = {
        (x["metric"], x["bound"], x["slice"]): (x["state"], x["margin"])
        for x in found["bounds"]
    }
    assert margins == {
        ("auc", "may_drop", "overall"): ("fails", pytest.approx(-0.005)),
        ("auc", "at_least", "overall"): ("holds", pytest.approx(0.04)),
        ("auc", "better_than", "overall"): ("holds", pytest.approx(0.24)),
        ("auc", "at_least", "carrier=UA"): ("holds", pytest.approx(0.05)),
        ("log_loss", "at_most", "overall"): ("holds", pytest.approx(0.1)),
        ("auc", "at_least", "carrier=F9"): ("skipped", None),
    }
    states = [each["state"] for each in found["bounds"]]
    assert states == sorted(states, key=judged.STATES.index)
    first, last = found["bounds"][0]["text"], found["bounds"][-1]["text"]
    assert first.endswith("from 0.75 to 0.74), short by 0.005")
    assert last == "auc, carrier=F9: fewer than 50 examples"
    assert not found["blessed"]
    assert found["objections"] == ["the model is too large"]


def test_a_run_without_an_evaluation_says_why():
    failed = run(outcome="failed", failed_node="Trainer", cause="no GPU")
    with pytest.raises(UserError, match="r1 evaluated no model: Trainer: no GPU"):
        judged.blessing(failed)
