"""Guesses how a CSV file is written, from its first lines."""

from __future__ import annotations

import csv
import re
from collections import Counter

from strategos.components.data_files import formats
from strategos.components.data_files.sources.reading import CsvFormat

_READ_BYTES = 1 << 16
_LINES = 50
_DELIMITERS = (",", ";", "\t", "|")
_DECIMAL_COMMA = re.compile(r"\s*[+-]?\d+,\d+\s*")


def guess(path: str) -> CsvFormat:
    """The delimiter, encoding and decimal mark of a CSV file.

    The delimiter is the one that cuts most lines into the same number of fields, of
    several the one with more fields. A file that is not UTF-8 is taken for
    windows-1252, and a comma for the decimal mark if it separates no fields and is in
    more fields as `1,5` than a point as `1.5`.

    Args:
      path: The file.

    Raises:
      OSError: It cannot be read.
    """
    with formats.unpacked_file(path) as file:
        start = file.read(_READ_BYTES)
    text, encoding = _decoded(start)
    lines = text.splitlines()[:_LINES]
    # The last line may be cut.
    lines = lines[:-1] if len(start) == _READ_BYTES and len(lines) > 1 else lines
    cuts = {each: list(csv.reader(lines, delimiter=each)) for each in _DELIMITERS}
    delimiter = max(_DELIMITERS, key=lambda each: _fitness(cuts[each]))
    fields = [field for row in cuts[delimiter][1:] for field in row]
    commas = sum(bool(_DECIMAL_COMMA.fullmatch(field)) for field in fields)
    points = sum(bool(re.fullmatch(r"\s*[+-]?\d+\.\d+\s*", field)) for field in fields)
    decimal = "," if delimiter != "," and commas > points else "."
    return CsvFormat(delimiter=delimiter, decimal=decimal, encoding=encoding)


def _decoded(start: bytes) -> tuple[str, str]:
    if start.startswith((b"\xff\xfe", b"\xfe\xff")):
        return start.decode("utf-16", "replace"), "utf-16"
    try:
        cut = start if len(start) < _READ_BYTES else start[: start.rfind(b"\n") + 1]
        return cut.decode("utf-8-sig"), CsvFormat.encoding
    except UnicodeDecodeError:
        return start.decode("windows-1252", "replace"), "windows-1252"


def _fitness(rows: list[list[str]]) -> tuple[int, int]:
    """How many lines have the most frequent number of fields, and this number."""
    counts = Counter(len(row) for row in rows if row)
    if not counts:
        return 0, 0
    fields, lines = counts.most_common(1)[0]
    return (lines, fields) if fields > 1 else (0, fields)
