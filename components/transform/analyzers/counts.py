"""Vocabularies: counts of tokens, in TFT's order and by its thresholds."""

from __future__ import annotations

import hashlib
import heapq
import io
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import tensorflow as tf

from strategos.components.shards import progress
from strategos.components.statistics.value_counts import ranked, summed
from strategos.components.transform.analyzers import spilled, tft_private
from strategos.components.transform.analyzers.spilled import Bounds, Ranked

_LINES = 1 << 16  # written at a time

Pairs = Sequence[tuple[Any, Any]]
"""Count, or what stands for it, and token."""
_Columns: TypeAlias = tuple[Sequence[Any], Sequence[Any]]
Counted: TypeAlias = pa.Table | Ranked | Pairs


class Counts:
    """Exact counts of tokens, or sums of their weights; they merge.

    Numbers are counted as their decimal texts, as they are written.

    Args:
      bounds: Where counts go that take too much memory.
    """

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._parts: list[pa.Table] = []
        self._files: list[str] = []
        self._entries = self._distinct = self._bytes = 0

    def add(self, values: pa.Array, weights: np.ndarray | None = None) -> None:
        """Counts tokens.

        Args:
          values: [n], large binary or whole numbers, without nulls; may repeat.
          weights: [n]; None for 1 each.
        """
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
        self._files += later._files
        for part in later._parts:
            self._append(part)
        return self

    def compact(self) -> Counts:
        """Takes no more memory than needed from now on; returns these counts."""
        if self._parts and (len(self._parts) > 1 or self._distinct != self._entries):
            self._parts = [summed(pa.concat_tables(self._parts))]
            self._entries = self._distinct = self._parts[0].num_rows
            self._bytes = self._parts[0].nbytes
        if self._bytes > self._bounds.bytes:
            self._spill()
        return self

    def packed(self, most: int) -> bytes | None:
        """The counts as an Arrow stream; None if they are on disk or larger.

        Args:
          most: Bytes of the counts in memory.
        """
        self.compact()
        if self._files or self._bytes > most:
            return None
        sink, options = io.BytesIO(), pa.ipc.IpcWriteOptions(compression="lz4")
        for part in self._parts:
            with pa.ipc.new_stream(sink, part.schema, options=options) as stream:
                stream.write_table(part)
        return sink.getvalue()

    def unpack(self, packed: bytes) -> None:
        """Takes the counts of `packed`; there are none yet."""
        if packed:
            with pa.ipc.open_stream(packed) as stream:
                self._append(stream.read_all())
            self._distinct = self._entries

    def total(self, folder: str) -> pa.Table | Ranked:
        """`value` and `count`, each value once; in order if they were on disk.

        Args:
          folder: Local folder for sums that take too much memory.
        """
        self.compact()
        if self._files:
            if self._parts:
                self._spill()
            return spilled.merged(self._files, folder)
        if self._parts:
            return self._parts[0]
        nothing = pa.array([], pa.large_binary()), pa.array([], pa.int64())
        return pa.table(nothing, ["value", "count"])

    def _append(self, part: pa.Table) -> None:
        self._parts.append(part)
        self._entries += part.num_rows
        self._bytes += part.nbytes
        is_many = self._entries > 2 * self._distinct + _LINES
        if is_many or self._bytes > 2 * self._bounds.bytes:
            self.compact()

    def _spill(self) -> None:
        self._files.append(spilled.spill(self._parts[0], self._bounds.folder))
        self._parts, self._entries, self._distinct, self._bytes = [], 0, 0, 0


def pruned(counts: Counted, operation: Any) -> Counted:
    """The entries of a vocabulary that its thresholds leave.

    Args:
      counts: Counts of all tokens.
      operation: `VocabularyPrune`.
    """
    if isinstance(counts, pa.Table | Ranked) and operation.key_fn is None:
        return _pruned_counts(counts, operation)
    pairs = _pairs(counts)
    kept = passing(
        pairs, operation.frequency_threshold, operation.informativeness_threshold
    )
    if operation.top_k is not None:
        kept = or_dummy(heapq.nlargest(operation.top_k, kept), operation.input_dtype)
    if operation.key_fn is None:
        return kept
    covering = passing(
        pairs,
        operation.coverage_frequency_threshold,
        operation.coverage_informativeness_threshold,
    )
    if operation.coverage_top_k is not None:
        top, key = operation.coverage_top_k, operation.key_fn
        covering = list(_largest_by_key(covering, top, key))
    return list(dict.fromkeys([*kept, *covering]))


