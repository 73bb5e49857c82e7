"""CSV and Parquet files as Arrow record batches, with errors that name file and row."""

from __future__ import annotations

import contextlib
import csv
import gzip
import sys
import zlib
from collections.abc import Iterator, Mapping
from typing import Protocol

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from strategos.components.errors import UserError
from strategos.components.example_gen import features, formats
from strategos.components.example_gen.inference import Profile

_CSV_BLOCK = 4 << 20
_MAX_ROWS = 16384
_PARQUET_BYTES = 16 << 20
_UNREADABLE = (OSError, EOFError, zlib.error, UnicodeDecodeError, csv.Error)


class Source(Protocol):
    """One file of rows.

    Attributes:
      path: Where it lies.
      names: Its columns, in the order of the file.
      rows: How many rows it has, where that is known before they are read.
    """

    path: str
    names: tuple[str, ...]
    rows: int | None

    def inspect(self, profiles: Mapping[str, Profile]) -> None:
        """Shows all values of each column, or their type, to its profile.

        Raises:
          UserError: The file is malformed.
        """

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows in order, in batches of columns as the file has them.

        Raises:
          UserError: The file is malformed.
        """

    def where(self, row: int) -> str:
        """The place of the row with index `row` (from 0), for a message."""


def open_source(path: str) -> Source:
    """The source for `path`, by its extension.

    Raises:
      UserError: The file is of another format than its extension says, or of none
        that is read here, or has no columns or no rows.
    """
    formats.check(path)
    return (ParquetSource if path.endswith(".parquet") else CsvSource)(path)


class CsvSource:
    """A CSV file in UTF-8 with a header; every column is read as text.

    An empty field is a missing value.
    """

    def __init__(self, path: str):
        self.path = path
        self.rows: int | None = None
        self.names = self._read_header()

    def inspect(self, profiles: Mapping[str, Profile]) -> None:
        """See `Source`; reads the whole file."""
        row = 0
        for batch in self.batches():
            for name, column in zip(self.names, batch.columns, strict=True):
                profiles[name].see_text(column, self, row)
            row += batch.num_rows

    def batches(self) -> Iterator[pa.RecordBatch]:
        """See `Source`."""
        rows = 0
        try:
            for batch in self._open():
                rows += batch.num_rows
                for start in range(0, batch.num_rows, _MAX_ROWS):
                    yield batch.slice(start, _MAX_ROWS)
        except (pa.ArrowInvalid, OSError) as error:
            raise UserError(self._explain(error)) from error
        if not rows:
            raise UserError(
                f"{self.path}: has a header but no row. Remove the file, or put the "
                f"data there."
            )
        self.rows = rows

    def where(self, row: int) -> str:
        """See `Source`; the line counts from 1, the header included."""
        with contextlib.suppress(csv.Error):  # at a zero byte, before Python 3.11
            for index, (line, _) in enumerate(self._records()):
                if index == row + 1:
                    return f"line {line}"
        return f"row {row + 1}"

    def _open(self) -> pyarrow.csv.CSVStreamingReader:
        return pyarrow.csv.open_csv(
            self.path,
            read_options=pyarrow.csv.ReadOptions(block_size=_CSV_BLOCK),
            parse_options=pyarrow.csv.ParseOptions(newlines_in_values=True),
            convert_options=pyarrow.csv.ConvertOptions(
                column_types=dict.fromkeys(self.names, pa.string()),
                strings_can_be_null=True,
                null_values=[""],
            ),
        )

    def _read_header(self) -> tuple[str, ...]:
        try:
            _, header = next(self._records(), (0, []))
        except _UNREADABLE as error:
            raise UserError(self._explain(error)) from error
        if not header:
            raise UserError(
                f"{self.path}: is empty. Expected CSV with a header; remove the file, "
                f"or put the data there."
            )
        _check_names(self.path, header)
        return tuple(header)

    def _records(self) -> Iterator[tuple[int, list[str]]]:
        """The records with the line on which each starts: slow, for errors only."""
        csv.field_size_limit(sys.maxsize)
        opener = gzip.open if self.path.endswith(".gz") else open
        with opener(self.path, "rt", encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file)
            line = 1
            for record in reader:
                if record:
                    yield line, record
                line = reader.line_num + 1

    def _explain(self, error: Exception) -> str:
        try:
            for line, record in self._records():
                if line > 1 and len(record) != len(self.names):
                    return (
                        f"{self.path}: line {line}: expected {len(self.names)} fields "
                        f"as in the header. Received: {len(record)}. Correct the line; "
                        f"a field with a comma needs quotes."
                    )
        except UnicodeDecodeError:
            return formats.not_utf8(self.path)
        except (OSError, EOFError, zlib.error, csv.Error) as reading_error:
            error = reading_error
        if isinstance(error, OSError) and error.strerror:
            return formats.unreadable(self.path, error)
        if isinstance(error, (EOFError, zlib.error, gzip.BadGzipFile)):
            return (
                f"{self.path}: cannot be read: {error}. The file is cut off or "
                f"damaged: write or copy it again."
            )
        return (
            f"{self.path}: cannot be read as CSV: {error}. Expected a header and "
            f"comma-separated fields; correct the file."
        )


class ParquetSource:
    """A Parquet file; lists become multivalent features, binary columns bytes."""

    def __init__(self, path: str):
        self.path = path
        with self._open() as file:
            schema = file.schema_arrow
            self.rows: int | None = file.metadata.num_rows
            groups = range(file.metadata.num_row_groups)
            size = sum(file.metadata.row_group(i).total_byte_size for i in groups)
        _check_names(path, schema.names)
        self.names = tuple(schema.names)
        self._types = {field.name: self._type_of(field) for field in schema}
        if not self.rows:
            raise UserError(
                f"{path}: has no row. Remove the file, or put the data there."
            )
        per_batch = _PARQUET_BYTES * self.rows // max(size, 1)
        self._batch_rows = min(max(per_batch, 1), _MAX_ROWS)

    def inspect(self, profiles: Mapping[str, Profile]) -> None:
        """See `Source`; shows the types that the file declares."""
        for name, data_type in self._types.items():
            profiles[name].see_type(data_type, self, self.rows or 0)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """See `Source`."""
        with self._open() as file:
            try:
                yield from file.iter_batches(batch_size=self._batch_rows)
            except (pa.ArrowException, OSError) as error:
                raise UserError(self._unreadable(error)) from error

    def where(self, row: int) -> str:
        """See `Source`; the row counts from 1."""
        return f"row {row + 1}"

    def _open(self) -> pyarrow.parquet.ParquetFile:
        try:
            return pyarrow.parquet.ParquetFile(self.path)
        except (pa.ArrowException, OSError) as error:
            raise UserError(self._unreadable(error)) from error

    def _type_of(self, field: pa.Field) -> pa.DataType:
        try:
            features.kind_of(field.type)
            return field.type
        except TypeError as error:
            raise UserError(
                f"{self.path}: column `{field.name}` has the type {field.type}, which "
                f"a tf.Example cannot hold. Expected numbers, text, bytes, times or "
                f"lists of these; flatten the column or take it out."
            ) from error

    def _unreadable(self, error: Exception) -> str:
        return (
            f"{self.path}: cannot be read as Parquet: {error}. The file may be "
            f"incomplete: write or copy it anew."
        )


def _check_names(path: str, names: list[str]) -> None:
    for position, name in enumerate(names, 1):
        if not name.strip():
            raise UserError(
                f"{path}: column {position} has no name. Name it, or take it out "
                f"(pandas writes it without `index=False`)."
            )
        if names.count(name) > 1:
            raise UserError(
                f"{path}: column `{name}` occurs {names.count(name)} times. Rename all "
                f"but one."
            )
