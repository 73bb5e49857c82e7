"""Counts the rows of a split that are also in an earlier split.

Rows are compared by a hash of their serialized tf.Example: equal rows have equal bytes.
Memory is bounded: of more than `EXACT_ROWS` different rows, the rows with the smallest
hashes are kept, and the count is an estimate. The kept rows depend on the rows alone,
not on how they are cut or merged.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
import pyarrow as pa

EXACT_ROWS = 1 << 18


@dataclasses.dataclass(frozen=True)
class Shared:
    """Rows of a split that are identical to a row of an earlier split.

    Attributes:
      rows: Number of the rows.
      exact: Whether the number is exact; else it is an estimate.
    """

    rows: int
    exact: bool


class RowHashes:
    """Hashes of the rows of all splits, with their numbers.

    Args:
      splits: Names of the splits, in order.
    """

    def __init__(self, splits: Sequence[str]) -> None:
        self._splits = tuple(splits)
        self._halvings = 0
        self._hashes = np.zeros(0, np.uint64)
        self._counts = np.zeros((0, len(splits)), np.int64)  # by hash and split
        self._waiting: list[tuple[np.ndarray, np.ndarray]] = []  # hashes, counts
        self._waiting_rows = 0

    def add(self, records: pa.ChunkedArray, masks: Mapping[str, np.ndarray]) -> None:
        """Adds rows.

        Args:
          records: binary[rows], serialized tf.Examples.
          masks: bool[rows] by split, whether each row is in it.
        """
        if len(records):
            hashes = pd.util.hash_array(records.to_numpy(), categorize=False)
            counts = np.stack([masks[split] for split in self._splits], axis=1)
            if self._halvings:
                kept = hashes <= self._limit
                hashes, counts = hashes[kept], counts[kept]
            self._append(hashes, counts.astype(np.int64))

    def merge(self, later: RowHashes) -> RowHashes:
        """Adds the rows of later shards; returns itself."""
        later.compact()
        self._halvings = later._halvings = max(self._halvings, later._halvings)
        later._leave_out()  # the more shards, the fewer rows of each are left
        # Copies, as the few rows that are left would keep the others in memory.
        self._append(later._hashes.copy(), later._counts.copy())
        return self

    def shared(self, split: str) -> Shared:
        """The rows of a split that are identical to a row of an earlier split.

        Args:
          split: Name of the split.
        """
        self.compact()
        place = self._splits.index(split)
        earlier = self._counts[:, :place].any(axis=1)
        rows = int(self._counts[earlier, place].sum())
        return Shared(rows << self._halvings, exact=not self._halvings)

    @property
    def _limit(self) -> np.uint64:
        """The largest hash that is kept."""
        return np.uint64((1 << (64 - self._halvings)) - 1)

    def _append(self, hashes: np.ndarray, counts: np.ndarray) -> None:
        if not len(hashes):
            return
        self._waiting.append((hashes, counts))
        self._waiting_rows += len(hashes)
        if self._waiting_rows > EXACT_ROWS:
            self.compact()

    def compact(self) -> None:
        """Keeps each hash once, and at most `EXACT_ROWS` hashes."""
        if not self._waiting:
            return
        parts = [(self._hashes, self._counts), *self._waiting]
        hashes, counts = (np.concatenate(each) for each in zip(*parts, strict=True))
        self._hashes, places = np.unique(hashes, return_inverse=True)
        sums = [np.bincount(places, each, len(self._hashes)) for each in counts.T]
        self._counts = np.stack(sums, axis=1).astype(np.int64)
        self._waiting, self._waiting_rows = [], 0
        self._leave_out()
        while len(self._hashes) > EXACT_ROWS:
            self._halvings += 1
            self._leave_out()

    def _leave_out(self) -> None:
        """Drops the hashes beyond the limit; they are sorted."""
        kept = int(np.searchsorted(self._hashes, self._limit, side="right"))
        self._hashes, self._counts = self._hashes[:kept], self._counts[:kept]
