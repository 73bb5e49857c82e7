"""The data as shards: parts of files that workers read apart.

How data are cut depends on the data alone, so the same data give the same shards on any
number of workers. Other spans seldom change how a span of some megabytes is cut, so
later nodes can use their results of its shards from an earlier run.
"""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pyarrow.compute as pc

from strategos.components import events
from strategos.components.data_files import spans
from strategos.components.data_files.inference import Profile, Profiles
from strategos.components.data_files.pieces import Piece, Shard, grouped
from strategos.components.data_files.sources import (
    DEFAULT,
    Part,
    Reading,
    Source,
    open_source,
)
from strategos.components.data_files.sources.names import no_row
from strategos.components.data_files.sources.reading import for_columns
from strategos.components.data_files.sources.source import WHOLE
from strategos.components.data_files.values import numerals
from strategos.components.data_files.values.bad_values import explained
from strategos.components.data_files.values.times import EXPECTED, Times
from strategos.components.data_files.values.whole_numbers import WholeNumbers
from strategos.components.errors import Place, UserError
from strategos.components.files import object_stores, patterns, storage
from strategos.components.shards.engine import Engine
from strategos.components.shards.fold import fold
from strategos.components.wording import abridged, choices, quoted

File = tuple[spans.Span, Source]

_SHARDS = 64  # at most, into which data of medium size are cut
_LARGE_BYTES = 256 << 20  # of a part, where more parts would use more workers
_LEAST_BYTES, _MOST_BYTES = 4 << 20, 32 << 20  # of a shard


def open_files(chosen: Sequence[spans.Span], reading: Reading = DEFAULT) -> list[File]:
    """The files of the spans, in order, each with its span.

    Args:
      chosen: The spans.
      reading: How their files are read.

    Files known to have no rows are left out; Spark, for example, writes such files.

    Raises:
      UserError: A file cannot be opened or has another format than its suffix says, or
        no file has rows.
    """
    files = [(span, path) for span in chosen for path in span.files]
    opened = functools.partial(open_source, reading=reading)
    sources = object_stores.each(opened, [path for _, path in files])
    if all(source.is_empty for source in sources):
        raise no_row(sources[0].path)
    pairs = zip(files, sources, strict=True)
    return [(span, source) for (span, _), source in pairs if not source.is_empty]


def rows_of(shards: Sequence[Shard]) -> int | None:
    """The number of rows of all shards, if known."""
    pieces = [piece for shard in shards for piece in shard.pieces]
    known = [piece.rows for piece in pieces if piece.rows is not None]
    return sum(known) if len(known) == len(pieces) else None


