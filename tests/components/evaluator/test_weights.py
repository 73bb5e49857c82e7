"""Weighted evaluation, beside scikit-learn's `sample_weight` and TFMA itself."""

from __future__ import annotations

import math

import numpy as np
import pytest
import tensorflow_model_analysis as tfma
from sklearn import metrics as stock_metrics
from tfx.types import standard_artifacts

from strategos.components.errors import UserError
from strategos.components.evaluation import metrics
from strategos.components.evaluation.classes.entries import SliceMembership
from strategos.components.evaluation.metrics import names
from strategos.components.evaluation.sums import Sums

ROWS = 600


def rows_of(task, rng):
    """Label, columns of scores and weights; with ties, and with weights of 0."""
    weight = np.round(rng.gamma(1.0, 2.0, ROWS), 2) * (rng.random(ROWS) > 0.2)
    if task == "multi_class":
        label = rng.integers(0, 3, ROWS).astype(float)
        scores = rng.dirichlet(np.ones(3), ROWS)
        chosen = scores[np.arange(ROWS), label.astype(int)]
        said = scores.argmax(1).astype(float)
        columns = {"right": (said == label).astype(float), "loss": -np.log(chosen)}
        columns["predicted"] = said
        return label, scores, columns, weight
    score = np.round(rng.random(ROWS), 1)
    label = (rng.random(ROWS) < score).astype(float)
    if task == "regression":
        label = np.round(rng.normal(1.0, 2.0, ROWS), 1)
    return label, score, {"prediction": score}, weight


def expected(task, label, score, weight):
    """Each metric by scikit-learn."""
    given = {"sample_weight": weight}
    if task == "multi_class":
        said, averages = score.argmax(1), {}
        for average in ("macro", "weighted"):
            for name in ("precision", "recall", "f1"):
                of_classes = getattr(stock_metrics, f"{name}_score")
                value = of_classes(label, said, average=average, **given)
                averages[f"{average}_{name}"] = value
        return {
            **averages,
            "accuracy": stock_metrics.accuracy_score(label, said, **given),
            "log_loss": stock_metrics.log_loss(label, score, labels=[0, 1, 2], **given),
        }
    mean = {
        "calibration": (weight @ score) / (weight @ label),
        "mean_label": np.average(label, weights=weight),
        "mean_prediction": np.average(score, weights=weight),
    }
    if task in ("regression", "reconstruction"):
        mean = mean if task == "regression" else {}
        mse = stock_metrics.mean_squared_error(label, score, **given)
        mae = stock_metrics.mean_absolute_error(label, score, **given)
        return {**mean, "mae": mae, "mse": mse, "rmse": math.sqrt(mse)}
    said, clipped = score > 0.5, np.clip(score, 1e-7, 1 - 1e-7)
    loss = stock_metrics.log_loss(label, clipped, **given)
    return {
        **mean,
        "auc": stock_metrics.roc_auc_score(label, score, **given),
        "accuracy": stock_metrics.accuracy_score(label, said, **given),
        "precision": stock_metrics.precision_score(label, said, **given),
        "recall": stock_metrics.recall_score(label, said, **given),
        "log_loss": loss,
    }


def measured(task, label, columns, weight, slices, parts=1):
    known = [name for name in names(task) if not metrics.METRICS[name].by_query]
    total = Sums(known, task)
    for some in np.array_split(np.arange(len(label)), parts):
        sums = Sums(known, task)
        values = {name: column[some] for name, column in columns.items()}
        member = SliceMembership([0, 1, 2], np.arange(len(some)), slices[some])
        weights = None if weight is None else weight[some]
        sums.add(label[some], {"it": values}, {"part": member}, weights)
        sums.compact()
        total = total.merge(sums)
    return total.metrics("it")


@pytest.mark.parametrize("scale", [1.0, 1e-12])
@pytest.mark.parametrize("task", metrics.TASKS)
def test_weighted_metrics_equal_those_of_scikit_learn(task, scale):
    rng = np.random.default_rng(5)
    label, score, columns, weight = rows_of(task, rng)
    slices = rng.integers(0, 3, ROWS)
    weight[slices == 2] = 0.0  # no row of this slice counts
    pieces = measured(task, label, columns, scale * weight, slices, parts=4)
    overall, *by_part = pieces
    for piece, some in [(overall, slices < 3), (by_part[0], slices == 0)]:
        theirs = expected(task, label[some], score[some], weight[some])
        ours = {name: piece.metrics[name] for name in theirs}
        assert ours == pytest.approx(theirs, rel=1e-9)
        assert piece.examples == some.sum()
        assert piece.weighted == pytest.approx(scale * weight[some].sum())
    assert all(math.isnan(value) for value in by_part[2].metrics.values())
    assert by_part[2].weighted == 0


