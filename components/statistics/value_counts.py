"""Counts of the distinct values of a feature in bounded memory; they merge.

Exact while the distinct values are at most `EXACT_VALUES` and take at most
`EXACT_BYTES`: that depends on the values alone, not on how they are cut or merged. Of
more values, the most frequent are kept. Each count is then a lower bound, too low by at
most `error`, as in lossy counting (Manku & Motwani 2002).
The number of distinct values is estimated from the smallest hashes (Bar-Yossef et al.
2002), with a relative standard error of `UNIQUE_ERROR`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from tfx_bsl.sketches import KmvSketch

EXACT_VALUES = 1 << 18
EXACT_BYTES = 16 << 20

_HASHES = 1 << 14
UNIQUE_ERROR = 1 / math.sqrt(_HASHES - 2)


class ValueCounts:
    """Counts by value.

    Attributes:
      error: Largest number of times that a value can have occurred beyond its count,
        or at all if it is not kept; 0 if all counts are exact.
    """

    def __init__(self) -> None:
        self.error: float = 0
        self._parts: list[pa.Table] = []
        self._entries = self._bytes = 0
        self._hashes: KmvSketch | None = None  # None as long as all values are kept

    def add(self, values: pa.Array, weights: np.ndarray | None = None) -> None:
        """Counts values.

        Args:
          values: Binary values without nulls; may repeat.
          weights: float64 [values], how much each value counts; None for 1.
        """
        if weights is None:
            counted = values.value_counts()
            names, counts = counted.field("values"), counted.field("counts")
        else:
            encoded = values.dictionary_encode()
            names, codes = encoded.dictionary, encoded.indices.to_numpy()
            sums = np.bincount(codes, weights, len(names))
            counts = pa.array(sums.astype(np.float64))  # of no values, it is int64
        names = names.cast(pa.large_binary())
        self._append(pa.table({"value": names, "count": counts}))

    def merge(self, later: ValueCounts) -> None:
        """Adds the counts of other rows; `later` is not to be used again."""
        self.error += later.error
        if self._hashes is None:
            self._hashes = later._hashes
        elif later._hashes is not None:
            self._hashes.Merge(later._hashes)
        for part in later._parts:
            self._append(part)

    def compact(self) -> None:
        """Takes no more memory than needed from now on."""
        if not self._parts:
            return
        table = summed(pa.concat_tables(self._parts))
        is_full = _is_full(table.num_rows, _size(table))
        if is_full and self._hashes is None:
            self._hashes = KmvSketch(_HASHES)
        if self._hashes is not None:
            self._hashes.AddValues(table["value"].combine_chunks())
        if is_full:
            table = self._most_frequent(table)
        self._parts, self._entries, self._bytes = [table], table.num_rows, _size(table)

    def unique(self) -> int:
        """Number of distinct values; estimated if `error` is not 0."""
        self.compact()
        return self._entries if self._hashes is None else self._hashes.Estimate()

    def top(self, number: int) -> Iterator[tuple[bytes, float]]:
        """Yields the most frequent values with their counts.

        Of equally frequent values, the last in sorted order come first, as in TFDV. A
        value that may be no more frequent than a dropped value is left out.

        Args:
          number: Number of values.
        """
        self.compact()
        if self._parts:
            rows = ranked(self._parts[0])[:number].to_pylist()
            pairs = ((row["value"], row["count"]) for row in rows)
            yield from (x for x in pairs if not self.error or x[1] > self.error)

    def _append(self, part: pa.Table) -> None:
        self._parts.append(part)
        self._entries += part.num_rows
        self._bytes += _size(part)
        if _is_full(self._entries / 2, self._bytes / 2):
            self.compact()

    def _most_frequent(self, table: pa.Table) -> pa.Table:
        """As many values as take half of the space."""
        table = ranked(table)
        sizes = np.cumsum(pc.binary_length(table["value"]).to_numpy())
        fitting = int(np.searchsorted(sizes, EXACT_BYTES // 2, side="right"))
        kept = min(fitting, EXACT_VALUES // 2)
        self.error += table["count"][kept].as_py()
        return table[:kept].take(pa.array(np.arange(kept)))  # a slice holds all


def _is_full(entries: float, size: float) -> bool:
    return entries > EXACT_VALUES or size > EXACT_BYTES


def summed(table: pa.Table) -> pa.Table:
    """One row for each value.

    Args:
      table: `value` of a binary type, and `count`, int64 or float64, which is summed
        row by row.
    """
    values = table["value"].combine_chunks().dictionary_encode()
    added = table["count"].to_numpy()
    counts = np.zeros(len(values.dictionary), added.dtype)
    np.add.at(counts, values.indices.to_numpy(), added)
    return pa.table({"value": values.dictionary, "count": counts})


def ranked(table: pa.Table) -> pa.Table:
    """The rows by falling count, equal ones by falling value, as TFDV and TFT sort."""
    keys = [("count", "descending"), ("value", "descending")]
    return table.take(pc.sort_indices(table, sort_keys=keys))


def _size(table: pa.Table) -> int:
    """Bytes of the values."""
    return pc.sum(pc.binary_length(table["value"])).as_py() or 0