class ShardRunner:
    """Runs work on shards of the data.

    Args:
      engine: Runs the work on the shards.
      folder: Folder for results; this process and the workers can access it.
    """

    def __init__(self, engine: Engine, folder: str):
        self._engine, self._folder = engine, folder

    def fold(
        self,
        shards: Sequence[Any],
        work: Callable[[Any], Any],
        merge: Callable[[Any, Any], Any],
    ) -> Any:
        """See `fold.fold`."""
        return fold(self._engine, shards, work, merge, self._folder)

    def cut(self, pattern: str, files: Sequence[File]) -> list[Shard]:
        """Cuts the data into shards.

        Args:
          pattern: Pattern of the files.
          files: The files, in the order of the data.

        Raises:
          OSError: A file cannot be read.
        """
        statuses = storage.statuses([source.path for _, source in files])
        sizes = [each.size for each in statuses]
        columns = max(len(source.names) for _, source in files)
        least = for_columns(_LEAST_BYTES, _MOST_BYTES, columns)
        # Few sizes, so that spans are cut as before when others are added.
        doubled = (max(sum(sizes) // _SHARDS - 1, 0) // least).bit_length()
        most = min(least << doubled, _MOST_BYTES)
        parts = self._parts([source for _, source in files], sizes, most)
        _warn_of_large_parts(files, sizes, parts)
        base = patterns.fixed_folder(pattern)
        pieces = (
            (Piece(source, part, span.number, base), size // len(of_file))
            for (span, source), size, of_file in zip(files, sizes, parts, strict=True)
            for part in of_file
        )
        return grouped(pieces, most)

    def inspect(
        self, shards: Sequence[Shard], nulls: numerals.Nulls
    ) -> tuple[list[Shard], dict[str, Profile]]:
        """Reads all values, or the types that files declare.

        Reads the values of a column of declared doubles only if float32 may change a
        whole number among them.

        Args:
          shards: Shards of files with the same columns.
          nulls: Spellings of a missing value in columns of numbers.

        Returns:
          The shards with their numbers of rows, and a profile by column.

        Raises:
          UserError: A file is malformed.
        """
        rows, profiles = self.fold(shards, _Inspect(nulls), _merge_profiles)
        for name, profile in profiles.items():
            profile.check_unmixed(name)
        _check_columns(shards, list(profiles))
        undecided = [name for name, each in profiles.items() if each.undecided]
        if undecided:
            merged = self.fold(shards, _SeeUnseen(undecided), _merge_wholes)
            for name, wholes in merged.items():
                profiles[name].wholes.merge(wholes)
        return _with_rows(shards, rows), profiles

    def newest(self, shards: Sequence[Shard], times: Times) -> int:
        """The newest time of all rows, in microseconds since 1970.

        Args:
          shards: Shards of the data.
          times: Names the column.

        Raises:
          UserError: A file is malformed, or a row has no time.
        """
        newest: int = self.fold(shards, _Newest(times), max)
        return newest

    def count(self, shards: Sequence[Shard]) -> list[Shard]:
        """Finds the first row of each piece; reads CSV files only if one was cut.

        Raises:
          UserError: A file is malformed.
        """
        if not any(piece.part.start for shard in shards for piece in shard.pieces):
            return list(shards)
        return _with_rows(shards, self.fold(shards, _count, operator.add))

    def _parts(
        self, files: Sequence[Source], sizes: Sequence[int], size: int
    ) -> list[list[Part]]:
        parts = [
            [WHOLE] if source.cut_by_scan and own < size else source.parts(size)
            for source, own in zip(files, sizes, strict=True)
        ]
        cut = {
            number: source
            for number, source in enumerate(files)
            if source.cut_by_scan and len(parts[number]) > 1
        }
        if cut:
            wanted = [(source, part) for n, source in cut.items() for part in parts[n]]
            scans = iter(self.fold(wanted, _scan, operator.add))
            for number, source in cut.items():
                results = [next(scans) for _ in parts[number]]
                parts[number] = source.cut(parts[number], results)
        return parts


def _check_columns(shards: Sequence[Shard], names: Sequence[str]) -> None:
    """Rejects a file with declared columns that lacks one which other rows have."""
    for source in {
        piece.source.path: piece.source for s in shards for piece in s.pieces
    }.values():
        lacking = [name for name in names if name not in source.names]
        if lacking and not source.open_ended and not source.ignores_extra:
            raise UserError(
                f"no column {choices(quoted(lacking))}, which rows of other files have",
                place=Place(source.path),
                remedy="Add the column, or take it out there.",
            )


def _warn_of_large_parts(
    files: Sequence[File], sizes: Sequence[int], parts: Sequence[Sequence[Part]]
) -> None:
    whole = [
        source.path
        for (_, source), size, of_file in zip(files, sizes, parts, strict=True)
        if size // len(of_file) > _LARGE_BYTES
    ]
    if whole:
        events.emit(
            "warning",
            message=f"{abridged(whole, 3)}: one worker reads more than "
            f"{_LARGE_BYTES >> 20} MB alone, as compressed text, Avro and TFRecord "
            "are not cut, and Parquet only between row groups, ORC between stripes. "
            "More files, or smaller groups, use more workers.",
        )


def _with_rows(shards: Sequence[Shard], rows: Iterable[int]) -> list[Shard]:
    counts, first, numbered = iter(rows), 0, []
    for shard in shards:
        pieces = []
        for piece in shard.pieces:
            first = first if piece.part.start else 0
            count = next(counts)
            base, part = piece.base, piece.part
            pieces.append(Piece(piece.source, part, piece.span, base, first, count))
            first += count
        numbered.append(Shard(shard.number, tuple(pieces)))
    return numbered


def _scan(wanted: tuple[Source, Part]) -> list[Any]:
    source, part = wanted
    return [source.scan(part)]


def _count(shard: Shard) -> list[int]:
    pieces = map(Piece.fresh, shard.pieces)
    return [piece.source.rows_of(piece.part) for piece in pieces]


@dataclasses.dataclass(frozen=True)
class _Inspect:
    nulls: numerals.Nulls

    def __call__(self, shard: Shard) -> tuple[list[int], dict[str, Profile]]:
        profiles = Profiles(self.nulls, shard.pieces[0].source.names)
        pieces = map(Piece.fresh, shard.pieces)
        rows = [piece.source.inspect(piece.part, profiles) for piece in pieces]
        return rows, profiles


@dataclasses.dataclass(frozen=True)
class _Newest:
    times: Times

    def __call__(self, shard: Shard) -> int:
        return max(map(self._of, map(Piece.fresh, shard.pieces)))

    def _of(self, piece: Piece) -> int:
        newest, row = -(2**63), 0
        for batch in piece.source.select(piece.part, [self.times.column]):
            with explained(piece.place, row, EXPECTED):
                newest = max(newest, pc.max(self.times.of(batch)).as_py())
            row += batch.num_rows
        return newest


@dataclasses.dataclass(frozen=True)
class _SeeUnseen:
    names: Sequence[str]

    def __call__(self, shard: Shard) -> dict[str, WholeNumbers]:
        wholes_of = {name: WholeNumbers() for name in self.names}
        for piece in shard.pieces:
            for batch in piece.source.fresh().unseen(piece.part, self.names):
                for name, wholes in wholes_of.items():
                    if wholes.whole:
                        wholes.see_column(batch.column(name))
                if not any(wholes.whole for wholes in wholes_of.values()):
                    return wholes_of
        return wholes_of


def _merge_wholes(
    earlier: dict[str, WholeNumbers], later: dict[str, WholeNumbers]
) -> dict[str, WholeNumbers]:
    return {name: each.merge(later[name]) for name, each in earlier.items()}


def _merge_profiles(
    earlier: tuple[list[int], dict[str, Profile]],
    later: tuple[list[int], dict[str, Profile]],
) -> tuple[list[int], dict[str, Profile]]:
    for name, profile in later[1].items():
        if name in earlier[1]:
            earlier[1][name].merge(profile)
        else:
            earlier[1][name] = profile
    return earlier[0] + later[0], earlier[1]
