"""The Evaluator against TFMA itself, on real SavedModels and TFRecords."""

from __future__ import annotations

import pytest
import tensorflow as tf
import tensorflow_model_analysis as tfma
from tfx.types import standard_artifacts

from strategos.components.errors import UserError
from strategos.components.evaluation import metrics, scoring
from strategos.components.gate import evaluation as evaluation_gate


def assert_same(ours, theirs):
    assert ours.keys() == theirs.keys()
    for key, expected in theirs.items():
        assert ours[key].keys() == expected.keys()
        for name, value in expected.items():
            # Areas are exact here; TFMA uses 10,000 thresholds.
            near = 2e-4 if "auc" in name else 2e-6
            assert ours[key][name] == pytest.approx(value, abs=near, nan_ok=True), (
                key,
                name,
            )


def assert_same_failure(ours, theirs):
    assert ours.validation_ok is theirs.validation_ok is False
    ((one,), (other,)) = (
        [piece.failures[0] for piece in result.metric_validations_per_slice]
        for result in (ours, theirs)
    )
    assert one.metric_key == other.metric_key
    assert one.metric_threshold == other.metric_threshold
    assert one.metric_value.double_value.value == pytest.approx(
        other.metric_value.double_value.value
    )


@pytest.mark.parametrize(
    "task", ["multi_class", pytest.param("regression", marks=pytest.mark.long)]
)
def test_every_metric_of_every_slice_equals_tfma(
    workload, tmp_path, task, evaluate, stock, by_slice
):
    names = [name for name in metrics.names(task) if metrics.METRICS[name].tfma]
    section = {"task": task, "metrics": names, "slices": ["month"]}
    _, evaluation, _ = evaluate(workload, tmp_path, **section)
    stock(workload, tmp_path / "stock", task, section, workload["labels"][task])
    ours = tfma.load_eval_result(evaluation.uri)
    assert_same(by_slice(ours), by_slice(tfma.load_eval_result(f"{tmp_path}/stock")))


@pytest.mark.long
@pytest.mark.parametrize("activation", ["sigmoid", "some are 0"])
def test_loss_of_probabilities_that_do_not_add_up_to_one_equals_tfma(
    workload, tmp_path, activation, linear, evaluate, stock, by_slice
):
    known = {
        "sigmoid": tf.sigmoid,
        "some are 0": lambda x: tf.clip_by_value(x, 0.0, 0.9),
    }
    weights = [[1.0, -2.0, 0.5], [0.3, 3.0, -1.0]]
    model = linear(weights, known[activation]).save(tmp_path / "model")
    section = {"task": "multi_class", "metrics": ["log_loss", "accuracy"]}
    _, evaluation, _ = evaluate(workload, tmp_path, model=model, **section)
    own = {**workload, ("multi_class", "candidate"): model}
    stock(own, tmp_path / "stock", "multi_class", section, "grade")
    ours = by_slice(tfma.load_eval_result(evaluation.uri))[()]
    theirs = by_slice(tfma.load_eval_result(f"{tmp_path}/stock"))[()]
    assert ours == pytest.approx(theirs, rel=1e-5)


@pytest.mark.long
def test_both_models_their_differences_and_the_verdict_equal_tfma(
    workload, tmp_path, artifact, evaluate, stock, by_slice
):
    section = {
        "task": "binary",
        "metrics": [x for x in metrics.names("binary") if metrics.METRICS[x].tfma],
        "slices": ["carrier"],
        "bounds": {"auc": {"may_drop": 0.01}, "accuracy": {"may_rise": 0.0}},
    }
    model = workload["binary", "baseline"]
    baseline = artifact(standard_artifacts.Model, model, none=0)
    verdict, evaluation, blessing = evaluate(
        workload, tmp_path, baseline=baseline, **section
    )
    theirs = f"{tmp_path}/stock"
    stock(workload, theirs, "binary", section, "late", baseline=True)
    for name in ("candidate", "baseline"):
        ours = tfma.load_eval_result(evaluation.uri, model_name=name)
        expected = tfma.load_eval_result(theirs, model_name=name)
        assert_same(by_slice(ours), by_slice(expected))
    # The candidate is better: it does not drop, and rises where it may not.
    assert verdict["baseline"]["auc"] < verdict["overall"]["auc"]
    assert [check["ok"] for check in verdict["bounds"]] == [True, False]
    assert blessing.get_string_custom_property("baseline_model") == model
    assert_same_failure(
        tfma.load_validation_result(evaluation.uri),
        tfma.load_validation_result(theirs),
    )


