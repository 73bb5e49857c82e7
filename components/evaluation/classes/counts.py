"""Counts of labels and predictions by slice and class, which merge; numpy only."""

from __future__ import annotations

import numpy as np

from strategos.components.evaluation.metrics import Batch

_MOST = 1 << 32  # classes


class ClassCounts:
    """Rows by slice and class, of the classes that occur; with the methods of `Curves`.

    Attributes:
      slices: Number of slices.
    """

    def __init__(self) -> None:
        self.slices = 0
        # The slice and the class in one number, sorted; and rows found, predicted and
        # labelled.
        self._key, self._sums = np.zeros(0, np.int64), np.zeros((3, 0))

    def empty(self) -> ClassCounts:
        """Counts of no rows."""
        return ClassCounts()

    def compact(self) -> None:
        """Counts are always small."""

    def add(self, batch: Batch) -> None:
        """Counts rows of multi_class.

        Args:
          batch: The rows.
        """
        label, predicted = batch.label, batch.columns["predicted"]
        weight = np.ones(len(label)) if batch.weight is None else batch.weight
        known, zero = np.isfinite(predicted), np.zeros(len(label))
        right = weight * (label == predicted)
        labelled = np.stack([right, zero, weight])
        answered = np.stack([zero, weight, zero])[:, known]
        start = batch.code.astype(np.int64) * _MOST
        key = start + label.astype(np.int64)
        other = start[known] + predicted[known].astype(np.int64)
        self.slices = batch.slices
        self._append(np.append(key, other), np.append(labelled, answered, axis=1))

    def merge(self, later: ClassCounts, place: np.ndarray) -> None:
        """See `Curves.merge`."""
        slice_of, class_of = np.divmod(later._key, _MOST)
        self.slices = max(self.slices, int(place.max(initial=-1)) + 1)
        self._append(place[slice_of] * _MOST + class_of, later._sums)

    def by_class(self) -> tuple[np.ndarray, np.ndarray]:
        """The slice of each entry, and its rows found, predicted and labelled.

        Returns:
          int64 [entries] and float64 [3, entries].
        """
        return self._key // _MOST, self._sums

    def _append(self, key: np.ndarray, sums: np.ndarray) -> None:
        joined = np.append(self._sums, sums, axis=1)
        self._key, place = np.unique(np.append(self._key, key), return_inverse=True)
        place, entries = place.reshape(-1), len(self._key)
        totals = [np.bincount(place, each, entries) for each in joined]
        self._sums = np.stack(totals).astype(np.float64)
