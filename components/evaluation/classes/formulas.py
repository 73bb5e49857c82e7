"""Metrics of several classes a row, and F1; the definitions are scikit-learn's.

A metric of one label counts all classes of all rows alike (micro average). `macro_…` is
the mean of the metric over the classes. Config validation imports this module, so numpy
is imported in functions.
"""

from __future__ import annotations

import abc
import dataclasses
from typing import TYPE_CHECKING, ClassVar

from strategos.components.evaluation.formulas import Ratio, positive
from strategos.components.evaluation.metrics import Batch, Metric
from strategos.components.slow_imports import np

if TYPE_CHECKING:
    from strategos.components.evaluation.classes.counts import ClassCounts
    from strategos.components.evaluation.classes.curves import ClassCurves
    from strategos.components.evaluation.trivial import OneAnswer


class F1(Ratio):
    """Precision and recall in one number."""

    description = "harmonic mean of precision and recall, threshold 0.5"
    tasks = ("binary", "multi_label")
    direction = "higher"
    threshold = 0.5
    tfma_threshold = "thresholds"
    tfma = "F1Score"
    shows_learning = False
    undefined_by_answers = "no label is 1, and no prediction is above 0.5"

    def above(self, batch: Batch) -> np.ndarray:
        """See `Ratio`."""
        return 2 * positive(batch, self) * batch.label

    def below(self, batch: Batch) -> np.ndarray:
        """See `Ratio`."""
        return positive(batch, self) + batch.label

    def trivial(self, one: OneAnswer) -> np.ndarray:
        """See `Metric`."""
        return _f1(*one.positives(self))


class HammingLoss(Ratio):
    """Wrong answers."""

    description = "share of wrong answers among all classes of all rows, threshold 0.5"
    tasks = ("multi_label",)
    direction = "lower"
    threshold = 0.5

    def above(self, batch: Batch) -> np.ndarray:
        """See `Ratio`."""
        return (positive(batch, self) != batch.label).astype(np.float64)

    def trivial(self, one: OneAnswer) -> np.ndarray:
        """See `Metric`."""
        wrong = np.where(one.ones(self), 1 - one.shares, one.shares)
        return wrong.mean(axis=0)


class ExactMatch(Ratio):
    """Rows without a wrong answer."""

    description = "share of rows whose classes are all right, threshold 0.5"
    tasks = ("multi_label",)
    direction = "higher"
    threshold = 0.5

    def above(self, batch: Batch) -> np.ndarray:
        """See `Ratio`: the row's result, for each of its classes."""
        right = (positive(batch, self) == batch.label).reshape(-1, batch.classes)
        return right.all(axis=1).repeat(batch.classes).astype(np.float64)


class _Macro(Metric):
    """A mean over the classes; an undefined metric of a class counts as 0.

    Of multi_class, a class counts if it is a label or a prediction in the slice, as in
    scikit-learn.

    Attributes:
      by_label: Whether a class weighs as many rows as have it as their label.
    """

    tasks = ("multi_label", "multi_class")
    direction = "higher"
    threshold = 0.5
    shows_learning = False
    shares = "found_by_class"
    by_label: ClassVar[bool] = False

    def sums(self, batch: Batch) -> np.ndarray | ClassCounts:
        """See `Metric`: true positives, positives predicted and labelled, and entries.

        Returns:
          float64 [4, classes, slices]; for multi_class, counts of the classes that
          occur.
        """
        if batch.task == "multi_class":
            from strategos.components.evaluation.classes.counts import ClassCounts

            counts = ClassCounts()
            counts.add(batch)
            return counts
        predicted, shape = positive(batch, self), (batch.classes, batch.slices)
        place = np.arange(len(batch.code)) % batch.classes
        code = place * batch.slices + batch.code
        by_class = dataclasses.replace(batch, code=code, slices=shape[0] * shape[1])
        parts = predicted * batch.label, predicted, batch.label, np.ones(len(code))
        return np.stack([by_class.total(part).reshape(shape) for part in parts])

    def finish(self, sums: np.ndarray | ClassCounts) -> np.ndarray:
        """See `Metric`: NaN for slices without rows."""
        if not isinstance(sums, np.ndarray):
            return self._mean(*sums.by_class(), sums.slices)
        _, classes, slices = sums.shape
        code = np.tile(np.arange(slices), classes)
        values = self._mean(code, sums[:3].reshape(3, -1), slices)
        return np.where(sums[3].sum(axis=0) > 0, values, np.nan)

    def _mean(self, code: np.ndarray, parts: np.ndarray, slices: int) -> np.ndarray:
        """The mean over the classes of each slice, from entries of slice and class."""
        true_positives, predicted, labelled = parts
        values = np.nan_to_num(self.of_class(true_positives, predicted, labelled))
        share = labelled if self.by_label else np.ones(len(code))
        total = np.bincount(code, values * share, slices)
        return _ratio(total, np.bincount(code, share, slices))

    @abc.abstractmethod
    def of_class(
        self, true_positives: np.ndarray, predicted: np.ndarray, labelled: np.ndarray
    ) -> np.ndarray:
        """The metric of each class and slice, float64 [entries]; NaN if undefined.

        Args:
          true_positives: float64 [entries], true positives.
          predicted: float64 [entries], positive predictions.
          labelled: float64 [entries], positive labels.
        """

    def trivial(self, one: OneAnswer) -> np.ndarray | None:
        """See `Metric`; unknown for multi_class."""
        if one.task == "multi_class":
            return None
        ones = one.ones(self).astype(np.float64)
        parts = ones * one.shares, ones, one.shares
        values = np.nan_to_num(self.of_class(*parts))
        share = one.shares if self.by_label else np.ones_like(one.shares)
        mean = _ratio((values * share).sum(axis=0), share.sum(axis=0))
        return np.where(np.isnan(one.answer), np.nan, mean)