@pytest.mark.parametrize("task", metrics.TASKS)
def test_a_weight_is_a_number_of_equal_rows(task):
    """Metrics and the trivial model, of rows that are written that often."""
    rng = np.random.default_rng(6)
    label, _, columns, _ = rows_of(task, rng)
    slices, times = rng.integers(0, 3, ROWS), rng.integers(0, 4, ROWS)
    weighted = measured(task, label, columns, times.astype(float), slices, parts=3)
    repeated = {name: np.repeat(column, times) for name, column in columns.items()}
    written = np.repeat(label, times), repeated, None, np.repeat(slices, times)
    for ours, theirs in zip(weighted, measured(task, *written), strict=True):
        assert ours.metrics == pytest.approx(theirs.metrics, rel=1e-9)
        assert ours.trivial.metrics == pytest.approx(theirs.trivial.metrics, rel=1e-9)
        assert ours.trivial.answer == pytest.approx(theirs.trivial.answer)
        assert ours.weighted == theirs.examples


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(8)
    found = []
    for number in range(400):
        x = rng.normal(size=2)
        found.append(
            {
                "x": [float(value) for value in x],
                "late": int(x.sum() + rng.normal() > 0.5),
                "carrier": ["OO", "UA", "AA"][number % 3],
                "w": float(rng.integers(0, 5)),
            }
        )
    return found


@pytest.mark.long
def test_weighted_models_slices_and_the_verdict_equal_tfma(
    workload, tmp_path, artifact, evaluate, eval_split, stock, by_slice, rows
):
    examples = eval_split(rows)
    section = {
        "metrics": [x for x in metrics.names("binary") if metrics.METRICS[x].tfma],
        "slices": ["carrier"],
        "bounds": {"accuracy": {"at_least": 0.99}},
    }
    model = workload["binary", "baseline"]
    baseline = artifact(standard_artifacts.Model, model, none=0)
    given = {"examples": examples, "weight": "w"}
    verdict, evaluation, _ = evaluate(
        workload, tmp_path, baseline=baseline, **section, **given
    )
    theirs, whole = f"{tmp_path}/stock", {"task": "binary", **section}
    stock(workload, theirs, "binary", whole, "late", baseline=True, **given)
    for name in ("candidate", "baseline"):
        ours = by_slice(tfma.load_eval_result(evaluation.uri, model_name=name))
        expected = by_slice(tfma.load_eval_result(theirs, model_name=name))
        assert ours.keys() == expected.keys()
        for key, values in expected.items():
            for metric, value in values.items():
                # Areas are exact here; TFMA uses 10,000 thresholds.
                near = 2e-3 if "auc" in metric else 2e-6
                found = ours[key][metric]
                assert found == pytest.approx(value, abs=near, nan_ok=True), metric
    found, wanted = (
        tfma.load_validation_result(x).metric_validations_per_slice[0].failures[0]
        for x in (evaluation.uri, theirs)
    )
    assert found.metric_key == wanted.metric_key
    assert found.metric_value.double_value.value == pytest.approx(
        wanted.metric_value.double_value.value
    )
    total = sum(row["w"] for row in rows)
    assert (verdict["examples"], verdict["weighted"]) == (400, total)
    assert sum(piece["weighted"] for piece in verdict["slices"]) == total


def test_label_and_weight_that_preprocessing_makes_judge_the_model(
    workload, tmp_path, evaluate, eval_split, rows
):
    examples = eval_split(rows)
    made, *_ = evaluate(
        workload, tmp_path / "made", examples=examples, label="late_xf", weight="w_xf"
    )
    raw, *_ = evaluate(workload, tmp_path / "raw", examples=examples, weight="w")
    assert made["overall"] == pytest.approx(raw["overall"], rel=1e-6)
    assert made["weighted"] == 2 * raw["weighted"]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (-1.0, "-1 as `w` in example 7 of .*\\n.*finite number, 0 or more"),
        (math.nan, "nan as `w` in example 7"),
        ([], "0 values of `w` in example 7"),
        ("all", "`w` is 0 in all 400 examples of the eval split"),
    ],
)
def test_a_wrong_weight_is_rejected_by_its_row(
    workload, tmp_path, evaluate, eval_split, rows, wrong, message
):
    bad = [{**row, "w": 0.0 if wrong == "all" else row["w"]} for row in rows]
    if wrong != "all":
        bad[7]["w"] = wrong
    with pytest.raises(UserError, match=message) as found:
        evaluate(workload, tmp_path, examples=eval_split(bad), weight="w")
    assert found.value.key == "weight"
