"""The metrics of Strategos, as sums over rows.

TFMA feeds every example through a combiner per metric and slice: rows x slices x
metrics steps of Python. The definitions here are TFMA's, and a test compares the two.
They differ on purpose in two points: areas under curves are exact, or come with a bound
of their error (TFMA uses 10,000 thresholds; measured difference 2e-5 on a slice of 641
rows), and an undefined metric, such as the AUC of a slice with one class, is NaN (TFMA
returns 0).

Config validation imports this module, so numpy is imported in functions.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from strategos.components.evaluation.metrics import (
    EXACT_SCORES,
    SLICE_SCORES,
    Batch,
    Metric,
)
from strategos.components.slow_imports import np

if TYPE_CHECKING:
    from strategos.components.evaluation.curves import Area, Curves, Steps
    from strategos.components.evaluation.trivial import OneAnswer

# Keras clips probabilities by this before it takes their logarithm.
EPSILON = 1e-7

_YES_OR_NO = ("binary", "multi_label")
_SINGLE = (*_YES_OR_NO, "regression")
_NUMBERS = ("regression", "reconstruction")
_CANCELLED = 1e-8  # share of the summed sizes below which a sum is roundoff
_EXACT = (
    f"exact up to {EXACT_SCORES:,} distinct scores, in slices of up to "
    f"{SLICE_SCORES:,} also beyond that; else with a bound of the error in "
    "`summary.json`"
)


class Ratio(Metric):
    """A metric that is the ratio of two sums over rows."""

    adds_signs: ClassVar[bool] = False
    """Whether values below the line may cancel each other out."""

    @abc.abstractmethod
    def above(self, batch: Batch) -> np.ndarray:
        """The numerator of each row, float64 [rows]."""

    def below(self, batch: Batch) -> np.ndarray:
        """The denominator of each row, float64 [rows]; by default 1: a mean."""
        return np.ones_like(batch.label)

    def sums(self, batch: Batch) -> np.ndarray:
        """See `Metric`: both sums, and the sum of sizes below; float64 [3, slices]."""
        above, below = self.above(batch), self.below(batch)
        size = np.abs(below) if self.adds_signs else below
        return np.stack([batch.total(each) for each in (above, below, size)])

    def finish(self, sums: np.ndarray) -> np.ndarray:
        """See `Metric`: NaN where the sum below the line is 0."""
        above, below, size = sums
        # Not by an absolute bound: weights may be as small as 1e-12.
        undefined = np.abs(below) <= _CANCELLED * size
        result = above / np.where(undefined, 1.0, below)
        return np.where(undefined, np.nan, result)


class _Area(Metric):
    """The area under a curve of true and false positives."""

    tasks = _YES_OR_NO
    direction = "higher"
    tfma_config: ClassVar[Mapping[str, Any]] = {"num_thresholds": 10_000}
    undefined_by_labels = "all labels are the same"
    shares = "scores"

    @abc.abstractmethod
    def area(self, steps: Steps) -> np.ndarray:
        """The areas; see `curves.roc`."""

    def sums(self, batch: Batch) -> Curves:
        """See `Metric`: counts by score."""
        from strategos.components.evaluation.curves import Curves

        curves = Curves()
        curves.add(batch.code, batch.prediction, batch.label, batch.weight)
        curves.slices = batch.slices  # the last ones may have rows of weight 0 only
        return curves

    def finish(self, sums: Curves) -> tuple[np.ndarray, np.ndarray]:
        """See `Metric`: the areas, and the largest error of each."""
        return sums.areas(self.area, sums.slices)


class Auc(_Area):
    """The ROC curve."""

    description = f"area under the ROC curve, {_EXACT}"
    tfma = "AUC"

    def area(self, steps: Steps) -> np.ndarray:
        """See `curves.roc`."""
        from strategos.components.evaluation.curves import roc

        return roc(steps)

    def trivial(self, one: OneAnswer) -> np.ndarray:
        """See `Metric`."""
        return _one_area(one, self.area)


class PrAuc(_Area):
    """The precision-recall curve."""

    description = f"area under the precision-recall curve, {_EXACT}"
    tfma = "AUCPrecisionRecall"

    def area(self, steps: Steps) -> np.ndarray:
        """See `curves.precision_recall`."""
        from strategos.components.evaluation.curves import precision_recall

        return precision_recall(steps)

    def trivial(self, one: OneAnswer) -> np.ndarray:
        """See `Metric`."""
        return _one_area(one, self.area)


class Accuracy(Ratio):
    """Right answers."""

    description = "share of right predictions (binary, multi_label: at threshold 0.5)"
    tasks = (*_YES_OR_NO, "multi_class")
    direction = "higher"
    threshold = 0.5
    tfma_threshold = "threshold"
    tfma: ClassVar[Mapping[str, str]] = {
        "binary": "BinaryAccuracy",
        "multi_label": "BinaryAccuracy",
        "multi_class": "SparseCategoricalAccuracy",
    }

    def above(self, batch: Batch) -> np.ndarray:
        """See `Ratio`."""
        if batch.task == "multi_class":
            return batch.columns["right"]
        return (positive(batch, self) == batch.label).astype(np.float64)

    def trivial(self, one: OneAnswer) -> np.ndarray:
        """See `Metric`."""
        if one.task == "multi_class":
            return one.share
        right = np.where(one.ones(self), one.shares, 1 - one.shares)
        return right.mean(axis=0)


class Precision(Ratio):
    """The share of right answers among the positive answers."""

    description = "share of right ones among the positive predictions, threshold 0.5"
    tasks = _YES_OR_NO
    direction = "higher"
    threshold = 0.5
    tfma_threshold = "thresholds"
    tfma = "Precision"
    shows_learning = False
    undefined_by_answers = "no prediction is above 0.5"

    def above(self, batch: Batch) -> np.ndarray:
        """See `Ratio`."""
        return positive(batch, self) * batch.label

    def below(self, batch: Batch) -> np.ndarray:
        """See `Ratio`."""
        return positive(batch, self)

    def trivial(self, one: OneAnswer) -> np.ndarray:
        """See `Metric`."""
        true_positives, predicted, _ = one.positives(self)
        return np.where(
            predicted > 0, true_positives / np.maximum(predicted, 1), np.nan
        )


class Recall(Ratio):
    """Positive labels that are found."""

    description = "share of the positive labels that are found, threshold 0.5"
    tasks = _YES_OR_NO
    direction = "higher"
    threshold = 0.5
    tfma_threshold = "thresholds"
    tfma = "Recall"
    shows_learning = False
    undefined_by_labels = "no label is 1"

    def above(self, batch: Batch) -> np.ndarray:
        """See `Ratio`."""
        return positive(batch, self) * batch.label

    def below(self, batch: Batch) -> np.ndarray:
        """See `Ratio`."""
        return batch.label

    def trivial(self, one: OneAnswer) -> np.ndarray:
        """See `Metric`."""
        true_positives, _, labelled = one.positives(self)
        known = labelled > 0
        return np.where(known, true_positives / np.where(known, labelled, 1.0), np.nan)


class LogLoss(Ratio):
    """Cross entropy."""

    description = "mean cross entropy"
    tasks = (*_YES_OR_NO, "multi_class")
    direction = "lower"
    tfma: ClassVar[Mapping[str, str]] = {
        "binary": "BinaryCrossEntropy",
        "multi_label": "BinaryCrossEntropy",
        "multi_class": "SparseCategoricalCrossentropy",
    }

    def above(self, batch: Batch) -> np.ndarray:
        """See `Ratio`."""
        if batch.task == "multi_class":
            return batch.columns["loss"]
        label, p = batch.label, np.clip(batch.prediction, EPSILON, 1 - EPSILON)
        return -(label * np.log(p) + (1 - label) * np.log(1 - p))

    def trivial(self, one: OneAnswer) -> np.ndarray:
        """See `Metric`."""
        if one.task == "multi_class":
            return one.loss
        both = (one.shares > 0) & (one.shares < 1)
        inner = np.where(both, one.shares, 0.5)
        entropy = -(inner * np.log(inner) + (1 - inner) * np.log(1 - inner))
        return np.where(both, entropy, 0.0).mean(axis=0)


class Calibration(Ratio):
    """Answers beside labels."""

    description = "mean prediction divided by mean label; best near 1"
    tasks = _SINGLE
    target = 1.0
    tfma = "Calibration"
    adds_signs = True
    undefined_by_labels = "the labels add up to 0"

    def above(self, batch: Batch) -> np.ndarray:
        """See `Ratio`."""
        return batch.prediction

    def below(self, batch: Batch) -> np.ndarray:
        """See `Ratio`."""
        return batch.label

    def trivial(self, one: OneAnswer) -> np.ndarray:
        """See `Metric`."""
        return np.where(np.isclose(one.answer, 0.0), np.nan, 1.0)


class MeanLabel(Ratio):
    """Labels."""

    description = "mean of the labels; describes the data, not the model"
    tasks = _SINGLE
    tfma = "MeanLabel"
    reads_answers = False

    def above(self, batch: Batch) -> np.ndarray:
        """See `Ratio`."""
        return batch.label

    def trivial(self, one: OneAnswer) -> np.ndarray:
        """See `Metric`."""
        return one.answer


class MeanPrediction(Ratio):
    """Answers."""

    description = "mean of the predictions"
    tasks = _SINGLE
    tfma = "MeanPrediction"

    def above(self, batch: Batch) -> np.ndarray:
        """See `Ratio`."""
        return batch.prediction

    def trivial(self, one: OneAnswer) -> np.ndarray:
        """See `Metric`."""
        return one.answer


class Mae(Ratio):
    """Absolute errors."""

    description = "mean absolute error"
    tasks = _NUMBERS
    direction = "lower"
    tfma = "MeanAbsoluteError"

    def above(self, batch: Batch) -> np.ndarray:
        """See `Ratio`."""
        return np.abs(batch.prediction - batch.label)

    def trivial(self, one: OneAnswer) -> np.ndarray:
        """See `Metric`."""
        return one.deviation


class Mse(Ratio):
    """Squared errors."""

    description = "mean squared error"
    tasks = _NUMBERS
    direction = "lower"
    tfma = "MeanSquaredError"

    def above(self, batch: Batch) -> np.ndarray:
        """See `Ratio`."""
        return (batch.prediction - batch.label) ** 2

    def trivial(self, one: OneAnswer) -> np.ndarray:
        """See `Metric`."""
        return one.variance


class Rmse(Mse):
    """The root of the squared errors."""

    description = "square root of the mean squared error"
    tfma = "RootMeanSquaredError"

    def finish(self, sums: np.ndarray) -> np.ndarray:
        """See `Metric`."""
        return np.sqrt(super().finish(sums))

    def trivial(self, one: OneAnswer) -> np.ndarray:
        """See `Metric`."""
        return np.sqrt(one.variance)


def positive(batch: Batch, metric: Metric) -> np.ndarray:
    """Whether each answer is above the threshold, float64 [rows]: 0 or 1.

    Args:
      batch: The rows.
      metric: A metric with a threshold, which is compared in single precision: a
        model's answer of 0.3 is not above 0.3.
    """
    threshold = float(np.float32(metric.threshold))
    return (batch.prediction > threshold).astype(np.float64)


def _one_area(one: OneAnswer, area: Area) -> np.ndarray:
    """The area of the trivial model: its scores are the classes' shares."""
    from strategos.components.evaluation.curves import Steps

    values = np.full(len(one.answer), np.nan)
    for i in np.flatnonzero((one.answer > 0) & (one.answer < 1)):
        share = np.sort(one.shares[:, i])[::-1]
        levels, step = np.unique(-share, return_inverse=True)
        positives = np.bincount(step, share, len(levels))
        negatives = np.bincount(step, 1 - share, len(levels))
        (values[i],) = area(
            Steps(np.zeros_like(step[: len(levels)]), positives, negatives)
        )
    return values
