"""Areas under the curves of several classes, from counts that merge; numpy only."""

from __future__ import annotations

import numpy as np

from strategos.components.evaluation.classes.entries import spread
from strategos.components.evaluation.curves import Area, Curves
from strategos.components.evaluation.metrics import Batch


class ClassCurves:
    """Counts by slice, class and score, with the methods of `curves.Curves`.

    Args:
      classes: Number of classes.
    """

    def __init__(self, classes: int):
        self._classes, self._curves = classes, Curves()

    def empty(self) -> ClassCurves:
        """Counts of no rows."""
        return ClassCurves(self._classes)

    def add(self, batch: Batch) -> None:
        """Counts rows.

        Args:
          batch: The rows, with `classes` entries each.
        """
        place = np.arange(len(batch.code)) % self._classes
        code = batch.code * self._classes + place
        self._curves.add(code, batch.prediction, batch.label, batch.weight)
        self._curves.slices = batch.slices * self._classes

    def merge(self, later: ClassCurves, place: np.ndarray) -> None:
        """See `Curves.merge`."""
        self._curves.merge(later._curves, spread(place, self._classes))

    def compact(self) -> None:
        """See `Curves.compact`."""
        self._curves.compact()

    def mean_areas(self, area: Area) -> tuple[np.ndarray, np.ndarray]:
        """The mean over the classes of the area under their curves.

        Args:
          area: See `Curves.areas`.

        Returns:
          float64 [slices] and float64 [slices]: the means, NaN where an area is, and
          the largest error of each.
        """
        parts = self._curves.areas(area, self._curves.slices)
        values, errors = (x.reshape(-1, self._classes).mean(axis=1) for x in parts)
        return values, np.where(np.isnan(values), 0.0, errors)
