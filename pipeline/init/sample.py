"""Reads a sample of the rows of data files, from all parts of them."""

from __future__ import annotations

import csv
import dataclasses
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from strategos.components.data_files import sources
from strategos.components.data_files.columns import check_same
from strategos.components.data_files.inference import Profiles
from strategos.components.data_files.listing import Listing
from strategos.components.data_files.sources import Part, Source
from strategos.components.data_files.sources.names import no_row
from strategos.components.data_files.sources.reading import CsvFormat, Reading
from strategos.components.data_files.sources.tfrecord_source import STEP_LENGTHS
from strategos.components.data_files.values import DEFAULT_NULL_VALUES, features
from strategos.components.data_files.values.kinds import Kind
from strategos.components.data_files.values.numerals import Nulls
from strategos.components.errors import BadInputError, UserError
from strategos.components.files import storage
from strategos.components.wording import choices
from strategos.pipeline.init import csv_form

MOST_ROWS = 200_000
_MOST_CELLS = 20_000_000  # of a sample of a wide table
_PART_BYTES = 4 << 20
_BY_HAND = (
    "This command cannot set it: write the workload by hand, with "
    f"`{STEP_LENGTHS}: [LIST]` for each list with any number of values at a step."
)


@dataclasses.dataclass(frozen=True)
class Sample:
    """Rows of data files.

    Attributes:
      pattern: Pattern of the files, for `data.examples`.
      csv: How CSV files are written.
      columns: By name, the values as features: lists of int64, float32 or binary; null
        if missing.
      kinds: Type of each column's values.
      lists: Columns that may have several values in a row.
      rows: Number of rows.
      is_whole: Whether these are all rows of the files.
    """

    pattern: str
    csv: CsvFormat
    columns: dict[str, pa.ListArray]
    kinds: dict[str, Kind]
    lists: frozenset[str]
    rows: int
    is_whole: bool


def read(data: str, texts: Sequence[str] = (), nulls: Sequence[str] = ()) -> Sample:
    """Reads about `MOST_ROWS` rows at most, from parts that lie evenly in all files.

    Args:
      data: A file, a folder of files of one format, or a pattern or URL as in
        `data.examples`.
      texts: Columns to read as text, as the files spell their values.
      nulls: Spellings of a missing value in every column of CSV files.

    Raises:
      BadInputError: No file, files of several formats, or a file that is no table.
    """
    try:
        return _read(data, texts, nulls)
    except UserError as error:
        remedy = _BY_HAND if STEP_LENGTHS in error.message else error.remedy
        raise BadInputError(
            error.message,
            key="DATA" if error.key == "data.examples" else error.key,
            place=error.place,
            received=error.received,
            expected=error.expected,
            remedy=remedy,
        ) from error


def _read(data: str, texts: Sequence[str], nulls: Sequence[str]) -> Sample:
    pattern = _pattern(data)
    files = [path for span in Listing(pattern).chosen for path in span.files]
    form = _form(files[0], tuple(nulls))
    every = [sources.open_source(path, Reading(csv=form)) for path in files]
    opened = [each for each in every if not each.is_empty]
    if not opened:
        raise no_row(files[0])
    check_same(opened)
    most = min(MOST_ROWS, _MOST_CELLS // len(opened[0].names))
    parts, is_whole = _chosen(opened, most)
    spelled = Nulls(DEFAULT_NULL_VALUES, decimal=form.decimal)
    profiles = Profiles(spelled, opened[0].names)
    rows = sum(source.inspect(part, profiles) for source, part in parts)
    kinds = {name: profile.kind for name, profile in profiles.items()}
    kinds |= dict.fromkeys(kinds.keys() & set(texts), Kind.BYTES)
    of_part = None if is_whole else max(1, most // len(parts))
    table = pa.Table.from_batches(_batches(parts, kinds, spelled, of_part))
    columns = {name: table.column(name).combine_chunks() for name in kinds}
    several = {name for name, profile in profiles.items() if profile.several}
    lists = frozenset(several.union(*(source.lists for source, _ in parts)))
    is_whole &= table.num_rows == rows
    return Sample(pattern, form, columns, kinds, lists, table.num_rows, is_whole)


def _pattern(data: str) -> str:
    """The pattern of `data.examples` for a file, a folder, or a pattern."""
    if not os.path.isdir(data):
        return data
    names = sorted(os.listdir(data))
    formats = {sources.name_of(name) for name in names} - {None}
    if len(formats) != 1:
        raise BadInputError(
            f"{data}: expected a folder with data files of one format",
            received=choices(names) if names else "an empty folder",
            remedy=f"Name the files, e.g. '{data.rstrip('/')}/*.csv'.",
        )
    return str(Path(data, f"*.{formats.pop()}"))


def _form(path: str, nulls: tuple[str, ...]) -> CsvFormat:
    """How CSV files are written, by the first one; the default for other formats."""
    name = sources.name_of(path)
    if name is None or not name.startswith("csv"):
        return CsvFormat()
    try:
        return dataclasses.replace(csv_form.guess(path), nulls=nulls)
    except (OSError, EOFError, ValueError, csv.Error):
        return CsvFormat()  # the reader says what is wrong with the file


def _chosen(
    files: Sequence[Source], most: int
) -> tuple[list[tuple[Source, Part]], bool]:
    """Parts of the files with about `most` rows, and whether these are all parts."""
    parts = [(source, part) for source in files for part in _parts(source)]
    first = next(files[0].batches(parts[0][1]))
    size = sum(each.size for each in storage.statuses([file.path for file in files]))
    rows = max(1, size * first.num_rows // max(1, first.nbytes))  # about
    wanted = max(2, len(parts) * most // rows)
    if len(parts) <= wanted:
        return parts, True
    places = {index * (len(parts) - 1) // (wanted - 1) for index in range(wanted)}
    return [parts[place] for place in sorted(places)], False


def _parts(source: Source) -> list[Part]:
    parts = source.parts(_PART_BYTES)
    if source.cut_by_scan and len(parts) > 1:
        return source.cut(parts, [source.scan(part) for part in parts])
    return parts


def _batches(
    parts: Sequence[tuple[Source, Part]],
    kinds: dict[str, Kind],
    spelled: Nulls,
    most: int | None,
) -> Iterator[pa.RecordBatch]:
    """The first rows of each part as features; all rows if `most` is None."""
    for source, part in parts:
        left = most
        for batch in source.batches(part):
            batch = batch.slice(0, left)
            yield features.convert(batch, kinds, spelled)
            left = None if left is None else left - batch.num_rows
            if left == 0:
                break