def test_string_label_is_read_through_the_models_own_preprocessing(
    workload, tmp_path, evaluate
):
    named, evaluation, _ = evaluate(
        workload, tmp_path / "a", "multi_class", label="grade_name", slices=["month"]
    )
    numbered, _, _ = evaluate(workload, tmp_path / "b", "multi_class", slices=["month"])
    assert named["overall"] == numbered["overall"]
    config = tfma.load_eval_result(evaluation.uri).config
    assert config.model_specs[0].preprocessing_function_names == ["transform_features"]


def test_one_hot_label_is_a_class_and_one_of_several_classes_is_refused(
    workload, tmp_path, linear, evaluate
):
    def measured(name, grade):
        matrix = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]
        model = linear(matrix, tf.nn.softmax, grade=grade).save(tmp_path / name)
        return evaluate(
            workload, tmp_path / name, "multi_class", label="grade_name", model=model
        )[0]["overall"]

    expected = measured("number", tf.identity)
    assert measured("vector", lambda grade: tf.one_hot(grade, 3)) == expected
    with pytest.raises(UserError, match=r"in [\d,]+ of 1,200 rows it has not exactly"):
        measured("none", lambda grade: tf.one_hot(grade - 1, 3))


def test_blessed_model_has_all_that_tfx_leaves_and_the_metrics(
    workload, tmp_path, evaluate
):
    verdict, evaluation, blessing = evaluate(
        workload, tmp_path, bounds={"auc": {"at_least": 0.6}}
    )
    assert verdict["blessed"] and verdict["examples"] == workload["rows"]
    assert (tmp_path / "blessing" / "BLESSED").exists()
    assert blessing.get_int_custom_property("blessed") == 1
    model = workload["binary", "candidate"]
    assert blessing.get_string_custom_property("current_model") == model
    assert evaluation.get_int_custom_property("blessed") == 1
    auc = evaluation.get_float_custom_property("auc")
    assert auc == pytest.approx(verdict["overall"]["auc"])
    assert tfma.load_validation_result(evaluation.uri).validation_ok


def test_failed_slice_is_named_in_summary_and_validation_result(
    workload, tmp_path, evaluate
):
    bounds = {
        "accuracy": {"slices": {"carrier": {"at_least": 0.99}}, "min_examples": 350}
    }
    verdict, evaluation, blessing = evaluate(workload, tmp_path, bounds=bounds)
    outcome = {check["slice"]: check for check in verdict["bounds"]}
    assert not verdict["blessed"]
    assert not outcome["carrier=UA"]["ok"] and outcome["carrier=UA"]["examples"] == 600
    assert "fewer than 350 examples" in outcome["carrier=OO"]["note"]
    assert "accuracy, carrier=UA: at least 0.99 required" in verdict["reason"]
    assert (tmp_path / "blessing" / "NOT_BLESSED").exists()
    assert blessing.get_int_custom_property("blessed") == 0
    (failed,) = tfma.load_validation_result(evaluation.uri).metric_validations_per_slice
    assert failed.slice_key.single_slice_keys[0].bytes_value == b"UA"


def test_baseline_that_is_none_is_dropped(workload, tmp_path, artifact, evaluate):
    nothing = artifact(standard_artifacts.Model, tmp_path / "empty", none=1)
    verdict, evaluation, _ = evaluate(
        workload, tmp_path, baseline=nothing, bounds={"auc": {"may_drop": 0.0}}
    )
    assert verdict["blessed"] and verdict["baseline"] is None
    (check,) = verdict["bounds"]
    assert "no model in production" in check["note"]
    assert len(tfma.load_eval_result(evaluation.uri).config.model_specs) == 1


def test_no_bounds_bless_explicitly(workload, tmp_path, evaluate):
    verdict, _, blessing = evaluate(workload, tmp_path)
    assert verdict["reason"] == "no bounds configured"
    assert blessing.get_int_custom_property("blessed") == 1


def test_slice_that_is_no_feature_is_refused_with_the_features_there(
    workload, tmp_path, evaluate
):
    with pytest.raises(
        UserError, match=r"received `carier`; the schema has no such.*\n.*: carrier"
    ):
        evaluate(workload, tmp_path, slices=["carier"])


