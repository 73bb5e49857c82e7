"""CSV files, with errors that name file and line."""

from __future__ import annotations

import contextlib
import csv
import gzip
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import IO, TYPE_CHECKING, Any

from strategos.components.errors import UserError
from strategos.components.example_gen import formats
from strategos.components.example_gen.sources.source import (
    MAX_ROWS,
    Source,
    check_names,
)

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.csv

    from strategos.components.example_gen.inference import Profile

_BLOCK_BYTES = 4 << 20
_UNREADABLE = (OSError, EOFError, zlib.error, UnicodeDecodeError, csv.Error)


class CsvSource(Source):
    """A CSV file in UTF-8 with a header; every column is read as text.

    An empty field is a missing value.
    """

    suffixes = (".csv", ".csv.gz")

    def __init__(self, path: str):
        """See `Source`."""
        self.path = path
        self.rows: int | None = None
        self.names = self._read_header()

    @classmethod
    def check(cls, path: str) -> None:
        """See `Source`."""
        head = formats.head(path)
        if not head:
            raise UserError(_empty(path))
        if path.endswith(".gz"):
            head = formats.unpacked(path, head)
        formats.check_text(path, head)

    def inspect(self, profiles: Mapping[str, Profile]) -> None:
        """See `Source`; reads the whole file."""
        row = 0
        for batch in self.batches():
            for name, column in zip(self.names, batch.columns, strict=True):
                profiles[name].see_text(column, self, row)
            row += batch.num_rows

    def batches(self) -> Iterator[pa.RecordBatch]:
        """See `Source`."""
        import pyarrow as pa

        rows = 0
        try:
            for batch in self._open():
                rows += batch.num_rows
                for start in range(0, batch.num_rows, MAX_ROWS):
                    yield batch.slice(start, MAX_ROWS)
        except (pa.ArrowInvalid, OSError) as error:
            raise UserError(self._explain(error)) from error
        if not rows:
            raise UserError(
                f"{self.path}: has a header but no row. Remove the file, or put the "
                f"data there."
            )
        self.rows = rows

    def count_rows(self, enough: int) -> int:
        """See `Source`: counts lines; a row with a quoted line break counts twice."""
        try:
            with self._opener()(self.path, "rb") as file:
                return max(0, sum(1 for _ in islice(file, enough + 1)) - 1)
        except _UNREADABLE as error:
            raise UserError(self._explain(error)) from error

    def where(self, row: int) -> str:
        """See `Source`: a line number from 1, header included."""
        with contextlib.suppress(csv.Error):  # a zero byte raises before Python 3.11
            for index, (line, _) in enumerate(self._records()):
                if index == row + 1:
                    return f"line {line}"
        return f"row {row + 1}"

    def _opener(self) -> Callable[..., IO[Any]]:
        return gzip.open if self.path.endswith(".gz") else open

    def _open(self) -> pyarrow.csv.CSVStreamingReader:
        import pyarrow as pa
        import pyarrow.csv

        return pyarrow.csv.open_csv(
            self.path,
            read_options=pyarrow.csv.ReadOptions(block_size=_BLOCK_BYTES),
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
            raise UserError(_empty(self.path))
        check_names(self.path, header)
        return tuple(header)

    def _records(self) -> Iterator[tuple[int, list[str]]]:
        """Yields each record with the line where it starts; slow, for errors only."""
        csv.field_size_limit(sys.maxsize)
        with self._opener()(self.path, "rt", encoding="utf-8-sig", newline="") as file:
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


def _empty(path: str) -> str:
    return (
        f"{path}: is empty. Expected CSV with a header; remove the file, or put the "
        "data there."
    )
