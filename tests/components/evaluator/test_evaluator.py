"""The Evaluator against TFMA itself, on real SavedModels and TFRecords."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import tensorflow as tf
import tensorflow_model_analysis as tfma
from tfx.types import standard_artifacts

from strategos.components import events
from strategos.components.errors import UserError
from strategos.components.evaluation import metrics, scoring
from strategos.components.exported import DESCRIPTION
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


@pytest.mark.parametrize("task", ["multi_class", "regression"])
def test_every_metric_of_every_slice_equals_tfma(
    workload, tmp_path, task, evaluate, stock, by_slice
):
    section = {"task": task, "metrics": metrics.names(task), "slices": ["month"]}
    _, evaluation, _ = evaluate(workload, tmp_path, task, slices=["month"])
    stock(workload, tmp_path / "stock", task, section, workload["labels"][task])
    ours = tfma.load_eval_result(evaluation.uri)
    assert_same(by_slice(ours), by_slice(tfma.load_eval_result(f"{tmp_path}/stock")))


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


def test_both_models_their_differences_and_the_verdict_equal_tfma(
    workload, tmp_path, artifact, evaluate, stock, by_slice
):
    section = {
        "task": "binary",
        "metrics": metrics.names("binary"),
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


def test_rows_that_were_written_but_are_not_read_are_missed(
    workload, tmp_path, evaluate
):
    evaluate(workload, tmp_path, written=workload["rows"])
    with pytest.raises(UserError, match=r"Split-eval is damaged: read 1,200 .* 1,201 "):
        evaluate(workload, tmp_path, written=workload["rows"] + 1)


def test_predictions_that_are_nan_fail_bounds_and_have_no_number(
    workload, tmp_path, linear, evaluate
):
    model = linear([[math.nan], [0.0]], tf.sigmoid).save(tmp_path / "model")
    verdict, evaluation, _ = evaluate(
        workload, tmp_path, model=model, bounds={"auc": {"at_least": 0.5}}
    )
    assert not verdict["blessed"]
    assert "auc, overall" in verdict["reason"] and "not finite" in verdict["reason"]
    assert verdict["overall"]["auc"] is None
    assert not evaluation.has_custom_property("auc")
    assert verdict["warnings"] == [
        "the model predicts NaN or infinite numbers for some rows"
    ]


@pytest.mark.parametrize(
    ("late", "message"),
    [
        ([0, 0], "label: `late` is never 1 in the 2 examples of the eval split"),
        ([1, 1], "label: `late` is always 1"),
        ([0, 2], r"label: received 2 as `late` in the eval split\n +Allowed: 0 or 1"),
        (
            [0, []],
            "label: received 0 values of `late` in example 1 of /.*Split-eval/data",
        ),
        ([], "data.split: the eval split has no examples"),
    ],
)
def test_label_that_cannot_be_judged_is_refused(
    workload, tmp_path, late, message, eval_split, evaluate
):
    rows = [{"x": [0.0, 1.0], "late": value} for value in late]
    examples = eval_split(rows)
    with pytest.raises(UserError, match=message):
        evaluate(workload, tmp_path, examples=examples)


def test_model_without_a_sigmoid_is_refused(workload, tmp_path, linear, evaluate):
    model = linear([[9.0], [9.0]], tf.identity).save(tmp_path / "model")
    with pytest.raises(UserError, match=r"predicts numbers from .* sigmoid"):
        evaluate(workload, tmp_path, model=model)


def test_class_that_preprocessing_changes_is_refused(
    workload, tmp_path, linear, evaluate
):
    model = linear([[1.0], [1.0]], tf.sigmoid, lambda label: 1 - label)
    model = model.save(tmp_path / "model")
    expected = r"`preprocessing_fn` changes `late` in 1,000 of 1,000 examples"
    with pytest.raises(UserError, match=expected):
        evaluate(workload, tmp_path, model=model)


def _log(label):
    return tf.math.log1p(tf.cast(label, tf.float32))


SCALES = {
    "scaled": lambda label: (label - 2) / 3,
    "in other units": lambda label: label * 60,
    "as a logarithm": lambda label: _log(tf.nn.relu(label)) + 1,
}


@pytest.mark.parametrize("scale", SCALES.values(), ids=SCALES)
def test_number_that_preprocessing_scales_is_refused(
    workload, tmp_path, linear, evaluate, scale
):
    model = linear([[1.0], [0.0]], tf.identity, scale).save(tmp_path / "model")
    expected = r"`preprocessing_fn` changes `delay` in 1,000 of 1,000 examples"
    with pytest.raises(UserError, match=expected) as refused:
        evaluate(workload, tmp_path, "regression", model=model)
    assert refused.value.key == "label"


def test_number_that_is_mostly_zero_and_scaled_is_refused(
    workload, tmp_path, linear, eval_split, evaluate
):
    """Nearly all claims are 0 before and after a logarithm."""
    model = linear([[1.0], [0.0]], tf.identity, _log).save(tmp_path / "model")
    rows = [
        {"x": [0.0, 1.0], "delay": float(i) if i % 20 == 0 else 0.0} for i in range(400)
    ]
    expected = "changes `delay` in 19 of 400 examples, the first time from 20 to 3.04"
    with pytest.raises(UserError, match=expected):
        evaluate(
            workload, tmp_path, "regression", model=model, examples=eval_split(rows)
        )


def test_number_that_is_clipped_is_warned_of_in_the_summary(
    workload, tmp_path, linear, evaluate, monkeypatch, eval_split
):
    """Sorted rows: in one of the shards all labels are clipped."""
    monkeypatch.setattr(scoring, "SHARD_BYTES", 1)
    clipped = linear([[1.0], [0.0]], tf.identity, lambda x: x - tf.nn.relu(x - 80))
    rows = [{"x": [i / 100, 1.0], "delay": float(i)} for i in range(100)]
    examples = eval_split(rows, files=11)
    events.open_sink(str(tmp_path / "events.jsonl"))
    verdict, _, _ = evaluate(
        workload,
        tmp_path,
        "regression",
        model=clipped.save(tmp_path / "model"),
        examples=examples,
    )
    events.open_sink(None)
    told = map(json.loads, (tmp_path / "events.jsonl").read_text().splitlines())
    warned = [event["message"] for event in told if event["event"] == "warning"]
    assert warned == verdict["warnings"]
    expected = (
        "label: `preprocessing_fn` changes `delay` in 19 of 100 examples, the first "
        "time from 81 to 80: the model predicts changed values, but is judged by the "
        "raw column."
    )
    assert warned[0] == expected


CONSTANT = {
    "binary": ([[0.0], [0.0]], lambda x: x + 1.0),  # softmax over one unit
    "multi_class": ([[0.0] * 3] * 2, tf.nn.softmax),
    "regression": ([[0.0], [0.0]], lambda x: x - 1234.5),
}


@pytest.mark.parametrize("task", metrics.TASKS)
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


@pytest.mark.parametrize("task", metrics.TASKS)
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
    section = {"task": task, "metrics": metrics.names(task)}
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


def described(model, from_logits):
    """A model whose Trainer has recorded what its loss takes."""
    file = Path(model, "Format-Serving", DESCRIPTION)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"from_logits": from_logits}))
    return model


@pytest.mark.parametrize(
    ("recorded", "asked", "refused"),
    [
        (True, None, "predicts logits \\(its compiled loss has from_logits=True\\)"),
        (None, True, "predicts logits \\(evaluator.from_logits is true\\)"),
        (True, False, ""),
        (False, None, ""),
        (None, None, ""),
    ],
)
def test_logits_within_0_and_1_are_refused_by_what_is_known(
    workload, tmp_path, linear, evaluate, recorded, asked, refused
):
    within = linear([[0.01], [0.01]], lambda x: x + 0.5).save(tmp_path / "model")
    section = {"model": described(within, recorded), "from_logits": asked}
    if not refused:
        assert evaluate(workload, tmp_path, **section)[0]["blessed"]
        return
    with pytest.raises(UserError, match=refused):
        evaluate(workload, tmp_path, **section)


def test_range_of_logits_is_that_of_the_answers(
    workload, tmp_path, linear, eval_split, evaluate
):
    model = linear([[-0.25], [0.0]], tf.identity).save(tmp_path / "model")
    rows = [{"x": [x, 0.0], "late": int(x > 1)} for x in (0.5, 1.0, 2.0)]
    expected = "predicts numbers from -0.5 to -0.125; task binary"
    with pytest.raises(UserError, match=expected):
        evaluate(workload, tmp_path, model=model, examples=eval_split(rows))


def test_model_of_another_task_is_refused(workload, tmp_path, evaluate):
    model = workload["multi_class", "candidate"]
    with pytest.raises(UserError, match="gives 3 numbers .*Correct evaluator.task"):
        evaluate(workload, tmp_path, model=model)


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