def _pruned_counts(counts: pa.Table | Ranked, operation: Any) -> Counted:
    least, top = operation.frequency_threshold, operation.top_k
    if isinstance(counts, Ranked):
        counts = counts.pruned(least, top)
    else:
        if least > 0:
            counts = counts.filter(pc.field("count") >= least)
        if top is not None:
            counts = ranked(counts)[:top]
    if top is None or len(counts):
        return counts
    return or_dummy([], operation.input_dtype)


def _pairs(counts: Counted) -> Pairs:
    if not isinstance(counts, pa.Table):
        return list(counts)
    columns = counts["count"].to_pylist(), counts["value"].to_pylist()
    return list(zip(*columns, strict=True))


def passing(counts: Pairs, frequency: float, informative: float) -> Pairs:
    """The pairs that reach two thresholds, with tokens as they are written.

    Args:
      counts: The pairs; a first element of two is information and frequency.
      frequency: Least frequency.
      informative: Least information.
    """
    passing: list[tuple[Any, Any]] = []
    everything = frequency <= 0 and informative == -math.inf
    for value, token in counts:
        several = isinstance(value, tuple)
        often = value[1] if several else value
        reaches = often >= frequency and (not several or value[0] >= informative)
        if everything or reaches:  # NaN reaches nothing
            written = token if isinstance(token, bytes) else str(token).encode()
            passing.append((value[0] if several else value, written))
    return passing


def _largest_by_key(
    counts: Pairs, top: int, key: Callable[[bytes], Any]
) -> Iterator[tuple[Any, bytes]]:
    groups: dict[Any, list[Any]] = {}
    for pair in counts:
        groups.setdefault(key(pair[1]), []).append(pair)
    for group in groups.values():
        yield from heapq.nlargest(top, group)


def or_dummy(pairs: Pairs, dtype: Any) -> Pairs:
    """The pairs, or TFT's entry of an empty vocabulary.

    Args:
      pairs: The pairs.
      dtype: Type of the tokens.
    """
    return pairs or [tft_private.empty_vocabulary(dtype)]


def write(
    counts: Counted,
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
    ordered = _said(_columns(_ordered(counts, operation, reserved)), operation)
    lines = _lines(ordered, operation.store_frequency)
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
    counts: Counted, operation: Any, reserved: Sequence[bytes] | None
) -> pa.Table | Iterable[tuple[Any, Any]]:
    shuffled, on_disk = operation.fingerprint_shuffle, isinstance(counts, Ranked)
    if reserved is None and not shuffled and len(counts):
        if isinstance(counts, pa.Table):
            return ranked(counts)
        if on_disk or operation.input_is_sorted:
            return counts
    first = () if reserved is None else tuple(reserved)
    held = set(first)
    every = counts if on_disk else _pairs(counts)
    pairs: Iterable[Any] = (pair for pair in every if pair[1] not in held)
    if shuffled:
        pairs = sorted(pairs, key=lambda pair: hashlib.sha1(pair[1]).digest())
    elif not on_disk:
        pairs = sorted(pairs, reverse=True)
    if not first and not len(counts):
        return or_dummy([], operation.input_dtype)
    return itertools.chain(((-1, token) for token in first), pairs)


def _lines(columns: Iterable[_Columns], counted: bool) -> Iterator[Iterable[bytes]]:
    """Yields the lines of a vocabulary, some at a time."""
    for numbers, tokens in columns:
        yield map(tft_private.line, numbers, tokens) if counted else tokens


def _said(columns: Iterable[_Columns], operation: Any) -> Iterator[_Columns]:
    """Yields `columns`, and reports how many tokens they had."""
    tokens = 0
    for some in columns:
        yield some
        tokens += len(some[1])
        progress.say(f"writing {operation.vocab_filename}: {tokens:,} tokens")


def _columns(
    counts: pa.Table | Iterable[tuple[Any, Any]],
) -> Iterator[_Columns]:
    if isinstance(counts, pa.Table):
        for start in range(0, len(counts), _LINES):
            some = counts[start : start + _LINES]
            yield some["count"].to_pylist(), some["value"].to_pylist()
        return
    pairs = iter(counts)
    while lines := list(itertools.islice(pairs, _LINES)):
        numbers, tokens = zip(*lines, strict=True)
        yield numbers, tokens


def size(counts: Counted) -> np.int64:
    """Number of entries; an empty vocabulary has one dummy entry."""
    return np.int64(max(len(counts), 1))
