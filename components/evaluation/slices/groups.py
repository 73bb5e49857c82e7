"""Sums by slice of one feature, which merge by the feature's values; numpy only."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from typing import Any

import numpy as np

from strategos.components.evaluation.classes.entries import SliceMembership
from strategos.components.evaluation.metrics import METRICS
from strategos.components.evaluation.slices import slicing
from strategos.components.evaluation.trivial import Labels


class Groups:
    """Sums by slice of one feature.

    Attributes:
      codes: Index of each slice, by value.
      rows: int64 [slices], number of rows.
      covered: Number of rows in one slice or more.
      weighted: float64 [slices], sum of the rows' weights; None without weights.
      labels: Counts of labels.
      models: Sums by model.
    """

    def __init__(
        self,
        labels: Labels,
        member: SliceMembership | None = None,
        weight: np.ndarray | None = None,
    ):
        values = member.values if member else []
        self.codes = {value: code for code, value in enumerate(values)}
        self.rows = np.zeros(0, np.int64)
        self.covered = 0
        self.weighted: np.ndarray | None = None
        self.labels = labels
        self.models: dict[str, ModelSums] = {}
        if member:
            self.rows = np.bincount(member.code, minlength=len(values))
            self.covered = len(np.unique(member.row))
        if member and weight is not None:
            self.weighted = np.bincount(member.code, weight[member.row], len(values))

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        # A dict finds a NaN only by identity, which pickling does not keep.
        items = self.codes.items()
        self.codes = {slicing.canonical(value): code for value, code in items}

    def has(self, keys: Set[str]) -> bool:
        """Whether each model has the sums.

        Args:
          keys: Their names.
        """
        return all(keys <= each.sums.keys() for each in self.models.values())

    def merge(self, later: Groups) -> None:
        """Adds the sums over other rows.

        Args:
          later: Sums over other rows; not to be used again.
        """
        codes = self.codes
        places = [codes.setdefault(value, len(codes)) for value in later.codes]
        place = np.array(places, np.int64)
        self.rows = merged(self.rows, later.rows, place)
        self.covered += later.covered
        if later.weighted is not None:
            mine = np.zeros(len(codes)) if self.weighted is None else self.weighted
            self.weighted = merged(mine, later.weighted, place)
        self.labels.merge(later.labels, place)
        for model, sums in later.models.items():
            self.models.setdefault(model, ModelSums()).merge(sums, place)


class Features:
    """Sums by slice of each feature; of features with too many slices, none.

    Args:
      most: Slices that a feature may have.

    Attributes:
      groups: Sums by feature; those over all rows by None.
      too_many: Features with more slices.
    """

    def __init__(self, most: int):
        self._most = most
        self.groups: dict[str | None, Groups] = {}
        self.too_many: set[str] = set()

    def add(self, feature: str | None, later: Groups) -> None:
        """Adds sums over other rows.

        Args:
          feature: The feature; None for all rows, whatever their number of slices.
          later: Sums over other rows; not to be used again.
        """
        if feature in self.too_many:
            return
        mine = self.groups.setdefault(feature, Groups(later.labels.empty()))
        mine.merge(later)
        if feature is not None and len(mine.codes) > self._most:
            self.too_many.add(feature)
            del self.groups[feature]

    def merge(self, later: Features) -> None:
        """Adds the sums over other rows.

        Args:
          later: Sums over other rows; not to be used again.
        """
        self.too_many |= later.too_many
        for feature, groups in later.groups.items():
            self.add(feature, groups)
        for feature in self.too_many:
            self.groups.pop(feature, None)

    def compact(self) -> None:
        """Makes the sums small and quick to merge."""
        for groups in self.groups.values():
            groups.labels.compact()
            for sums in groups.models.values():
                sums.compact()

    def selected(
        self, features: Sequence[str | None], keys: Set[str]
    ) -> Features | None:
        """The sums of some features, which share their arrays with these.

        Args:
          features: In the order in which slices are reported.
          keys: Names of the sums that are wanted.

        Returns:
          The sums; None if some are not there, though the feature has not too many
          slices.
        """
        chosen = Features(self._most)
        chosen.too_many = {each for each in self.too_many if each in features}
        for feature in features:
            if feature in self.too_many:
                continue
            groups = self.groups.get(feature)
            if groups is None or not groups.has(keys):
                return None
            chosen.groups[feature] = groups
        return chosen


class ModelSums:
    """Sums by slice of one feature and one model.

    Args:
      unknown: float64 [slices], numbers of rows with a prediction that is not finite.

    Attributes:
      sums: By `shares`, or by name of a metric.
    """

    def __init__(self, unknown: np.ndarray | None = None):
        self.unknown = np.zeros(0) if unknown is None else unknown
        self.sums: dict[str, Any] = {}

    def compact(self) -> None:
        """Makes the sums small and quick to merge."""
        for each in self.sums.values():
            each.compact()

    def merge(self, later: ModelSums, place: np.ndarray) -> None:
        """Adds the sums over other rows.

        Args:
          later: Sums over other rows; not to be used again.
          place: int [slices of `later`], the slice here of each slice there.
        """
        self.unknown = merged(self.unknown, later.unknown, place)
        for key, theirs in later.sums.items():
            self.sums.setdefault(key, theirs.empty()).merge(theirs, place)


class Arrays:
    """The sums of one metric that are arrays; with the methods of `curves.Curves`.

    Attributes:
      arrays: float64 [..., slices].
    """

    def __init__(self, metric: str, arrays: np.ndarray):
        self._metric, self.arrays = metric, arrays

    def empty(self) -> Arrays:
        """Sums over no rows."""
        return Arrays(self._metric, self.arrays[..., :0])

    def compact(self) -> None:
        """Arrays are small."""

    def merge(self, later: Arrays, place: np.ndarray) -> None:
        """See `ModelSums.merge`."""
        merge = METRICS[self._metric].merge
        self.arrays = merged(self.arrays, later.arrays, place, merge)


def merged(
    mine: np.ndarray,
    theirs: np.ndarray,
    place: np.ndarray,
    merge: Callable[[np.ndarray, np.ndarray], np.ndarray] = np.add,
) -> np.ndarray:
    """Both sums; `place` is the slice here of each slice of `theirs`."""
    had = mine.shape[-1]
    slices = max(had, int(place.max(initial=-1)) + 1)
    total = np.zeros((*theirs.shape[:-1], slices), theirs.dtype)
    total[..., :had] = mine
    known = place < had
    total[..., place[~known]] = theirs[..., ~known]
    at = place[known]
    total[..., at] = merge(mine[..., at], theirs[..., known])
    return total
