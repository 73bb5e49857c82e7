"""Metrics of the classes that a model thinks likeliest: `accuracy@top3` and others.

Config validation imports this module, so numpy is imported in functions.
"""

from __future__ import annotations

from strategos.components.evaluation.formulas import Ratio
from strategos.components.evaluation.metrics import RANK, Batch
from strategos.components.slow_imports import np


class Top(Ratio):
    """A metric of the `top` likeliest classes of each row; of equal ones the first.

    Args:
      top: Number of classes.
    """

    direction = "higher"
    shows_learning = False

    def __init__(self, top: int):
        self.top = top

    def chosen(self, batch: Batch) -> np.ndarray:
        """Whether a class is among the likeliest ones, float64 [rows]: 0 or 1.

        Args:
          batch: The rows. Of multi_class, the class is the label.
        """
        return (batch.columns[RANK] < self.top).astype(np.float64)


class TopAccuracy(Top):
    """Labels among the likeliest classes."""

    description = "share of rows whose label is one of the likeliest classes"
    tasks = ("multi_class",)
    tfma = "SparseTopKCategoricalAccuracy"

    def __init__(self, top: int):
        super().__init__(top)
        self.tfma_config = {"k": top}  # type: ignore[misc]

    def above(self, batch: Batch) -> np.ndarray:
        """See `Ratio`."""
        return self.chosen(batch)


class TopPrecision(Top):
    """The share of labels among the likeliest classes."""

    description = "share of right ones among the likeliest classes"
    tasks = ("multi_label",)

    def above(self, batch: Batch) -> np.ndarray:
        """See `Ratio`."""
        return self.chosen(batch) * batch.label

    def below(self, batch: Batch) -> np.ndarray:
        """See `Ratio`."""
        return self.chosen(batch)


class TopRecall(Top):
    """Positive labels that are found among the likeliest classes."""

    description = "share of the positive labels that are among the likeliest classes"
    tasks = ("multi_label",)
    undefined_by_answers = "no label is 1"

    def above(self, batch: Batch) -> np.ndarray:
        """See `Ratio`."""
        return self.chosen(batch) * batch.label

    def below(self, batch: Batch) -> np.ndarray:
        """See `Ratio`."""
        return batch.label
