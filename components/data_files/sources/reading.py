"""How data files are read, beyond their format: settings of `data`."""

from __future__ import annotations

import codecs
import dataclasses
import json
from typing import Any

UTF8 = "utf-8"


@dataclasses.dataclass(frozen=True)
class CsvFormat:
    """How CSV files are written.

    Attributes:
      delimiter: The character between fields.
      quote: The character around fields with delimiters or line breaks; "" for none.
      decimal: The decimal mark of numbers, `.` or `,`.
      encoding: A text encoding of Python.
      nulls: Spellings of a missing value in every column, besides an empty field.
    """

    delimiter: str = ","
    quote: str = '"'
    decimal: str = "."
    encoding: str = UTF8
    nulls: tuple[str, ...] = ()

    @property
    def is_utf8(self) -> bool:
        """Whether the encoding is UTF-8, with or without a byte order mark."""
        return codecs.lookup(self.encoding).name in (UTF8, "utf-8-sig")

    @property
    def has_ascii_bytes(self) -> bool:
        """Whether the byte of an ASCII character always stands for this character.

        True for UTF-8 and encodings of one byte per character: only then can a search
        for bytes find where rows begin.
        """
        if self.is_utf8:
            return True
        every = bytes(range(256))
        try:
            text = every.decode(self.encoding, "replace")
        except UnicodeDecodeError:
            return False
        return len(text) == len(every) and text[:128] == every[:128].decode("ascii")


@dataclasses.dataclass(frozen=True)
class Reading:
    """How the files of a run are read.

    Attributes:
      csv: How CSV files are written.
      on_bad_row: `fail` or `quarantine`: what happens to a row that cannot be read.
      max_bad_fraction: The share of rows that may be rejected, 0 to 1.
      extra_columns: `fail` or `ignore`: what happens to columns that no schema
        declares, or that not all files have.
      step_lengths: Lists of SequenceExamples with any number of values at a step.
    """

    csv: CsvFormat = CsvFormat()
    on_bad_row: str = "fail"
    max_bad_fraction: float = 0.01
    extra_columns: str = "fail"
    step_lengths: tuple[str, ...] = ()

    @property
    def tolerant(self) -> bool:
        """Whether rows that cannot be read are set aside."""
        return self.on_bad_row == "quarantine"

    @classmethod
    def from_json(cls, text: str) -> Reading:
        """Parses a result of `to_json`; "" stands for the defaults."""
        values: dict[str, Any] = json.loads(text or "{}")
        csv = values.pop("csv", {})
        nulls = tuple(csv.pop("nulls", ()))
        lengths = tuple(values.pop("step_lengths", ()))
        form = CsvFormat(**csv, nulls=nulls)
        return cls(csv=form, step_lengths=lengths, **values)

    def to_json(self) -> str:
        """The settings that differ from the defaults, as JSON."""
        default = dataclasses.asdict(Reading())
        mine = dataclasses.asdict(self)
        mine["csv"] = {k: v for k, v in mine["csv"].items() if v != default["csv"][k]}
        default["csv"] = {}
        return json.dumps({k: v for k, v in mine.items() if v != default[k]})


DEFAULT = Reading()

_WIDE = 512  # columns


def for_columns(size: int, most: int, columns: int) -> int:
    """Bytes of rows that are worth the calls for each column.

    Args:
      size: Bytes for a table of up to 512 columns.
      most: Bytes at most.
      columns: Number of columns.
    """
    return max(size, min(size * columns // _WIDE, most))
