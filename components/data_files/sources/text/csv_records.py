"""The records of a CSV file by Python's own reader: slow, but with their lines."""

from __future__ import annotations

import codecs
import contextlib
import csv
import io
import sys
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

from strategos.components.data_files import formats
from strategos.components.data_files.sources.reading import CsvFormat
from strategos.components.data_files.sources.source import WHOLE, Part
from strategos.components.data_files.sources.text import csv_cuts
from strategos.components.errors import UserError


def dialect(form: CsvFormat) -> dict[str, Any]:
    """Arguments of Python's CSV reader.

    Args:
      form: How the file is written.
    """
    if not form.quote:
        return {"delimiter": form.delimiter, "quoting": csv.QUOTE_NONE}
    return {"delimiter": form.delimiter, "quotechar": form.quote}


def records(
    path: str, form: CsvFormat, part: Part = WHOLE, after: Sequence[str] = ()
) -> Iterator[tuple[int, list[str]]]:
    """Yields each record from the start of `part` on, with its line.

    Args:
      path: The file.
      form: How it is written.
      part: The part to start at.
      after: Lines to append to the file's lines.

    Raises:
      OSError, EOFError, zlib.error, UnicodeDecodeError, csv.Error: The file cannot be
        read.
    """
    csv.field_size_limit(sys.maxsize)
    before = csv_cuts.count_lines(path, part.start)
    encoding = "utf-8-sig" if form.is_utf8 and not part.start else form.encoding
    with formats.unpacked_file(path) as file:
        if part.start:
            file.seek(part.start)
        text = io.TextIOWrapper(file, encoding, newline="")
        reader = csv.reader(chain(text, after), **dialect(form))
        line = before + 1
        for record in reader:
            if record:
                yield line, record
            line = before + reader.line_num + 1


def first(head: bytes, form: CsvFormat) -> list[str]:
    """The first record; [] if it may not end within the first bytes of a file.

    Args:
      head: The first bytes, decompressed.
      form: How the file is written.
    """
    if not form.is_utf8 or (form.quote and form.quote.encode() in head):
        return []
    lines = head.removeprefix(codecs.BOM_UTF8).splitlines()[:-1]  # the last may go on
    try:
        text = next(filter(None, lines), b"").decode()
    except UnicodeDecodeError:
        return []
    return next(csv.reader([text], **dialect(form)), [])


def rows_of(content: bytes, names: tuple[str, ...], form: CsvFormat) -> list[bytes]:
    """The rows of a small file as it has them; [] unless they are beyond doubt.

    Args:
      content: The file, in an encoding that `has_ascii_bytes`.
      names: The header that it should have.
      form: How it is written.
    """
    content = content.removeprefix(codecs.BOM_UTF8)
    quote = form.quote.encode()
    if b"\0" in content:
        return []
    if quote and quote in content:
        return _quoted(content.splitlines(keepends=True), names, form)
    header, *rows = [*filter(None, content.splitlines())] or [b""]
    own = header.decode(form.encoding, "replace").split(form.delimiter)
    return rows if tuple(own) == names else []


def _quoted(
    lines: Sequence[bytes], names: tuple[str, ...], form: CsvFormat
) -> list[bytes]:
    """The rows of a file with possible line breaks within quotes."""
    rows, start, header = list[bytes](), 0, tuple[str, ...]()
    try:
        text = [line.decode(form.encoding) for line in lines]
        # Strict: an error where a quote stays open.
        reader = csv.reader(text, strict=True, **dialect(form))
        for record in filter(None, reader):
            row = b"".join(lines[start : reader.line_num])
            start, header = reader.line_num, header or tuple(record)
            rows.append(row.strip(b"\r\n"))
    except (csv.Error, UnicodeDecodeError):
        return []
    return rows[1:] if header == names else []


def line_of(
    numbered: Iterator[tuple[int, tuple[int, list[str]]]], index: int
) -> int | None:
    """The line of the record `index`; None if it cannot be found.

    Args:
      numbered: Records, numbered; none behind the one that is found is read.
      index: Number of the record.
    """
    with contextlib.suppress(csv.Error):  # a zero byte raises before Python 3.11
        for at, (line, _) in numbered:
            if at == index:
                return line
    return None


def check_header(path: str, header: Sequence[str], form: CsvFormat) -> None:
    """Rejects a first line that is no header, e.g. `a;b;c` for a delimiter `,`.

    Raises:
      UserError: Names the likely cause.
    """
    between = form.delimiter
    if header[0].lower().startswith("sep=") and len(header) <= 2:
        raise UserError(
            f"{path}: line 1 is `{between.join(header)}`, which is for Excel. Remove "
            f"the line: the header comes first, and fields are separated by "
            f"{between!r}."
        )
    if header[0].startswith("#") and len(header) == 1:
        raise UserError(
            f"{path}: line 1 is a comment, `{header[0][:100]}`. Remove the line: the "
            "header comes first."
        )
    signs = [sign for sign in ",;\t|" if len(header) == 1 and sign in header[0]]
    if signs:
        raise UserError(
            f"{path}: the header is one column, `{header[0][:100]}`. Fields are "
            f"separated by {between!r}, not by {signs[0]!r}: set `data.csv: "
            f"{{delimiter: {_yaml(signs[0])}}}`, or write the file again."
        )


def _yaml(sign: str) -> str:
    return '"\\t"' if sign == "\t" else f'"{sign}"'
