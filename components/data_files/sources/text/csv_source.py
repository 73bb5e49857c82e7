"""CSV files, with errors that name file and line."""

from __future__ import annotations

import contextlib
import csv
import gzip
import io
import re
import sys
import zlib
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from itertools import islice
from typing import IO, Any

from strategos.components.data_files import formats
from strategos.components.data_files.sources.names import check_names
from strategos.components.data_files.sources.reading import (
    DEFAULT,
    CsvFormat,
    Reading,
    for_columns,
)
from strategos.components.data_files.sources.source import (
    MAX_ROWS,
    WHOLE,
    BadRow,
    Part,
)
from strategos.components.data_files.sources.text import csv_cuts, csv_records
from strategos.components.data_files.sources.undeclared import TextSource
from strategos.components.errors import UserError
from strategos.components.files import storage
from strategos.components.files.filesystems import is_remote
from strategos.components.slow_imports import pa

_BLOCK_BYTES, _MOST_BYTES = 8 << 20, 32 << 20
_ZERO = re.compile(b"\\0")
_BLANK = b"\r\n\0"  # of a line without a row, in UTF-16 and UTF-32, too
_UNREADABLE = (OSError, EOFError, zlib.error, UnicodeDecodeError, csv.Error)


class CsvSource(TextSource):
    """A CSV file with a header; every column is read as text.

    An empty field is a missing value. Malformed is a row that has not as many fields as
    the header.

    Attributes:
      form: How the file is written.
    """

    cut_by_scan = True

    def __init__(self, path: str, form: CsvFormat = DEFAULT.csv, head: bytes = b""):
        """See `Source`.

        Args:
          path: A file that `check` accepts.
          form: How it is written.
          head: Its first bytes, decompressed, if they are known.
        """
        self.path = path
        self.form = form
        self.names = self._read_header(head)

    @classmethod
    def open(cls, path: str, reading: Reading) -> CsvSource:
        """See `Source`."""
        return cls(path, reading.csv, cls._checked_head(path, reading))

    @classmethod
    def check_as(cls, path: str, reading: Reading) -> None:
        """See `Source`."""
        cls._checked_head(path, reading)

    @classmethod
    def _checked_head(cls, path: str, reading: Reading) -> bytes:
        head = formats.head(path)
        if not head:
            raise UserError(_empty(path))
        head = formats.unpacked(path, head)
        formats.check_text(path, head, reading.csv.encoding)
        return head

    @classmethod
    def check(cls, path: str) -> None:
        """See `Source`."""
        cls.check_as(path, DEFAULT)

    def parts(self, size: int) -> list[Part]:
        """See `Source`: byte ranges; a compressed file is one part."""
        if formats.compression(self.path) or not self.form.has_ascii_bytes:
            return [WHOLE]
        starts = csv_cuts.starts(self.path, size, self.form)
        return list(map(Part, starts, [*starts[1:], None]))

    @property
    def alike(self) -> Hashable:
        """See `Source`."""
        apart = formats.compression(self.path) or not self.form.has_ascii_bytes
        return None if apart or self.tolerant else (self.names, self.form)

    def parsed(self, contents: Sequence[bytes]) -> tuple[pa.Table, list[int]] | None:
        """See `Source`."""
        lines = [self.form.delimiter.join(self.names).encode(self.form.encoding)]
        counts = []
        for content in contents:
            rows = csv_records.rows_of(content, self.names, self.form)
            if not rows:
                return None
            lines += rows
            counts.append(len(rows))
        try:
            table = pa.csv.read_csv(
                pa.BufferReader(b"\n".join(lines)), **self._options(WHOLE)
            )
        except (pa.ArrowInvalid, UnicodeDecodeError):
            return None
        return (table, counts) if table.num_rows == sum(counts) else None

    def scan(self, part: Part) -> csv_cuts.Scan:
        """See `Source`."""
        return csv_cuts.scan(self.path, part, self.form)

    def cut(self, parts: Sequence[Part], scans: Sequence[csv_cuts.Scan]) -> list[Part]:
        """See `Source`; rejects a file with an unclosed quote."""
        row = csv_cuts.open_row(scans)
        if row is not None:
            line = csv_cuts.count_lines(self.path, row) + 1
            raise UserError(_unclosed(self.path, line))
        return csv_cuts.cut(scans)

    def batches(self, part: Part = WHOLE) -> Iterator[pa.RecordBatch]:
        """See `Source`."""
        rows, last = 0, ""
        try:
            for batch in self._open(part):
                if any(map(_has_zero_byte, batch.columns)):
                    raise UserError(formats.zero_byte(self.path, self.form.encoding))
                if batch.num_rows:
                    rows, last = rows + batch.num_rows, batch[-1][-1].as_py()
                for start in range(0, batch.num_rows, MAX_ROWS):
                    yield batch.slice(start, MAX_ROWS)
        except (pa.ArrowInvalid, OSError, UnicodeDecodeError) as error:
            raise UserError(self._explain(part, error)) from error
        if not rows and part == WHOLE and not self.malformed:
            raise UserError(_no_row(self.path))
        if part.stop is None and last and ("\n" in last or "\r" in last):
            self._check_closed(part)

    def count_rows(self, enough: int) -> int:
        """See `Source`: counts lines; a row with a quoted line break counts twice."""
        try:
            with formats.unpacked_file(self.path) as file:
                lines = (line for line in file if line.strip(_BLANK))
                return max(0, sum(1 for _ in islice(lines, enough + 1)) - 1)
        except _UNREADABLE as error:
            raise UserError(self._explain(WHOLE, error)) from error

    def copy_first(self, rows: int, path: str) -> None:
        """See `Source`."""
        csv.field_size_limit(sys.maxsize)
        form, lines = self.form, list[str]()

        def read(file: IO[str]) -> Iterator[str]:
            for line in file:
                lines.append(line)
                yield line

        with formats.unpacked_file(self.path) as file:
            text = io.TextIOWrapper(file, form.encoding, "surrogateescape", newline="")
            reader = csv.reader(read(text), **csv_records.dialect(form))
            # Reads no line behind them.
            deque(islice(filter(None, reader), rows + 1), maxlen=0)
        content = "".join(lines).encode(form.encoding, "surrogateescape")
        formats.write_packed(path, content)

    def where(self, part: Part, row: int) -> str:
        """See `Source`: a line number from 1, header included."""
        return self._place(enumerate(self._records(part)), row, row + (not part.start))

    def places(self, part: Part, rows: Sequence[int]) -> list[str]:
        """See `Source`: reads the file once for all rows."""
        records, places = enumerate(self._records(part)), []
        for row in rows:
            index = self.index_of(row)
            place = self._place(records, index, index + (not part.start))
            places.append(f"{self.path}: {place}")
        return places

    def _open(self, part: Part) -> pa.csv.CSVStreamingReader:
        source, codec = storage.open_arrow(self.path), formats.compression(self.path)
        if part.stop is not None:
            source = source.get_stream(part.start, part.stop - part.start)
        elif part.start:  # a stream to the end reads there; Cloud Storage rejects that
            source.seek(part.start)
        elif codec:
            source = pa.CompressedInputStream(source, codec)
        return pa.csv.open_csv(source, **self._options(part))

    def _options(self, part: Part) -> dict[str, Any]:
        """Arguments of Arrow's readers for a part of the file."""
        return {
            "read_options": pa.csv.ReadOptions(
                block_size=for_columns(_BLOCK_BYTES, _MOST_BYTES, len(self.names)),
                column_names=self.names if part.start else None,
                use_threads=self.malformed is None,  # else a row has no number
                encoding=self._arrow_encoding,
            ),
            "parse_options": pa.csv.ParseOptions(
                delimiter=self.form.delimiter,
                quote_char=self.form.quote or False,
                newlines_in_values=True,
                invalid_row_handler=self._handler(part),
            ),
            "convert_options": pa.csv.ConvertOptions(
                column_types=dict.fromkeys(self.names, pa.string()),
                strings_can_be_null=True,
                null_values=["", *self.form.nulls],
            ),
        }

    def _handler(self, part: Part) -> Callable[[pa.csv.InvalidRow], str] | None:
        """Notes each row with a wrong number of fields, which Arrow leaves out.

        None where none is asked for: Arrow may let go of a handler in a thread while
        Python exits, and abort.
        """
        if self.malformed is None:
            return None
        malformed = self.malformed
        records = enumerate(self._records(part))  # such rows come in their order
        header = not part.start

        def skip(row: pa.csv.InvalidRow) -> str:
            index = row.number - 1 - header
            place = self._place(records, index, index + header)
            reason = self._wrong_count(row.actual_columns, row.text)
            malformed[index] = BadRow(place, reason, row.text.strip("\r\n"))
            return "skip"

        return skip

    def _wrong_count(self, fields: int, text: str) -> str:
        remedy = "Correct the line; a field with the delimiter needs quotes."
        if "\n" in text.strip():
            remedy = "A quote stays open at its end: close it, or correct the fields."
        return (
            f"expected {len(self.names)} fields as in the header. Received: {fields}. "
            f"{remedy}"
        )

    def _read_header(self, head: bytes) -> tuple[str, ...]:
        try:
            header = csv_records.first(head, self.form)
            if not header:
                _, header = next(self._records(), (0, []))
        except _UNREADABLE as error:
            raise UserError(self._explain(WHOLE, error)) from error
        if not header:
            raise UserError(_empty(self.path))
        csv_records.check_header(self.path, header, self.form)
        check_names(self.path, header)
        return tuple(header)

    def _check_closed(self, part: Part) -> None:
        """Rejects a file that ends within quotes: the field holds the rows after it."""
        after = ["\n", "end\n"]
        with contextlib.suppress(csv.Error):  # a zero byte raises before Python 3.11
            ((line, record),) = deque(self._records(part, after), maxlen=1)
            if record != ["end"]:
                raise UserError(_unclosed(self.path, line))

    def _records(
        self, part: Part = WHOLE, after: Sequence[str] = ()
    ) -> Iterator[tuple[int, list[str]]]:
        return csv_records.records(self.path, self.form, part, after)

    def _place(
        self,
        records: Iterator[tuple[int, tuple[int, list[str]]]],
        row: int,
        index: int,
    ) -> str:
        """Where the record `index` is, the row `row`; reads no record behind it."""
        line = csv_records.line_of(records, index)
        return f"row {row + 1}" if line is None else f"line {line}"

    @property
    def _arrow_encoding(self) -> str:
        return "utf8" if self.form.is_utf8 else self.form.encoding

    def _explain(self, part: Part, error: Exception) -> str:
        line = 0
        try:
            for line, record in self._records(part):
                if line > 1 and len(record) != len(self.names):
                    text = self.form.delimiter.join(record)
                    reason = self._wrong_count(len(record), text)
                    return BadRow(f"line {line}", reason, text).problem(self.path)
            if line == 1:
                return _no_row(self.path)
        except UnicodeDecodeError:
            return formats.not_decoded(self.path, self.form.encoding)
        except (OSError, EOFError, zlib.error, csv.Error) as reading_error:
            error = reading_error
        damaged = isinstance(error, (EOFError, zlib.error, gzip.BadGzipFile)) or (
            formats.compression(self.path) is not None
            and isinstance(error, OSError)
            and not error.strerror
        )
        gone = is_remote(self.path) and not damaged
        if isinstance(error, OSError) and (gone or error.strerror):
            return formats.unreadable(self.path, error)
        if damaged:
            return (
                f"{self.path}: cannot be read: {error}. The file is cut off or "
                f"damaged: write or copy it again."
            )
        return (
            f"{self.path}: cannot be read as CSV: {error}. Expected a header and "
            f"fields separated by {self.form.delimiter!r}; correct the file."
        )


def _has_zero_byte(column: pa.StringArray) -> bool:
    """Whether a text of a column that Arrow has just read holds a zero byte."""
    _, offsets, data = column.buffers()
    if data is None:
        return False
    last = memoryview(offsets).cast("i")[column.offset + len(column)]
    return _ZERO.search(memoryview(data)[:last]) is not None  # without a copy


def _no_row(path: str) -> str:
    return f"{path}: has a header but no row. Remove the file, or put the data there."


def _unclosed(path: str, line: int) -> str:
    return (
        f"{path}: line {line}: a quote opens a field, and no other one closes it, so "
        f"the field holds all lines after it. Close it; a quote within a quoted field "
        f"is written twice."
    )


def _empty(path: str) -> str:
    return (
        f"{path}: is empty. Expected CSV with a header; remove the file, or put the "
        "data there."
    )
