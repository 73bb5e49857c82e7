"""A metric of TFMA or Keras in the place of one of ours: slices, weights, bounds."""

from __future__ import annotations

import json
from typing import Any

from strategos.components.errors import required
from strategos.components.evaluation.library.names import parsed
from strategos.components.evaluation.metrics import TASKS, Batch, Metric, probability
from strategos.components.slow_imports import np


class ByClass(Metric):
    """A metric that TFMA computes row by row.

    Args:
      name: As `names.spelled` returns it.
    """

    tasks = tuple(task for task in TASKS if task != "reconstruction")  # no one label
    shows_learning = False
    undefined_by_answers = "TFMA gives no number for these rows"

    def __init__(self, name: str):
        named = required(parsed(name))
        self._name = name
        self.tfma, self.tfma_config = named.class_name, named.config  # type: ignore[misc]
        self.description = f"{named.class_name}, as TFMA computes it"  # type: ignore[misc]

    def sums(self, batch: Batch) -> Accumulators:
        """See `Metric`.

        Raises:
          UserError: See `computation.Computation`.
        """
        named = required(parsed(self._name))
        config = json.dumps(named.config, sort_keys=True)
        sums = Accumulators(named.class_name, config, batch.weight is not None)
        sums.add(batch)
        return sums

    def finish(self, sums: Accumulators) -> np.ndarray:
        """See `Metric`."""
        return sums.values()


class Accumulators:
    """Accumulators of TFMA's combiners, by slice.

    Args:
      class_name: Name of the class.
      config: Its arguments as JSON.
      weighted: Whether rows have weights.
    """

    def __init__(self, class_name: str, config: str, weighted: bool):
        self._of = class_name, config, weighted
        self._slices: list[list[Any]] = []

    def add(self, batch: Batch) -> None:
        """Adds rows; rows with predictions that are not finite are left out."""
        labels, predictions = _labels(batch), _predictions(batch)
        weight, code = batch.weight, batch.code
        if weight is not None:
            weight = weight.astype(np.float32)
        if batch.classes > 1:
            weight = None if weight is None else weight[:: batch.classes]
            code = code[:: batch.classes]
        known = np.isfinite(predictions).all(axis=1)
        self._grow(batch.slices)
        order = np.argsort(np.where(known, code, -1), kind="stable")
        order = order[np.count_nonzero(~known) :]
        first = np.searchsorted(code[order], np.arange(batch.slices + 1))
        for i in range(batch.slices):
            rows = order[first[i] : first[i + 1]]
            weights = None if weight is None else weight[rows]
            self._slices[i] = self._computation.add(
                self._slices[i], labels[rows], predictions[rows], weights
            )

    def empty(self) -> Accumulators:
        """Accumulators of no rows."""
        return Accumulators(*self._of)

    def compact(self) -> None:
        """Adds up the rows that wait in accumulators."""
        self._slices = [*map(self._computation.compact, self._slices)]

    def merge(self, later: Accumulators, place: np.ndarray) -> None:
        """Adds other rows.

        Args:
          later: Accumulators of other rows; must not be used again.
          place: int [slices of `later`], the slice here of each slice there.
        """
        self._grow(int(place.max(initial=-1)) + 1)
        for i, theirs in zip(place, later._slices, strict=True):
            self._slices[i] = self._computation.merge([self._slices[i], theirs])

    def values(self) -> np.ndarray:
        """The metric by slice, float64 [slices]."""
        return np.array([*map(self._computation.value, self._slices)], np.float64)

    def _grow(self, slices: int) -> None:
        for _ in range(slices - len(self._slices)):
            self._slices.append(self._computation.empty())

    @property
    def _computation(self) -> Any:
        # TFMA takes seconds to import, and config validation imports this module.
        from strategos.components.evaluation.library import computation

        return computation.of(*self._of)


def _labels(batch: Batch) -> np.ndarray:
    """The labels in the dtype in which TFMA reads them, [rows, classes]."""
    kind = np.float32 if batch.task == "regression" else np.int64
    return batch.label.astype(kind).reshape(-1, batch.classes)


def _predictions(batch: Batch) -> np.ndarray:
    """The predictions, float32 [rows, n]."""
    if batch.task != "multi_class":
        return batch.prediction.astype(np.float32).reshape(-1, batch.classes)
    count = sum(name.startswith(probability("")) for name in batch.columns)
    columns = [batch.columns[probability(i)] for i in range(count)]
    return np.stack(columns, axis=1).astype(np.float32)
