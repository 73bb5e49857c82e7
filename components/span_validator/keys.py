"""Checks the keys of a span: that no two rows have the same, or that a file has each.

Keys are compared by hashes of 64 bits, of so many at a time that memory does not grow
with the rows, and the hashes that repeat are looked up in the rows.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from strategos.components.data_files import shards
from strategos.components.data_files.findings.rejected import Rejected, accepted_rows
from strategos.components.data_files.pieces import Piece, Shard
from strategos.components.data_files.spans import Span
from strategos.components.data_files.splitting import key_in
from strategos.components.data_files.values import numerals
from strategos.components.data_files.values.kinds import Kind
from strategos.components.errors import Place, UserError
from strategos.components.span_validator.gate import Check
from strategos.components.span_validator.measure import Reader
from strategos.components.wording import choices, did_you_mean

_NAME = "keys"
_ROWS_AT_ONCE = 1 << 23  # with hashes in memory: 64 MB
_SEPARATOR = b"\x1f"
_SHOWN = 3  # keys


def judge(
    reader: Reader,
    span: Span,
    rows: int,
    settings: Mapping[str, Mapping[str, Any]],
    others: Mapping[str, str],
) -> Iterator[Check]:
    """Yields a check for each key.

    Args:
      reader: The reader of spans.
      span: The span.
      rows: Its number of rows.
      settings: `gates.keys`.
      others: As for `usual_spans.judged`.

    Raises:
      UserError: Such a file cannot be read, or lacks a column.
    """
    runner = shards.ShardRunner(reader.engine, reader.folder)
    kinds, nulls, data = reader.kinds(runner, span)
    for key, each in settings.items():
        file = others.get(f"gates.keys.{key}.file")
        columns = tuple(each["columns"])
        name = ", ".join(columns)
        absent = [column for column in columns if column not in kinds]
        if absent:
            note = f"no column {choices(absent)}"
            yield Check(_NAME, span.number, False, name, note=note)
            continue
        keys = _Keys(columns, kinds, nulls)
        if file:
            names = tuple(each["file_columns"]) or columns
            known = _of_file(runner, reader, file, names, f"gates.keys.{key}")
            count, note = _unknown(runner, data, keys, rows, *known)
        else:
            count, note = _repeated(runner, data, keys, rows)
        yield Check(_NAME, span.number, not count, name, count, "at_most", 0, note)


@dataclasses.dataclass(frozen=True)
class _Keys:
    """The keys of rows: the values of some columns, by `spelling.key_of`.

    Attributes:
      columns: The columns.
      kinds: Kind of each column of the data.
      nulls: Spellings of a missing value in columns of numbers.
    """

    columns: tuple[str, ...]
    kinds: Mapping[str, Kind]
    nulls: numerals.Nulls

    def of(self, shard: Shard) -> Iterator[_Batch]:
        """Yields the rows of a shard that have a key.

        Raises:
          UserError: A column has lists, or a file is malformed.
        """
        arguments = self.kinds, self.nulls, "gates.keys"
        for piece in map(Piece.fresh, shard.pieces):
            batches = accepted_rows(piece, *arguments[:2], Rejected(), self.columns)
            for first, batch in batches:
                parts = [key_in(batch, name, *arguments) for name in self.columns]
                keys = pc.binary_join_element_wise(*parts, _SEPARATOR)
                there = keys.is_valid().to_numpy(zero_copy_only=False)
                yield _Batch(piece, first + np.flatnonzero(there), keys.drop_null())


class _Batch(NamedTuple):
    """Rows with a key.

    Attributes:
      piece: The piece that they are from.
      rows: Their indices in the piece, int64[rows].
      keys: binary[rows].
    """

    piece: Piece
    rows: np.ndarray
    keys: pa.BinaryArray

    @property
    def hashes(self) -> np.ndarray:
        """uint64[rows]"""
        keys = self.keys.to_numpy(zero_copy_only=False)
        return pd.util.hash_array(keys, categorize=False)

    def place(self, index: int) -> str:
        """File and line of a row."""
        return self.piece.place(int(self.rows[index]))


@dataclasses.dataclass
class _Seen:
    """Hashes of keys.

    Attributes:
      hashes: uint64[keys], ascending, each once.
      repeated: Number of rows with the key of an earlier row.
      some: Some of the hashes that repeat.
    """

    hashes: np.ndarray
    repeated: int
    some: frozenset[int]

    @classmethod
    def of(cls, hashes: np.ndarray) -> _Seen:
        """Counts rows by the hashes of their keys."""
        hashes = np.sort(hashes)
        again = hashes[1:] == hashes[:-1]
        some = frozenset(hashes[1:][again][:_SHOWN].tolist())
        first = np.concatenate([np.ones(min(len(hashes), 1), bool), ~again])
        return cls(hashes[first], int(again.sum()), some)

    def merge(self, later: _Seen) -> _Seen:
        """Adds later rows."""
        both = _Seen.of(np.concatenate([self.hashes, later.hashes]))
        some = frozenset(sorted(self.some | later.some | both.some)[:_SHOWN])
        repeated = self.repeated + later.repeated + both.repeated
        return _Seen(both.hashes, repeated, some)


@dataclasses.dataclass(frozen=True)
class _Count:
    """Counts the keys of a shard, as far as their hashes belong to one of `parts`."""

    keys: _Keys
    part: int
    parts: int

    def __call__(self, shard: Shard) -> _Seen:
        result = [np.zeros(0, np.uint64)]
        for hashes in (batch.hashes for batch in self.keys.of(shard)):
            result.append(hashes[hashes % np.uint64(self.parts) == self.part])
        return _Seen.of(np.concatenate(result))


@dataclasses.dataclass(frozen=True)
class _Find:
    """Finds the first rows with keys of some hashes; places by key, two at most."""

    keys: _Keys
    hashes: frozenset[int]

    def __call__(self, shard: Shard) -> dict[bytes, list[str]]:
        wanted = np.array(sorted(self.hashes), np.uint64)
        places: dict[bytes, list[str]] = {}
        for batch in self.keys.of(shard):
            for index in np.flatnonzero(np.isin(batch.hashes, wanted)).tolist():
                known = places.setdefault(batch.keys[index].as_py(), [])
                if len(known) < 2:
                    known.append(batch.place(index))
        return places


@dataclasses.dataclass
class _Unknown:
    """Rows with a key that a file lacks.

    Attributes:
      rows: Number of the rows.
      first: The first ones, each with its key and place.
    """

    rows: int = 0
    first: list[str] = dataclasses.field(default_factory=list)

    def merge(self, later: _Unknown) -> _Unknown:
        """Adds later rows."""
        first = [*self.first, *later.first][:_SHOWN]
        return _Unknown(self.rows + later.rows, first)


@dataclasses.dataclass(frozen=True)
class _Compare:
    """Finds the rows of a shard with keys of other hashes; see `_Count`."""

    keys: _Keys
    known: np.ndarray
    part: int
    parts: int

    def __call__(self, shard: Shard) -> _Unknown:
        result = _Unknown()
        for batch in self.keys.of(shard):
            hashes = batch.hashes
            own = hashes % np.uint64(self.parts) == self.part
            unknown = np.flatnonzero(own & ~np.isin(hashes, self.known))
            result.rows += len(unknown)
            for index in unknown[: _SHOWN - len(result.first)].tolist():
                text = _text(batch.keys[index].as_py())
                result.first.append(f"{text} in {batch.place(index)}")
        return result


def _first_places(
    earlier: dict[bytes, list[str]], later: dict[bytes, list[str]]
) -> dict[bytes, list[str]]:
    return {
        key: [*earlier.get(key, ()), *later.get(key, ())][:2] for key in earlier | later
    }


def _repeated(
    runner: shards.ShardRunner, data: Sequence[Shard], keys: _Keys, rows: int
) -> tuple[int, str]:
    """The number of rows with the key of an earlier row, and a note that names some."""
    parts = _parts(rows)
    repeated, some = 0, frozenset[int]()
    for part in range(parts):
        seen = runner.fold(data, _Count(keys, part, parts), _Seen.merge)
        repeated, some = repeated + seen.repeated, some | seen.some
    note = f"{repeated:,} of {rows:,} rows have the key of an earlier one"
    if not repeated:
        return 0, note
    some = frozenset(sorted(some)[:_SHOWN])
    places = runner.fold(data, _Find(keys, some), _first_places)
    shown = [
        f"{_text(key)} in {' and '.join(two)}"
        for key, two in places.items()
        if len(two) == 2
    ]
    return repeated, f"{note}: {'; '.join(shown)}"


def _of_file(
    runner: shards.ShardRunner,
    reader: Reader,
    pattern: str,
    columns: tuple[str, ...],
    setting: str,
) -> tuple[_Keys, list[Shard], str]:
    """The keys of the files that must have each key, their shards, and their name."""
    beside, span = reader.beside(pattern)
    kinds, nulls, data = beside.kinds(runner, span)
    for name in columns:
        if name not in kinds:
            raise UserError(
                f"no column `{name}`",
                place=Place(pattern),
                key=setting,
                expected=choices(sorted(kinds)),
                remedy=did_you_mean(name, kinds) or "Set `file_columns`.",
            )
    return _Keys(columns, kinds, nulls), data, pattern


def _unknown(
    runner: shards.ShardRunner,
    data: Sequence[Shard],
    keys: _Keys,
    rows: int,
    others: _Keys,
    of_file: Sequence[Shard],
    file: str,
) -> tuple[int, str]:
    """The number of rows with a key that a file lacks, and a note that names some."""
    parts = _parts(shards.rows_of(of_file) or 0)
    total = _Unknown()
    for part in range(parts):
        known = runner.fold(of_file, _Count(others, part, parts), _Seen.merge).hashes
        compare = _Compare(keys, known, part, parts)
        total = total.merge(runner.fold(data, compare, _Unknown.merge))
    note = f"{total.rows:,} of {rows:,} rows have a key that {file} lacks"
    return total.rows, f"{note}: {'; '.join(total.first)}" if total.rows else note


def _parts(rows: int) -> int:
    """Number of parts of the keys of some rows, each of which is compared alone."""
    return -(-rows // _ROWS_AT_ONCE) or 1


def _text(key: bytes) -> str:
    return repr(key.replace(_SEPARATOR, b", ").decode(errors="replace")[:100])
