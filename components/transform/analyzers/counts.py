"""Vocabularies: counts of tokens, in TFT's order and by its thresholds."""

from __future__ import annotations

import hashlib
import heapq
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import tensorflow as tf

from strategos.components.statistics.value_counts import ranked, summed
from strategos.components.transform.analyzers import tft_private

_LINES = 1 << 16  # written at a time

Pairs = Sequence[tuple[Any, Any]]
"""Count, or what stands for it, and token."""


class Counts:
    """Exact counts of tokens, or sums of their weights; they merge.

    Numbers are counted as their decimal texts, as they are written.
    """

    def __init__(self) -> None:
        self._parts: list[pa.Table] = []
        self._entries = self._distinct = 0

    def add(self, tokens: np.ndarray, weights: np.ndarray | None = None) -> None:
        """Counts tokens.

        Args:
          tokens: [n], of bytes or whole numbers; may repeat.
          weights: [n]; None for 1 each.
        """
        if tokens.dtype == object:
            values = pa.array(tokens, pa.large_binary())
        else:
            values = pa.array(tokens)
        if weights is None:
            counted = values.value_counts()
            values, weights = counted.field("values"), counted.field("counts")
        else:
            kind = np.int64 if np.issubdtype(weights.dtype, np.integer) else np.float64
            weights = pa.array(weights.astype(kind))
        if pa.types.is_integer(values.type):
            values = values.cast(pa.large_string())
        table = {"value": values.cast(pa.large_binary()), "count": weights}
        self._append(pa.table(table))

    def merge(self, later: Counts) -> Counts:
        """Adds the counts of later rows, and returns these counts."""
        for part in later._parts:
            self._append(part)
        return self

    def table(self) -> pa.Table:
        """`value` and `count`; each value once."""
        if not self._parts:
            nothing = pa.array([], pa.large_binary()), pa.array([], pa.int64())
            return pa.table(nothing, ["value", "count"])
        if len(self._parts) > 1 or self._distinct != self._entries:
            self._parts = [summed(pa.concat_tables(self._parts))]
            self._entries = self._distinct = self._parts[0].num_rows
        return self._parts[0]

    def _append(self, part: pa.Table) -> None:
        self._parts.append(part)
        self._entries += part.num_rows
        if self._entries > 2 * self._distinct + _LINES:
            self.table()


def information(
    means: dict[Any, Any], operation: Any
) -> list[tuple[tuple[float, float], Any]]:
    """Mutual information and frequency of tokens.

    Args:
      means: How often each label occurs with a token, by token; under a sentinel, in
        all rows.
      operation: `VocabularyMerge`.
    """
    kinds, ordering = tft_private.ordering, operation.vocab_ordering_type
    is_weighted = ordering == kinds.WEIGHTED_MUTUAL_INFORMATION
    mean = tft_private.WeightedMean((None,), compute_weighted=is_weighted)
    for _ in range(2):  # TFT rounds when it accumulates, and when it merges
        means = {
            token: mean.extract_output(mean.add_input(mean.create_accumulator(), each))
            for token, each in means.items()
        }
    sentinels = [token for token in means if token in tft_private.SENTINELS]
    if not sentinels:
        return []
    (everything,) = (means.pop(token) for token in sentinels)
    minimal = operation.min_diff_from_avg
    if minimal is None:
        rows = everything.count * everything.weight
        minimal = tft_private.minimal_difference(rows)
    found = []
    for pair in means.items():
        token, (value, _, frequency) = tft_private.information(
            pair, everything, operation.use_adjusted_mutual_info, minimal
        )
        found.append(((value, frequency), token))
    return found


def pruned(counts: pa.Table | Pairs, operation: Any) -> pa.Table | Pairs:
    """The entries of a vocabulary that its thresholds leave.

    Args:
      counts: Counts of all tokens.
      operation: `VocabularyPrune`.
    """
    if isinstance(counts, pa.Table) and operation.key_fn is None:
        return _pruned_table(counts, operation)
    pairs = _pairs(counts)
    kept = _passing(
        pairs, operation.frequency_threshold, operation.informativeness_threshold
    )
    if operation.top_k is not None:
        kept = _or_dummy(heapq.nlargest(operation.top_k, kept), operation.input_dtype)
    if operation.key_fn is None:
        return kept
    covering = _passing(
        pairs,
        operation.coverage_frequency_threshold,
        operation.coverage_informativeness_threshold,
    )
    if operation.coverage_top_k is not None:
        top, key = operation.coverage_top_k, operation.key_fn
        covering = list(_largest_by_key(covering, top, key))
    return list(dict.fromkeys([*kept, *covering]))


