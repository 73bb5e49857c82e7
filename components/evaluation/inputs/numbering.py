"""Which classes of two numberings are the same rows; numpy only.

A vocabulary is ordered by frequency, so new data may exchange the numbers of classes,
and a class that is gone moves those behind it. The rows of all shards tell: a class
that has exactly the rows of another number is that class.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

_MODULO = 1 << 64


@dataclass(frozen=True)
class Numbering:
    """The rows of each class, by two numberings of the classes.

    The rows of a class are the sum of their random bits, modulo 2**64, so that shards
    merge: equal sums are equal rows. Classes without rows are missing.

    Attributes:
      other: By class, as the other model numbers them.
      own: By class, as the candidate numbers them.
    """

    other: Mapping[float, int] = field(default_factory=dict)
    own: Mapping[float, int] = field(default_factory=dict)

    @classmethod
    def of(cls, bits: np.ndarray, other: np.ndarray, own: np.ndarray) -> Numbering:
        """The classes of some rows.

        Args:
          bits: uint64 [rows], random; equal for equal rows.
          other: float64 [rows], the class of each row; or [rows, classes] of 0 and 1.
          own: As `other`, by the candidate.
        """
        return cls(_sums(bits, other), _sums(bits, own))

    def merge(self, later: Numbering) -> Numbering:
        """The classes of these and of other rows."""
        return Numbering(_merged(self.other, later.other), _merged(self.own, later.own))

    @property
    def moved(self) -> tuple[float, float] | None:
        """A class that has another number in the candidate: both numbers, or None.

        None if a model gives all rows one class, which shows no order; and for bins
        with moved edges, where a part of a class is in another one.
        """
        if min(len(self.other), len(self.own)) < 2:
            return None
        places = {rows: number for number, rows in self.own.items()}
        for number, rows in self.other.items():
            if rows in places and self.own.get(number) != rows:
                return number, places[rows]
        return None


def _sums(bits: np.ndarray, classes: np.ndarray) -> dict[float, int]:
    if classes.ndim > 1:
        numbers = np.arange(classes.shape[1], dtype=np.float64)
        counted = np.where(classes == 1, bits[:, np.newaxis], np.uint64(0))
        sums = counted.sum(axis=0, dtype=np.uint64)
    else:
        known = classes >= 0  # -1 is a value that no class has, and NaN none at all
        numbers, place = np.unique(classes[known], return_inverse=True)
        sums = np.zeros(len(numbers), np.uint64)
        np.add.at(sums, place.reshape(-1), bits[known])
    pairs = zip(numbers.tolist(), sums.tolist(), strict=True)
    return {number: rows for number, rows in pairs if rows}


def _merged(mine: Mapping[float, int], theirs: Mapping[float, int]) -> dict[float, int]:
    sums = dict(mine)
    for number, rows in theirs.items():
        sums[number] = (sums.get(number, 0) + rows) % _MODULO
    return sums
