"""Rows that cannot be read, set aside beside the examples."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from strategos.components.data_files.pieces import Piece
from strategos.components.data_files.sources.source import BadRow
from strategos.components.data_files.values import features, numerals
from strategos.components.data_files.values.bad_values import bad_value
from strategos.components.data_files.values.kinds import Kind
from strategos.components.errors import Place, UserError
from strategos.components.files import storage

FOLDER = "Rejected"
"""Folder of the examples' artifact with the rejected rows, as JSON lines."""

_SHOWN = 10


@dataclasses.dataclass
class Rejected:
    """The rejected rows of the shards read so far.

    Attributes:
      rows: Number of rejected rows.
      malformed: Number of those among them that could not be parsed.
      first: The first problems, with file and line.
    """

    rows: int = 0
    malformed: int = 0
    first: list[str] = dataclasses.field(default_factory=list)
    _of_piece: list[tuple[int, BadRow]] = dataclasses.field(default_factory=list)
    _waiting: list[str] = dataclasses.field(default_factory=list)

    def add(self, row: int, bad: BadRow) -> None:
        """Adds a row of the piece that is read.

        Args:
          row: Index of the row in the piece, rejected ones included.
          bad: The row.
        """
        self._of_piece.append((row, bad))

    def add_row(
        self, piece: Piece, row: int, raw: pa.RecordBatch, problem: str
    ) -> None:
        """Adds a row that was parsed.

        Args:
          piece: The piece that is read.
          row: Index in the piece of the row, among those that its source has yielded.
          raw: The row as the file has it.
          problem: The error, perhaps after the place of the row.
        """
        place = piece.source.place_of(piece.part, row)
        reason = problem.removeprefix(f"{Place(piece.place(row))}: ")
        text = json.dumps(raw.to_pylist()[0], default=str, ensure_ascii=False)
        self.add(piece.source.index_of(row), BadRow(place, reason, text))

    def end(self, piece: Piece) -> None:
        """Ends a piece: adds the rows that its source has left out, in order.

        Args:
          piece: The piece, which was read to its end.
        """
        malformed = piece.source.malformed or {}
        path = piece.source.path
        for _, bad in sorted([*self._of_piece, *malformed.items()]):
            row = {"file": path, **bad._asdict()}
            self._waiting.append(json.dumps(row, ensure_ascii=False) + "\n")
            self.first = [*self.first, bad.problem(path)][:_SHOWN]
        self.rows += len(self._of_piece) + len(malformed)
        self.malformed += len(malformed)
        self._of_piece = []

    def write(self, examples: str, shard: int) -> None:
        """Writes the rows of a shard; a shard that is read again writes the same.

        Args:
          examples: URI of the artifact.
          shard: Number of the shard.
        """
        if self._waiting:
            path = os.path.join(examples, FOLDER, f"{shard:05}.jsonl")
            storage.write(path, "".join(self._waiting))
        self._waiting = []

    def merge(self, later: Rejected) -> Rejected:
        """Adds the rows of later shards."""
        first = [*self.first, *later.first][:_SHOWN]
        malformed = self.malformed + later.malformed
        return Rejected(self.rows + later.rows, malformed, first)

    def check(self, rows: int, most: float) -> None:
        """Rejects data with too many such rows.

        Args:
          rows: Number of all rows, the rejected ones included.
          most: The share that may be rejected.

        Raises:
          UserError: More are rejected; names the first ones.
        """
        if self.rows <= most * rows:
            return
        shown = "".join(f"\n      {problem}" for problem in self.first)
        raise UserError(
            f"{self.rows:,} of {rows:,} rows cannot be read; the first ones: {shown}",
            key="data.max_bad_fraction",
            received=f"{most:g}",
            remedy="Correct the rows, or raise the bound.",
        )


def accepted_rows(
    piece: Piece,
    kinds: Mapping[str, Kind],
    nulls: numerals.Nulls,
    rejected: Rejected,
    names: Sequence[str] | None = None,
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yields the rows of a piece with values of their columns' kinds.

    Args:
      piece: The piece.
      kinds: Kind of each column.
      nulls: Spellings of a missing value in columns of numbers.
      rejected: Gets the other rows, if the source is tolerant.
      names: See `convertible_rows`.

    Yields:
      Runs of rows as the file has them, each with the index of its first row.
    """

    def explain(error: features.BadValueError, row: int) -> UserError:
        return bad_value(piece.place, row, error, kinds[error.column])

    convert = functools.partial(features.convert, kinds=kinds, nulls=nulls)
    return convertible_rows(piece, convert, explain, rejected, names)


def convertible_rows(
    piece: Piece,
    convert: Callable[[pa.RecordBatch], Any],
    explain: Callable[[features.BadValueError, int], UserError],
    rejected: Rejected,
    names: Sequence[str] | None = None,
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yields the convertible rows of a piece.

    Args:
      piece: The piece.
      convert: Converts rows as the file has them; raises a BadValueError.
      explain: The error of a value, given the index in the piece of the first of the
        rows that were converted.
      rejected: Gets the other rows, if the source is tolerant.
      names: Columns to read, if the source is not tolerant; all of them by default. A
        rejected row is kept with all of its columns.

    Yields:
      Runs of rows as the file has them, each with the index of its first row.
    """
    row, source = 0, piece.source
    if names is None or source.tolerant:
        batches = source.batches(piece.part)
    else:
        batches = source.select(piece.part, names)
    for raw in batches:
        if source.tolerant:
            yield from _accepted(piece, row, raw, convert, explain, rejected)
        else:
            yield row, raw
        row += raw.num_rows


def _accepted(
    piece: Piece,
    row: int,
    raw: pa.RecordBatch,
    convert: Callable[[pa.RecordBatch], Any],
    explain: Callable[[features.BadValueError, int], UserError],
    rejected: Rejected,
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Halves a batch until each part has good values only, or is one bad row."""
    try:
        convert(raw)
    except features.BadValueError as error:
        bad = error
    else:
        yield row, raw
        return
    if raw.num_rows == 1:
        rejected.add_row(piece, row, raw, explain(bad, row).headline)
        return
    half = raw.num_rows // 2
    first, second = raw.slice(0, half), raw.slice(half)
    yield from _accepted(piece, row, first, convert, explain, rejected)
    yield from _accepted(piece, row + half, second, convert, explain, rejected)
