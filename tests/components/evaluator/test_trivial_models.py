"""Models that are no better than one answer for all rows."""

from __future__ import annotations

import json

import pytest
import tensorflow as tf
import tensorflow_model_analysis as tfma

from strategos.components import events
from strategos.components.evaluation import metrics
from strategos.components.gate import evaluation as evaluation_gate

ONE_LABEL = ("binary", "multi_class", "regression")
CONSTANT = {
    "binary": ([[0.0], [0.0]], lambda x: x + 1.0),  # softmax over one unit
    "multi_class": ([[0.0] * 3] * 2, tf.nn.softmax),
    "regression": ([[0.0], [0.0]], lambda x: x - 1234.5),
}


@pytest.mark.parametrize("task", ONE_LABEL)
def test_model_with_one_answer_for_all_rows_is_not_blessed(
    workload, tmp_path, linear, evaluate, task
):
    weights, activation = CONSTANT[task]
    model = linear(weights, activation).save(tmp_path / "model")
    section = {"task": task, "model": model, "bounds": {}}
    verdict, evaluation, blessing = evaluate(workload, tmp_path / "a", **section)
    assert not verdict["blessed"]
    assert verdict["reason"].startswith(
        "the model predicts the same for all 1,200 rows, "
    )
    assert blessing.get_int_custom_property("blessed") == 0
    assert not tfma.load_validation_result(evaluation.uri).validation_ok
    lenient = {**section, "allow_constant": True}
    verdict, _, _ = evaluate(workload, tmp_path / "b", **lenient)
    assert verdict["blessed"] and "learned nothing" in verdict["warnings"][0]


def test_constant_answer_is_named_before_failed_bounds(
    workload, tmp_path, linear, evaluate
):
    model = linear(*CONSTANT["binary"]).save(tmp_path / "model")
    verdict, _, _ = evaluate(
        workload, tmp_path, model=model, bounds={"auc": {"at_least": 0.9}}
    )
    text = evaluation_gate.message(verdict)
    first, constant, bound, _ = text.splitlines()
    assert first == (
        "The model is not blessed: it answers every row alike, and 1 bound of the "
        "evaluator failed."
    )
    assert "the same for all 1,200 rows, 1, and `late` varies" in constant
    assert "auc, overall: at least 0.9 required, 0.5 received" in bound
    assert "`evaluator.allow_constant: true` accepts such a model" in text


@pytest.mark.parametrize(
    ("labels", "rows"), [([0.5], 200), ([0.5, 1.5], 99)], ids=["one label", "few rows"]
)
def test_one_answer_is_no_fault_for_one_label_or_few_rows(
    workload, tmp_path, linear, eval_split, evaluate, labels, rows
):
    model = linear(*CONSTANT["regression"]).save(tmp_path / "model")
    data = [{"x": [0.0, 1.0], "delay": labels[i % len(labels)]} for i in range(rows)]
    verdict, _, _ = evaluate(
        workload, tmp_path, "regression", model=model, examples=eval_split(data)
    )
    assert verdict["blessed"]


@pytest.mark.long
@pytest.mark.parametrize("task", ONE_LABEL)
def test_trivial_metrics_are_those_of_tfma_for_the_trivial_model(
    workload, tmp_path, linear, evaluate, stock, by_slice, task
):
    """A model that gives the trivial answer, evaluated by TFMA on the same rows."""
    verdict, _, _ = evaluate(workload, tmp_path / "a", task)
    trivial = verdict["trivial"]
    label = workload["labels"][task]
    shares = workload["shares"]
    answers = {
        "binary": lambda x: x * 0 + trivial["answer"],
        "regression": lambda x: x * 0 + trivial["answer"],
        "multi_class": lambda x: x * 0 + shares,
    }
    weights = [[0.0] * len(shares)] * 2 if task == "multi_class" else [[0.0], [0.0]]
    model = linear(weights, answers[task]).save(tmp_path / "model")
    names = [name for name in metrics.names(task) if metrics.METRICS[name].tfma]
    section = {"task": task, "metrics": names}
    own = {**workload, (task, "candidate"): model}
    stock(own, tmp_path / "stock", task, section, label)
    theirs = by_slice(tfma.load_eval_result(f"{tmp_path}/stock"))[()]
    theirs.pop("example_count")
    undefined = [name for name, value in theirs.items() if trivial[name] is None]
    assert undefined == (["precision"] if task == "binary" else [])
    for name in theirs.keys() - set(undefined):
        near = 2e-4 if "auc" in name else 1e-5
        assert trivial[name] == pytest.approx(theirs[name], abs=near), name


def test_model_that_is_not_better_than_trivial_is_warned_of(
    workload, tmp_path, linear, evaluate
):
    model = linear([[-1.0], [0.0]], lambda x: x - 200.0).save(tmp_path / "model")
    events.open_sink(str(tmp_path / "events.jsonl"))
    verdict, _, _ = evaluate(workload, tmp_path, "regression", model=model)
    events.open_sink(None)
    (warning,) = verdict["warnings"]
    assert verdict["blessed"]
    assert warning.startswith(
        "the model is not better than always predicting the mean of `delay` in mae ("
    )
    assert "rmse (202; trivial: 1.4" in warning
    told = map(json.loads, (tmp_path / "events.jsonl").read_text().splitlines())
    assert warning in [event.get("message") for event in told]


def test_better_than_trivial_holds_overall_and_by_slice(
    workload, tmp_path, linear, evaluate
):
    bounds = {
        "auc": {"better_than": "trivial"},
        "accuracy": {
            "slices": {"carrier": {"better_than": "trivial"}},
            "min_examples": 350,
        },
    }
    good, _, _ = evaluate(workload, tmp_path / "a", bounds=bounds)
    assert good["blessed"] and not good["warnings"]
    assert good["reason"] == "bounds held: 2, skipped: 2 (fewer than 350 examples)"
    model = linear([[-1.0], [-1.0]], tf.sigmoid).save(tmp_path / "model")
    verdict, evaluation, _ = evaluate(
        workload, tmp_path / "b", bounds=bounds, model=model
    )
    assert not verdict["blessed"]
    first, second = verdict["reason"].split("; ")
    assert first.startswith("auc, overall: better than trivial (0.5) required, 0.1")
    assert second.startswith("accuracy, carrier=UA: better than trivial (0.6")
    failed = tfma.load_validation_result(evaluation.uri).metric_validations_per_slice
    assert len(failed) == 2


def test_slice_with_one_label_has_no_better_model(
    workload, tmp_path, eval_split, evaluate
):
    rows = [
        {
            "x": [i / 50 - 1, 0.0],
            "late": int(i > 60),
            "carrier": "AA" if i < 50 else "B",
        }
        for i in range(100)
    ]
    bounds = {"accuracy": {"slices": {"carrier": {"better_than": "trivial"}}}}
    verdict, _, _ = evaluate(
        workload, tmp_path, examples=eval_split(rows), bounds=bounds
    )
    skipped, judged = verdict["bounds"]
    assert skipped["skipped"] == "one_label" and judged["skipped"] is None
