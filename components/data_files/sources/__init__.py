"""Data files that ExampleGen reads: a class per format, chosen by a file's name.

A new format is a subclass of `Source` in a module of this folder, listed in `SOURCES`.
`strategos validate` imports this package, so the classes import Arrow in functions.
"""

from __future__ import annotations

from strategos.components.data_files.sources.csv_source import CsvSource
from strategos.components.data_files.sources.parquet_source import ParquetSource
from strategos.components.data_files.sources.source import Part, Source
from strategos.components.errors import UserError
from strategos.components.wording import listed

__all__ = ["SOURCES", "SUFFIXES", "Part", "Source", "check", "open_source"]

SOURCES: tuple[type[Source], ...] = (CsvSource, ParquetSource)

SUFFIXES = tuple(suffix for kind in SOURCES for suffix in kind.suffixes)
"""Suffixes of the file names that ExampleGen reads."""


def check(path: str) -> type[Source]:
    """Selects the class for a file by its name, and checks the file's first bytes.

    Raises:
      UserError: The file cannot be opened, its content contradicts its suffix, or no
        class reads files with this suffix.
    """
    for kind in SOURCES:
        if path.endswith(kind.suffixes):
            kind.check(path)
            return kind
    raise UserError(
        "whose format is not supported",
        key="data.examples",
        received=path,
        expected=f"names that end in {listed(SUFFIXES, 'or')}",
    )


def open_source(path: str) -> Source:
    """Checks a file and opens it, which reads its column names.

    Raises:
      UserError: See `check`; or the file has no columns, or is Parquet without rows.
    """
    return check(path)(path)
