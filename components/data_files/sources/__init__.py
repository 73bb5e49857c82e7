"""Data files that ExampleGen reads: a class per format, chosen by a file's name.

A new format is a subclass of `Source`, listed in `SOURCES`, or a plug-in.
`strategos validate` imports this package, so the classes import Arrow in functions.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from strategos.components.data_files.sources.reading import DEFAULT, Reading
from strategos.components.data_files.sources.source import Part, Source
from strategos.components.errors import UserError
from strategos.components.plugins import Registry
from strategos.components.wording import listed

__all__ = [
    "DEFAULT",
    "SOURCES",
    "Part",
    "Reading",
    "Source",
    "check",
    "name_of",
    "open_source",
    "suffixes",
]


def _compressed(name: str, kind: str, ends: Sequence[str]) -> dict[str, str]:
    """A format by the suffixes of its files, plain and compressed."""
    plain = {name: f"{__name__}.{kind}"}
    return plain | {f"{name}.{end}": f"{__name__}.{kind}" for end in ends}


_TEXT = ("bz2", "gz", "zst")

SOURCES: Registry[Any] = Registry(
    "strategos.sources",
    Source,
    {
        **_compressed("csv", "text.csv_source:CsvSource", _TEXT),
        "avro": f"{__name__}.avro_source:AvroSource",
        **_compressed("json", "text.json_source:JsonSource", _TEXT),
        **_compressed("jsonl", "text.json_source:JsonSource", _TEXT),
        **_compressed("ndjson", "text.json_source:JsonSource", _TEXT),
        **_compressed("tfrecord", "tfrecord_source:TfrecordSource", ["gz"]),
        **_compressed("tfrecords", "tfrecord_source:TfrecordSource", ["gz"]),
        "orc": f"{__name__}.orc_source:OrcSource",
        "parquet": f"{__name__}.parquet_source:ParquetSource",
    },
    classes=True,
)
"""Subclasses of `Source` by the suffix of file names, without its first dot."""


_OF_SHARD = re.compile(r"-\d+-of-\d+")  # TFX writes data_tfrecord-00000-of-00001.gz


def suffixes() -> list[str]:
    """Suffixes of the file names that ExampleGen reads, such as `.csv`."""
    return [f".{name}" for name in SOURCES]


def name_of(path: str) -> str | None:
    """The name in `SOURCES` of a file's format, by its suffix; None if unknown.

    Args:
      path: Path, URL or pattern of files.
    """
    plain = _OF_SHARD.sub("", path).replace("_tfrecord", ".tfrecord")
    for names in (SOURCES.own, SOURCES):  # no other package is looked for, if possible
        suffixes = [name for name in names if plain.endswith(f".{name}")]
        if suffixes:
            return max(suffixes, key=len)
    return None


def check(path: str, reading: Reading = DEFAULT) -> None:
    """Checks a file's first bytes.

    Args:
      path: The file; the end of its name says the format.
      reading: How files are read.

    Raises:
      UserError: The file cannot be opened, its content contradicts its suffix, or no
        class reads files with this suffix.
    """
    _class_for(path).check_as(path, reading)


def open_source(path: str, reading: Reading = DEFAULT) -> Source:
    """Checks a file and opens it, which reads its column names.

    Args:
      path: The file; the end of its name says the format.
      reading: How files are read.

    Raises:
      UserError: See `check`; or the file has no columns.
    """
    source = _class_for(path).open(path, reading)
    source.tolerant = reading.tolerant
    source.ignores_extra = reading.extra_columns == "ignore"
    return source


def _class_for(path: str) -> type[Source]:
    name = name_of(path)
    if name is None:
        raise UserError(
            "the format of this file is not supported",
            key="data.examples",
            received=path,
            expected=f"names that end in {listed(suffixes(), 'or')}",
        )
    kind: type[Source] = SOURCES[name]
    return kind