@pytest.fixture(params=["answers", "columns", "damaged"])
def unusable(request, workload, tmp_path, artifact, linear):
    """A model in production that cannot be evaluated, and why not."""
    three = linear([[1.0, 0.0, 0.0]], tf.nn.softmax, columns=1)
    model, why = tmp_path / "three", "gives 3 numbers per example"
    three.save(model)
    if request.param == "columns":  # reads two numbers of `x`, and there is one
        model, why = workload["binary", "candidate"], "fails on the eval examples"
    if request.param == "damaged":
        model, why = tmp_path / "damaged", "cannot be loaded"
        (model / "Format-Serving").mkdir(parents=True)
    return artifact(standard_artifacts.Model, model, none=0), why


@pytest.fixture
def of_one_number(linear, eval_split, workload):
    """A candidate that reads one number of `x`, and such rows."""
    examples = eval_split(
        [{"x": [x], "late": int(x > 1)} for x in (0.5, 1.5, 2.0)], files=3
    )
    one = linear([[1.0]], tf.sigmoid, columns=1).save(workload["root"] / "one")
    return one, examples


def test_production_that_cannot_be_evaluated_is_a_warning_if_nothing_is_compared(
    workload, tmp_path, unusable, of_one_number, evaluate
):
    (baseline, why), (model, examples) = unusable, of_one_number
    bounds = {"auc": {"at_least": 0.5}}
    asked = {"model": model, "examples": examples, "bounds": bounds}
    verdict, evaluation, _ = evaluate(workload, tmp_path, baseline=baseline, **asked)
    alone, *_ = evaluate(workload, tmp_path / "alone", **asked)
    assert verdict["blessed"] and verdict["overall"] == alone["overall"]
    assert verdict["bounds"] == alone["bounds"] and verdict["baseline"] is None
    (warning,) = set(verdict["warnings"]) - set(alone["warnings"])
    assert f"the model in production {why}" in warning
    assert len(tfma.load_eval_result(evaluation.uri).config.model_specs) == 1


def test_production_that_cannot_be_evaluated_fails_bounds_that_compare(
    workload, tmp_path, unusable, of_one_number, evaluate
):
    (baseline, why), (model, examples) = unusable, of_one_number
    bounds = {"auc": {"at_least": 0.5, "may_drop": 0.1}}
    asked = {"model": model, "examples": examples, "bounds": bounds}
    verdict, evaluation, _ = evaluate(workload, tmp_path, baseline=baseline, **asked)
    assert not verdict["blessed"] and "not comparable" in verdict["reason"]
    assert [check["ok"] for check in verdict["bounds"]] == [True, False]
    assert not tfma.load_validation_result(evaluation.uri).validation_ok
    message = evaluation_gate.message(verdict)
    assert f"the model in production {why}" in message
    assert "--without-baseline" in message


def test_model_that_needs_other_features_is_named(
    workload, tmp_path, eval_split, evaluate
):
    rows = [{"x": [0.0], "late": value} for value in (0, 1)]
    examples = eval_split(rows)
    message = "the candidate fails on the eval examples: .*Key: x,"
    with pytest.raises(UserError, match=message):
        evaluate(workload, tmp_path, examples=examples)


def test_sliced_feature_without_a_value_has_no_slices(
    workload, tmp_path, eval_split, evaluate
):
    rows = [{"x": [0.0, 1.0], "late": value, "carrier": []} for value in (0, 1)]
    examples = eval_split(rows)
    bounds = {"auc": {"slices": {"carrier": {"at_least": 0.1}}}}
    verdict, evaluation, _ = evaluate(
        workload, tmp_path, examples=examples, slices=["carrier"], bounds=bounds
    )
    assert verdict["slices"] == [] and not verdict["blessed"]
    missing = tfma.load_validation_result(evaluation.uri).missing_slices
    assert [list(spec.feature_keys) for spec in missing] == [["carrier"]]


@pytest.mark.long
def test_slices_are_gathered_over_batches(workload, tmp_path, monkeypatch, evaluate):
    whole, _, _ = evaluate(workload, tmp_path / "a", slices=["carrier", "month"])
    monkeypatch.setattr(scoring, "BATCH", 7)
    batched, _, _ = evaluate(workload, tmp_path / "b", slices=["carrier", "month"])
    assert [(s["value"], s["examples"]) for s in whole["slices"]] == [
        (s["value"], s["examples"]) for s in batched["slices"]
    ]
    for one, other in zip(whole["slices"], batched["slices"], strict=True):
        # The last bits of predictions depend on the batch, and break or make ties.
        assert one["metrics"] == pytest.approx(other["metrics"], rel=1e-4)
