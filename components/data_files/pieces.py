"""Parts of the data, each read by one call of a worker.

Consecutive small files that their format parses together are one piece.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import NamedTuple

from strategos.components.data_files.small_files import SmallFiles
from strategos.components.data_files.sources import Part, Source
from strategos.components.data_files.sources.source import WHOLE

_SMALL_BYTES = 256 << 10  # of a file that is read together with others


class Piece(NamedTuple):
    """A part of a file; a tuple, as a driver may hold a million and pickle them.

    Attributes:
      source: The file.
      part: The part of the file.
      span: Number of the file's span.
      base: The folder that the pattern of the data begins with.
      first_row: Index in the file of the part's first row, if known.
      rows: Number of rows, if known.
    """

    source: Source
    part: Part
    span: int
    base: str
    first_row: int | None = None
    rows: int | None = None

    def place(self, row: int) -> str:
        """File and line of a row, for messages.

        Args:
          row: Index of the row in the piece.
        """
        return self.source.place(self.part, row)

    def stretches(self, row: int, rows: int) -> Iterator[tuple[str, int, int]]:
        """Divides consecutive rows of the piece by their files.

        Args:
          row: Index of the first row in the piece.
          rows: Number of rows.

        Yields:
          Path of a file below `base`, index in it of the first row, number of its rows.
        """
        first = (self.first_row or 0) + row
        for path, index, own in self.source.stretches(first, rows):
            yield os.path.relpath(path, self.base), index, own

    def fresh(self) -> Piece:
        """This piece for one read, see `Source.fresh`."""
        return self._replace(source=self.source.fresh())


class Shard(NamedTuple):
    """Input of one call of a worker: several small files, or part of a large one.

    Attributes:
      number: Index of the shard among all shards.
      pieces: Pieces in the order of the data.
    """

    number: int
    pieces: tuple[Piece, ...]


def grouped(pieces: Iterable[tuple[Piece, int]], most: int) -> list[Shard]:
    """Divides pieces into shards; a piece that is too large is a shard by itself.

    A shard ends with its span, unless it is less than a quarter of a shard.

    Args:
      pieces: The pieces in the order of the data, each with its size in bytes.
      most: Bytes of a shard.
    """
    groups = enumerate(_groups(pieces, most))
    return [Shard(number, tuple(_together(group))) for number, group in groups]


def _groups(
    pieces: Iterable[tuple[Piece, int]], most: int
) -> Iterator[list[tuple[Piece, int]]]:
    members: list[tuple[Piece, int]] = []
    bytes_ = 0
    for piece, size in pieces:
        is_new = bool(members) and piece.span != members[-1][0].span
        if members and (bytes_ + size > most or (is_new and 4 * bytes_ >= most)):
            yield members
            members, bytes_ = [], 0
        members.append((piece, size))
        bytes_ += size
    yield members


def _together(pieces: Sequence[tuple[Piece, int]]) -> Iterator[Piece]:
    """Makes one piece of consecutive small files that their format reads as one."""
    if len(pieces) == 1:  # as most are of a million shards
        yield pieces[0][0]
        return

    def shared(sized: tuple[Piece, int]) -> tuple[Hashable, int]:
        piece, size = sized
        whole = piece.part == WHOLE and size <= _SMALL_BYTES
        return piece.source.alike if whole else None, piece.span

    for (alike, _), group in itertools.groupby(pieces, shared):
        some = [piece for piece, _ in group]
        if alike is None or len(some) == 1:
            yield from some
        else:
            paths = [piece.source.path for piece in some]
            yield some[0]._replace(source=SmallFiles(some[0].source, paths))
