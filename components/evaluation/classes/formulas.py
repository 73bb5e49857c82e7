"""Metrics of several classes a row, and F1; the definitions are scikit-learn's.

A metric of one label counts all classes of all rows alike (micro average). `macro_…` is
the mean of the metric over the classes. Config validation imports this module, so numpy
is imported in functions.
"""

from __future__ import annotations

import abc
import dataclasses
from typing import TYPE_CHECKING

from strategos.components.evaluation.formulas import Ratio, positive
from strategos.components.evaluation.metrics import Batch, Metric

if TYPE_CHECKING:
    import numpy as np

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
        return _f1(*one.found(self))


class HammingLoss(Ratio):
    """Wrong answers."""

    description = "share of wrong answers among all classes of all rows, threshold 0.5"
    tasks = ("multi_label",)
    direction = "lower"
    threshold = 0.5

    def above(self, batch: Batch) -> np.ndarray:
        """See `Ratio`."""
        import numpy as np

        return (positive(batch, self) != batch.label).astype(np.float64)

    def trivial(self, one: OneAnswer) -> np.ndarray:
        """See `Metric`."""
        import numpy as np

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
        import numpy as np

        right = (positive(batch, self) == batch.label).reshape(-1, batch.classes)
        return right.all(axis=1).repeat(batch.classes).astype(np.float64)


class _Macro(Metric):
    """A mean over the classes; a class whose metric is undefined counts as 0."""

    tasks = ("multi_label",)
    direction = "higher"
    threshold = 0.5
    shows_learning = False
    shares = "found_by_class"

    def sums(self, batch: Batch) -> np.ndarray:
        """See `Metric`: true positives, positives predicted and labelled, and entries.

        Returns:
          float64 [4, classes, slices].
        """
        import numpy as np

        predicted, shape = positive(batch, self), (batch.classes, batch.slices)
        place = np.arange(len(batch.code)) % batch.classes
        code = place * batch.slices + batch.code
        by_class = dataclasses.replace(batch, code=code, slices=shape[0] * shape[1])
        parts = predicted * batch.label, predicted, batch.label, np.ones(len(code))
        return np.stack([by_class.total(part).reshape(shape) for part in parts])

    def finish(self, sums: np.ndarray) -> np.ndarray:
        """See `Metric`: NaN for slices without rows."""
        import numpy as np

        found, predicted, labelled, entries = sums
        values = np.nan_to_num(self.of_class(found, predicted, labelled)).mean(axis=0)
        return np.where(entries.sum(axis=0) > 0, values, np.nan)

    @abc.abstractmethod
    def of_class(
        self, found: np.ndarray, predicted: np.ndarray, labelled: np.ndarray
    ) -> np.ndarray:
        """The metric of each class, float64 [classes, slices]; NaN if undefined.

        Args:
          found: float64 [classes, slices], true positives.
          predicted: float64 [classes, slices], positive predictions.
          labelled: float64 [classes, slices], labels that are 1.
        """

    def trivial(self, one: OneAnswer) -> np.ndarray:
        """See `Metric`."""
        import numpy as np

        ones = one.ones(self).astype(np.float64)
        parts = ones * one.shares, ones, one.shares
        values = np.nan_to_num(self.of_class(*parts)).mean(axis=0)
        return np.where(np.isnan(one.answer), np.nan, values)


class MacroPrecision(_Macro):
    """Precision by class."""

    description = (
        "mean of the classes' precision, threshold 0.5; 0 for a class that is never "
        "predicted"
    )

    def of_class(
        self, found: np.ndarray, predicted: np.ndarray, labelled: np.ndarray
    ) -> np.ndarray:
        """See `_Macro`."""
        return _ratio(found, predicted)


class MacroRecall(_Macro):
    """Recall by class."""

    description = (
        "mean of the classes' recall, threshold 0.5; 0 for a class that no row has"
    )

    def of_class(
        self, found: np.ndarray, predicted: np.ndarray, labelled: np.ndarray
    ) -> np.ndarray:
        """See `_Macro`."""
        return _ratio(found, labelled)


class MacroF1(_Macro):
    """F1 by class."""

    description = (
        "mean of the classes' F1, threshold 0.5; 0 for a class that is neither "
        "predicted nor in any row"
    )

    def of_class(
        self, found: np.ndarray, predicted: np.ndarray, labelled: np.ndarray
    ) -> np.ndarray:
        """See `_Macro`."""
        return _f1(found, predicted, labelled)


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
        import numpy as np

        both = ((one.shares > 0) & (one.shares < 1)).all(axis=0)
        return np.where(both, 0.5, np.nan)


def _ratio(above: np.ndarray, below: np.ndarray) -> np.ndarray:
    import numpy as np

    return np.where(below > 0, above / np.where(below > 0, below, 1.0), np.nan)


def _f1(found: np.ndarray, predicted: np.ndarray, labelled: np.ndarray) -> np.ndarray:
    return _ratio(2 * found, predicted + labelled)