class MacroPrecision(_Macro):
    """Precision by class."""

    description = (
        "mean of the classes' precision (multi_label: at threshold 0.5); 0 for a class "
        "that is never predicted"
    )

    def of_class(
        self, true_positives: np.ndarray, predicted: np.ndarray, labelled: np.ndarray
    ) -> np.ndarray:
        """See `_Macro`."""
        return _ratio(true_positives, predicted)


class MacroRecall(_Macro):
    """Recall by class."""

    description = (
        "mean of the classes' recall (multi_label: at threshold 0.5); 0 for a class "
        "that no row has"
    )

    def of_class(
        self, true_positives: np.ndarray, predicted: np.ndarray, labelled: np.ndarray
    ) -> np.ndarray:
        """See `_Macro`."""
        return _ratio(true_positives, labelled)


class MacroF1(_Macro):
    """F1 by class."""

    description = (
        "mean of the classes' F1 (multi_label: at threshold 0.5); 0 for a class that "
        "is neither predicted nor in any row"
    )

    def of_class(
        self, true_positives: np.ndarray, predicted: np.ndarray, labelled: np.ndarray
    ) -> np.ndarray:
        """See `_Macro`."""
        return _f1(true_positives, predicted, labelled)


class WeightedPrecision(MacroPrecision):
    """Precision by class."""

    description = (
        "mean of the classes' precision, each class by its number of labels "
        "(multi_label: at threshold 0.5)"
    )
    by_label = True
    undefined_by_answers = "no row has a class"


class WeightedRecall(MacroRecall):
    """Recall by class."""

    description = (
        "mean of the classes' recall, each class by its number of labels "
        "(multi_label: at threshold 0.5)"
    )
    by_label = True
    undefined_by_answers = "no row has a class"


class WeightedF1(MacroF1):
    """F1 by class."""

    description = (
        "mean of the classes' F1, each class by its number of labels "
        "(multi_label: at threshold 0.5)"
    )
    by_label = True
    undefined_by_answers = "no row has a class"


class MacroAuc(Metric):
    """The ROC curves of the classes."""

    description = "mean of the classes' area under the ROC curve; exact as `auc` is"
    tasks = ("multi_label",)
    direction = "higher"
    undefined_by_labels = "all labels of a class are the same"

    def sums(self, batch: Batch) -> ClassCurves:
        """See `Metric`: counts by class and score."""
        from strategos.components.evaluation.classes.curves import ClassCurves

        curves = ClassCurves(batch.classes)
        curves.add(batch)
        return curves

    def finish(self, sums: ClassCurves) -> tuple[np.ndarray, np.ndarray]:
        """See `Metric`: NaN where the area of one class is."""
        from strategos.components.evaluation.curves import roc

        return sums.mean_areas(roc)

    def trivial(self, one: OneAnswer) -> np.ndarray:
        """See `Metric`."""
        both = ((one.shares > 0) & (one.shares < 1)).all(axis=0)
        return np.where(both, 0.5, np.nan)


def _ratio(above: np.ndarray, below: np.ndarray) -> np.ndarray:
    return np.where(below > 0, above / np.where(below > 0, below, 1.0), np.nan)


def _f1(
    true_positives: np.ndarray, predicted: np.ndarray, labelled: np.ndarray
) -> np.ndarray:
    return _ratio(2 * true_positives, predicted + labelled)
