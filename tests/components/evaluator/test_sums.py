from __future__ import annotations

import math

import numpy as np
import pytest

from strategos.components.evaluation.classes.entries import SliceMembership
from strategos.components.evaluation.sums import Sums

BINARY = ["auc", "pr_auc", "accuracy", "precision", "recall", "log_loss"]


def measure(label, prediction, metrics, slices=None, task="binary"):
    sums = Sums(metrics, task)
    columns = {"prediction": np.asarray(prediction, np.float64)}
    sums.add(np.asarray(label, np.float64), {"candidate": columns}, slices or {})
    return sums.metrics("candidate")


def overall(label, prediction, metrics, task="binary"):
    return measure(label, prediction, metrics, task=task)[0].metrics


def test_auc_counts_pairs_and_ties_half():
    rng = np.random.default_rng(0)
    label = rng.integers(0, 2, 300)
    prediction = np.round(rng.random(300), 1)  # many ties
    positive, negative = prediction[label == 1], prediction[label == 0]
    difference = positive[:, None] - negative[None, :]
    expected = np.mean((difference > 0) + 0.5 * (difference == 0))
    assert overall(label, prediction, ["auc"])["auc"] == pytest.approx(expected)


def test_perfect_and_constant_predictions():
    label = [0, 0, 1, 1]
    perfect = overall(label, [0.1, 0.2, 0.8, 0.9], BINARY)
    assert [perfect[name] for name in BINARY[:5]] == [1.0] * 5
    constant = overall(label, [0.5] * 4, ["auc", "accuracy", "recall", "precision"])
    assert constant["auc"] == constant["accuracy"] == 0.5
    assert constant["recall"] == 0.0
    assert math.isnan(constant["precision"])  # no prediction above the threshold


def test_auc_of_one_class_is_undefined_and_accuracy_is_not():
    metrics = overall([0, 0, 0], [0.1, 0.2, 0.9], ["auc", "pr_auc", "accuracy"])
    assert math.isnan(metrics["auc"]) and math.isnan(metrics["pr_auc"])
    assert metrics["accuracy"] == pytest.approx(2 / 3)


def test_certain_and_wrong_prediction_has_a_finite_loss():
    assert overall([1, 0], [0.0, 1.0], ["log_loss"])["log_loss"] == pytest.approx(
        -math.log(1e-7), rel=1e-3
    )


def test_one_nan_prediction_makes_its_slices_undefined_and_no_others():
    slices = {
        "day": SliceMembership(["a", "b"], np.arange(6), np.array([0, 0, 0, 1, 1, 1]))
    }
    label, prediction = [0, 1, 1, 0, 1, 1], [0.1, np.nan, 0.9, 0.2, 0.8, 0.3]
    whole, a, b = measure(label, prediction, [*BINARY, "mean_label"], slices)
    for piece in (whole, a):
        assert all(math.isnan(piece.metrics[name]) for name in BINARY)
        assert not math.isnan(piece.metrics["mean_label"])
        assert not piece.finite
    assert b.finite
    assert not any(math.isnan(value) for value in b.metrics.values())


def test_row_counts_in_every_value_it_has_and_in_none_without_a_value():
    slices = {
        "tag": SliceMembership(["x", "y"], np.array([0, 0, 1]), np.array([0, 1, 1]))
    }
    pieces = measure([1, 0, 1], [0.9, 0.1, 0.2], ["accuracy"], slices)
    assert [(p.name, p.examples, p.metrics["accuracy"]) for p in pieces] == [
        ("overall", 3, pytest.approx(2 / 3)),
        ("tag=x", 1, 1.0),
        ("tag=y", 2, 1.0),
    ]


def test_regression_errors():
    names = ["mae", "mse", "rmse", "calibration"]
    metrics = overall([1, 2, 6], [2, 2, 4], names, "regression")
    assert metrics == {
        "mae": 1.0,
        "mse": pytest.approx(5 / 3),
        "rmse": pytest.approx(math.sqrt(5 / 3)),
        "calibration": pytest.approx(8 / 9),
    }
