"""The metrics that an evaluator section may name; standard library only.

Config validation reads this table without TensorFlow, `tfma.eval_config` turns it into
a TFMA EvalConfig, and `formulas` computes exactly these.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

TASKS = ("binary", "multi_class", "regression")
# Distinct scores, over all slices of a feature, up to which areas under curves are
# exact. Beyond that, those of the largest slices come from bins, with a bound of the
# error; slices with at most `SLICE_SCORES` stay exact up to `MOST_SCORES` in all.
EXACT_SCORES = 1 << 18
SLICE_SCORES = 1 << 14
MOST_SCORES = 1 << 22
# Of one feature. Each takes memory, a line of the summary, and checks of bounds.
MOST_SLICES = 50_000


@dataclass(frozen=True)
class Metric:
    """One metric: its meaning, its tasks, and its class in TFMA.

    Attributes:
      description: One line for messages and documentation.
      classes: Class in TFMA or Keras that computes the same number, by task.
      higher_is_better: None if neither direction is better: see `target`.
      target: The best value of a metric without a better direction (calibration: 1).
      config: Arguments of the TFMA class.
      shows_learning: Whether only a model that has learned something is better than the
        trivial one. Always predicting 1 has a recall of 1.
    """

    description: str
    classes: Mapping[str, str]
    higher_is_better: bool | None = None
    target: float | None = None
    config: Mapping[str, Any] = field(default_factory=dict)
    shows_learning: bool = True

    @property
    def tasks(self) -> frozenset[str]:
        """The tasks that the metric is defined for, out of `TASKS`."""
        return frozenset(self.classes)

    @property
    def is_compared(self) -> bool:
        """Whether a model can be judged by being better than the trivial one."""
        return self.shows_learning and self.higher_is_better is not None

    def is_better(self, value: float, other: float) -> bool:
        """Whether a value is better than another one, by more than roundoff.

        Args:
          value: A value of the metric; NaN is not better.
          other: Another one.
        """
        differs = not math.isclose(value, other, rel_tol=1e-9, abs_tol=1e-12)
        return differs and self.badness(value) < self.badness(other)

    def badness(self, value: float) -> float:
        """A number that is larger for worse values; 0 if no value is worse.

        Args:
          value: A value of the metric.
        """
        if self.target is not None:
            return abs(value - self.target)
        return {True: -value, False: value, None: 0.0}[self.higher_is_better]


@dataclass(frozen=True)
class Trivial:
    """What a trivial model reaches on the rows of a slice, see `trivial`.

    Attributes:
      answer: Its answer for each row: the mean label, or the most frequent class.
      metrics: Its metrics by name; NaN if undefined.
      is_perfect: Whether all labels are the same, so that nothing can be better.
    """

    answer: float
    metrics: Mapping[str, float]
    is_perfect: bool = False


@dataclass(frozen=True)
class SliceMetrics:
    """The metrics of one slice.

    Attributes:
      feature: The sliced feature; None for all examples.
      value: The feature's value; None for all examples.
      examples: Number of examples in the slice.
      metrics: The candidate's metrics by name; NaN if undefined.
      baseline: The metrics of the model in production, or None.
      errors: Largest error, over both models, of the metrics that are not exact.
      trivial: The trivial model on the same rows, or None if it was not measured.
      finite: Whether all answers of the candidate are finite.
    """

    feature: str | None
    value: str | int | float | None
    examples: int
    metrics: Mapping[str, float]
    baseline: Mapping[str, float] | None = None
    errors: Mapping[str, float] = field(default_factory=dict)
    trivial: Trivial | None = None
    finite: bool = True

    @property
    def name(self) -> str:
        """The slice's name for people: `carrier=OO`, or `overall`."""
        return "overall" if self.feature is None else f"{self.feature}={self.value}"


def _same(name: str, *tasks: str) -> dict[str, str]:
    return dict.fromkeys(tasks, name)


_EXACT = (
    f"exact up to {EXACT_SCORES:,} distinct scores, in slices of up to "
    f"{SLICE_SCORES:,} also beyond that; else with a bound of the error in "
    "`summary.json`"
)

METRICS: Mapping[str, Metric] = MappingProxyType(
    {
        "auc": Metric(
            f"area under the ROC curve, {_EXACT}",
            _same("AUC", "binary"),
            higher_is_better=True,
            config={"num_thresholds": 10_000},
        ),
        "pr_auc": Metric(
            f"area under the precision-recall curve, {_EXACT}",
            _same("AUCPrecisionRecall", "binary"),
            higher_is_better=True,
            config={"num_thresholds": 10_000},
        ),
        "accuracy": Metric(
            "share of right predictions (binary: at threshold 0.5)",
            {"binary": "BinaryAccuracy", "multi_class": "SparseCategoricalAccuracy"},
            higher_is_better=True,
        ),
        "precision": Metric(
            "share of right ones among the positive predictions, threshold 0.5",
            _same("Precision", "binary"),
            higher_is_better=True,
            shows_learning=False,
        ),
        "recall": Metric(
            "share of the positive labels that are found, threshold 0.5",
            _same("Recall", "binary"),
            higher_is_better=True,
            shows_learning=False,
        ),
        "log_loss": Metric(
            "mean cross entropy",
            {
                "binary": "BinaryCrossEntropy",
                "multi_class": "SparseCategoricalCrossentropy",
            },
            higher_is_better=False,
        ),
        "calibration": Metric(
            "mean prediction divided by mean label; best near 1",
            _same("Calibration", "binary", "regression"),
            target=1.0,
        ),
        "mean_label": Metric(
            "mean of the labels; describes the data, not the model",
            _same("MeanLabel", "binary", "regression"),
        ),
        "mean_prediction": Metric(
            "mean of the predictions",
            _same("MeanPrediction", "binary", "regression"),
        ),
        "mae": Metric(
            "mean absolute error",
            _same("MeanAbsoluteError", "regression"),
            higher_is_better=False,
        ),
        "mse": Metric(
            "mean squared error",
            _same("MeanSquaredError", "regression"),
            higher_is_better=False,
        ),
        "rmse": Metric(
            "square root of the mean squared error",
            _same("RootMeanSquaredError", "regression"),
            higher_is_better=False,
        ),
    }
)


def names(task: str) -> list[str]:
    """The metrics defined for a task, in the table's order.

    Args:
      task: One of `TASKS`.
    """
    return [name for name, metric in METRICS.items() if task in metric.tasks]


def metric_names(evaluator: Mapping[str, Any]) -> list[str]:
    """The metrics to compute: the configured ones, then those that only bounds name.

    Args:
      evaluator: The section: task, metrics, slices, bounds.
    """
    return list(
        dict.fromkeys([*evaluator["metrics"], *(evaluator.get("bounds") or {})])
    )


def sliced_features(evaluator: Mapping[str, Any]) -> list[str]:
    """The features to slice by: the configured ones, then those that only bounds name.

    Args:
      evaluator: The section: task, metrics, slices, bounds.
    """
    features = list(evaluator.get("slices") or [])
    for bound in (evaluator.get("bounds") or {}).values():
        features += bound.get("slices") or {}
    return list(dict.fromkeys(features))
