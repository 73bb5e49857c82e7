"""Labels and predictions that cannot be judged, or not against each other."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import tensorflow as tf

from strategos.components import events
from strategos.components.errors import UserError
from strategos.components.evaluation import scoring
from strategos.components.exported import DESCRIPTION


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


def test_model_without_the_signature_that_makes_its_label_is_refused(
    workload, tmp_path, linear, evaluate
):
    """As TFX's module for IMDB exports it."""
    model = linear([[9.0], [9.0]], tf.sigmoid)
    serving = {"serving_default": model.serve}
    tf.saved_model.save(model, f"{tmp_path}/model/Format-Serving", signatures=serving)
    expected = "no signature `transform_features`, which makes `late_xf`.*Name the raw"
    with pytest.raises(UserError, match=f"(?s)label: .*{expected}"):
        evaluate(workload, tmp_path, model=f"{tmp_path}/model", label="late_xf")


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


def described(model, from_logits):
    """A model whose Trainer has recorded what its loss takes."""
    file = Path(model, "Format-Serving", DESCRIPTION)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"from_logits": from_logits}))
    return model


@pytest.mark.parametrize(
    ("recorded", "asked", "is_logits"),
    [
        (True, None, True),
        (None, True, True),
        (True, False, False),
        (False, None, False),
        (False, True, False),  # what the Trainer has recorded is known
        (None, None, False),
    ],
)
def test_logits_become_probabilities_by_what_is_known(
    workload, tmp_path, linear, evaluate, recorded, asked, is_logits
):
    within = linear([[0.01], [0.01]], lambda x: x + 0.5).save(tmp_path / "model")
    model = described(within, recorded)
    sigmoid = linear([[0.01], [0.01]], lambda x: tf.sigmoid(x + 0.5))
    plain = {False: described(within, False), True: ""}[is_logits]
    plain = plain or described(sigmoid.save(tmp_path / "sigmoid"), False)
    expected, *_ = evaluate(workload, tmp_path / "plain", model=plain)
    described(model, recorded)
    found, *_ = evaluate(workload, tmp_path, model=model, from_logits=asked)
    assert found["overall"] == pytest.approx(expected["overall"], rel=1e-5)


def test_logits_of_classes_become_probabilities(workload, tmp_path, linear, evaluate):
    weights = [[9.0, 0.0, -400.0], [0.0, 800.0, 0.0]]
    logits = described(linear(weights, tf.identity).save(tmp_path / "logits"), True)
    plain = linear(weights, tf.nn.softmax).save(tmp_path / "softmax")
    found, expected = (
        evaluate(workload, tmp_path / name, "multi_class", model=model)[0]["overall"]
        for name, model in (("one", logits), ("other", plain))
    )
    assert found == pytest.approx(expected, rel=1e-5)


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