def _pruned_table(table: pa.Table, operation: Any) -> pa.Table | Pairs:
    if operation.frequency_threshold > 0:
        table = table.filter(pc.field("count") >= operation.frequency_threshold)
    if operation.top_k is None:
        return table
    table = ranked(table)[: operation.top_k]
    return table if table.num_rows else _or_dummy([], operation.input_dtype)


def _pairs(counts: pa.Table | Pairs) -> Pairs:
    if not isinstance(counts, pa.Table):
        return counts
    columns = counts["count"].to_pylist(), counts["value"].to_pylist()
    return list(zip(*columns, strict=True))


def _passing(counts: Pairs, frequency: float, informative: float) -> Pairs:
    """The pairs that reach two thresholds, with tokens as they are written."""
    found: list[tuple[Any, Any]] = []
    everything = frequency <= 0 and informative == -math.inf
    for value, token in counts:
        several = isinstance(value, tuple)
        often = value[1] if several else value
        reaches = often >= frequency and (not several or value[0] >= informative)
        if everything or reaches:  # NaN reaches nothing
            written = token if isinstance(token, bytes) else str(token).encode()
            found.append((value[0] if several else value, written))
    return found


def _largest_by_key(
    counts: Pairs, top: int, key: Callable[[bytes], Any]
) -> Iterator[tuple[Any, bytes]]:
    groups: dict[Any, list[Any]] = {}
    for pair in counts:
        groups.setdefault(key(pair[1]), []).append(pair)
    for group in groups.values():
        yield from heapq.nlargest(top, group)


def _or_dummy(pairs: Pairs, dtype: Any) -> Pairs:
    return pairs or [tft_private.empty_vocabulary(dtype)]


def write(
    counts: pa.Table | Pairs,
    operation: Any,
    reserved: Sequence[bytes] | None,
    folder: str,
) -> str:
    """Writes a vocabulary as TFT does, and returns its path.

    Args:
      counts: Result of `pruned`.
      operation: `VocabularyOrderAndWrite`.
      reserved: Tokens that come first, if any.
      folder: Folder that gets the file.
    """
    path = f"{folder}/{operation.vocab_filename}"
    lines = _lines(_ordered(counts, operation, reserved), operation.store_frequency)
    if operation.file_format == "text":
        with tf.io.gfile.GFile(path, "wb") as file:
            for some in lines:
                file.write(b"".join(line + b"\n" for line in some))
        return path
    path += ".tfrecord.gz"
    with tf.io.TFRecordWriter(path, "GZIP") as writer:
        for some in lines:
            for line in some:
                writer.write(line)
    return path


def _ordered(
    counts: pa.Table | Pairs, operation: Any, reserved: Sequence[bytes] | None
) -> pa.Table | Pairs:
    shuffled = operation.fingerprint_shuffle
    if isinstance(counts, pa.Table) and not shuffled and reserved is None and counts:
        return ranked(counts)
    if operation.input_is_sorted and reserved is None:
        return counts
    first = () if reserved is None else tuple(reserved)
    held = set(first)
    pairs = [pair for pair in _pairs(counts) if pair[1] not in held]
    if shuffled:
        pairs.sort(key=lambda pair: hashlib.sha1(pair[1]).digest())
    else:
        pairs.sort(reverse=True)
    pairs[:0] = [(-1, token) for token in first]
    return _or_dummy(pairs, operation.input_dtype)


def _lines(counts: pa.Table | Pairs, counted: bool) -> Iterator[Iterable[bytes]]:
    """Yields the lines of a vocabulary, some at a time."""
    for start in range(0, len(counts), _LINES):
        some = counts[start : start + _LINES]
        if isinstance(some, pa.Table):
            tokens, numbers = some["value"].to_pylist(), some["count"].to_pylist()
        else:
            numbers, tokens = zip(*some, strict=True)
        yield map(tft_private.line, numbers, tokens) if counted else tokens


def size(counts: pa.Table | Pairs) -> np.int64:
    """Number of entries; an empty vocabulary has one dummy entry."""
    return np.int64(max(len(counts), 1))
