"""Counts of tokens on disk, where the distinct tokens grow with the rows.

A full table of counts is cut into parts by the tokens, and written to a file. A token
is in the same part of each file, so the parts are added up one at a time.
"""

from __future__ import annotations

import dataclasses
import heapq
import itertools
import uuid
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strategos.components.files import filesystems, storage
from strategos.components.shards import progress
from strategos.components.statistics.value_counts import ranked, summed

_BITS = 6
PARTS = 1 << _BITS
_AT_ONCE = 1 << 13  # rows of a part that are Python objects
# Groups of merged shards, shards that wait, and copies while a table is summed.
_TABLES = 16
_LEAST = 1 << 20

_OF_BYTES = np.random.default_rng(0).integers(0, 1 << 64, 256, np.uint64)
_STEP = 0x9E3779B97F4A7C15  # odd, so that multiplying by it can be undone
_BACK = pow(_STEP, -1, 1 << 64)


class Bounds:
    """The memory that tables of counts may take, and the place of the others.

    Args:
      folder: Folder for files, which all workers see: a path or URL.
      memory: Bytes for all tables of an analysis.

    Attributes:
      folder: As above.
      tables: Number of tables that each shard has.
    """

    def __init__(self, folder: str, memory: int):
        self.folder, self._memory, self.tables = folder, memory, 0

    @property
    def bytes(self) -> int:
        """Bytes that a table may take."""
        return max(_LEAST, self._memory // (_TABLES * max(1, self.tables)))


def spill(table: pa.Table, folder: str) -> str:
    """Writes counts to a file, part by part, and returns its path.

    Args:
      table: `value`, large binary, each once, and `count`.
      folder: Folder that gets the file.
    """
    parts = _parts(table["value"].combine_chunks())
    order = np.argsort(parts, kind="stable")
    edges = np.searchsorted(parts[order], np.arange(PARTS + 1))
    pieces = (order[start:end] for start, end in itertools.pairwise(edges))
    return write((table.take(pa.array(piece)) for piece in pieces), folder)


def merged(files: Sequence[str], folder: str) -> Ranked:
    """Adds up the counts of files, one part at a time.

    Args:
      files: From `spill`; at least one.
      folder: Local folder that gets the sums.
    """
    return ranked_parts((_sums(files, part) for part in range(PARTS)), folder)


def ranked_parts(
    parts: Iterable[pa.Table], folder: str, limit: int | None = None
) -> Ranked:
    """Orders the parts of a vocabulary, and writes each to disk.

    Args:
      parts: `PARTS` tables of `count` and `value`; together, each value once.
      folder: Local folder that gets the file.
      limit: See `Ranked`.
    """
    file = write(map(ranked, parts), folder)
    return Ranked([read(file, part) for part in range(PARTS)], limit)


def _sums(files: Sequence[str], part: int) -> pa.Table:
    progress.say(f"adding up counts on disk: part {part + 1} of {PARTS}")
    return summed(pa.concat_tables(read(file, part) for file in files))


@dataclasses.dataclass(frozen=True)
class Ranked:
    """A vocabulary in TFT's order that is not in memory as a whole.

    Iterated, it yields pairs of a count and a token.

    Args:
      parts: Tables, mapped from a file, each in order.
      limit: Number of entries that are left; None for all.
    """

    parts: Sequence[pa.Table]
    limit: int | None = None

    def __len__(self) -> int:
        entries = sum(part.num_rows for part in self.parts)
        return entries if self.limit is None else min(self.limit, entries)

    def __iter__(self) -> Iterator[tuple[Any, bytes]]:
        every = heapq.merge(*map(_pairs, self.parts), reverse=True)
        return itertools.islice(every, self.limit)

    def pruned(self, threshold: float, limit: int | None) -> Ranked:
        """The entries that TFT's thresholds leave.

        Args:
          threshold: Least count; no bound if it is not positive.
          limit: Largest number of entries, if bounded.
        """
        if threshold <= 0:
            return Ranked(self.parts, limit)
        often = (pc.greater_equal(part["count"], threshold) for part in self.parts)
        kept = zip(self.parts, map(pc.sum, often), strict=True)
        return Ranked([part[: n.as_py() or 0] for part, n in kept], limit)


def _pairs(part: pa.Table) -> Iterator[tuple[Any, bytes]]:
    for batch in part.to_batches(_AT_ONCE):
        counts, values = batch.column("count"), batch.column("value")
        yield from zip(counts.to_pylist(), values.to_pylist(), strict=True)


def _parts(values: pa.LargeBinaryArray) -> np.ndarray:
    """The part of each value, [n] of uint64: by a hash, equal in each process.

    The hash is a polynomial of the bytes modulo 2**64: each byte counts by its place.
    """
    _, offsets, content = values.buffers()
    window = slice(values.offset, values.offset + len(values) + 1)
    ends = np.frombuffer(offsets, np.int64)[window]
    numbers = np.zeros(len(values), np.uint64)
    for start in range(0, len(values), _AT_ONCE):
        some = ends[start : start + _AT_ONCE + 1]
        data = np.frombuffer(content or b"", np.uint8)[some[0] : some[-1]]
        hashes = _OF_BYTES[data] * _powers(_STEP, len(data))
        sums = np.append(np.uint64(0), np.cumsum(hashes))
        places = some - some[0]
        back = _powers(_BACK, len(data) + 1)[places[:-1]]
        numbers[start : start + _AT_ONCE] = np.diff(sums[places]) * back
    return numbers >> np.uint64(64 - _BITS)


def _powers(base: int, number: int) -> np.ndarray:
    """The powers of `base` from 0 on, [number] of uint64, modulo 2**64."""
    factors = np.full(number, base, np.uint64)
    factors[:1] = 1
    return np.cumprod(factors)


def write(parts: Iterable[pa.Table], folder: str) -> str:
    """Writes each part as a batch of a file, and returns its path.

    Args:
      parts: `PARTS` tables of the same columns.
      folder: Folder that gets the file: a path or URL.
    """
    parts = iter(parts)
    first = next(parts)
    path = f"{folder}/counts-{uuid.uuid4().hex}.arrow"
    with storage.create(path) as file, pa.ipc.new_file(file, first.schema) as writer:
        for part in itertools.chain([first], parts):
            columns = [column.combine_chunks() for column in part.columns]
            writer.write_batch(pa.RecordBatch.from_arrays(columns, part.schema.names))
    return path


def read(file: str, part: int) -> pa.Table:
    """A part of a file; of a local one, in pages that the system may drop.

    Args:
      file: From `write`.
      part: Number of the part.
    """
    opened = storage.open_arrow if filesystems.is_remote(file) else pa.memory_map
    with opened(file) as source, pa.ipc.open_file(source) as reader:
        return pa.Table.from_batches([reader.get_batch(part)])
