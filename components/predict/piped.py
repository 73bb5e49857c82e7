"""Rows from standard input, pipes, JSON documents and files by path."""

from __future__ import annotations

import codecs
import contextlib
import dataclasses
import json
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from strategos.components import errors
from strategos.components.errors import BadInputError, Place, UserError, required
from strategos.components.slow_imports import pa

STDIN = "-"
"""Stands for standard input in place of a path."""

_HEAD = 4096
_SPACE = re.compile(r"[ \t\n\r]*")


@dataclasses.dataclass(frozen=True)
class OnDisk:
    """Rows in a file that can be read more than once.

    Attributes:
      path: The file, which may be a copy of the rows.
      rows: The rows as the user names them.
      has_document: Whether each line of the copy is a row of a JSON document.
    """

    path: str
    rows: str
    has_document: bool = False

    def named(self, text: str) -> str:
        """A message with the rows in place of the copy.

        Args:
          text: Names `path`.
        """
        name = "standard input" if self.rows == STDIN else self.rows
        if self.has_document:
            text = text.replace(f"{self.path}: line ", f"{name}: row ")
        return text.replace(self.path, name)


@contextlib.contextmanager
def on_disk(rows: str) -> Iterator[OnDisk]:
    """Yields the file of the rows; for standard input and pipes, a copy.

    Raises:
      BadInputError: The rows cannot be read; the message names `rows`, not the copy.
    """
    with tempfile.TemporaryDirectory(prefix="rows-") as folder:
        path = _copied(rows, folder) if _is_piped(rows) else rows
        lines = _lines_of(path, f"{folder}/lines.jsonl")
        file = OnDisk(lines or path, rows, lines is not None)
        try:
            yield file
        except UserError as error:
            described = {**error.to_json(), "type": BadInputError.__name__}
            raise errors.from_json(_each_text(described, file.named)) from error


def _each_text(value: Any, change: Callable[[str], str]) -> Any:
    """The JSON-able value with each text in it changed."""
    if isinstance(value, dict):
        return {name: _each_text(each, change) for name, each in value.items()}
    return change(value) if isinstance(value, str) else value


def _lines_of(path: str, copy: str) -> str | None:
    """Writes a JSON document, a row or a list of rows, as JSON lines.

    Returns:
      `copy`; None if the file is none, such as JSON lines.
    """
    with open(path, "rb") as file:
        head = file.read(_HEAD).removeprefix(codecs.BOM_UTF8)
        if head.lstrip()[:1] not in (b"[", b"{"):
            return None
        file.seek(0)
        with contextlib.suppress(ValueError):
            if isinstance(json.loads(file.readline()), dict) and file.readline():
                return None
        file.seek(0)
        try:
            rows = _rows_of(file.read().decode("utf-8-sig"))
        except ValueError:
            return None  # reported by the source of the file
    Path(copy).write_bytes("".join(f"{row}\n" for row in rows).encode())
    return copy


def _rows_of(document: str) -> list[str]:
    """The text of each row of a JSON document, on one line.

    The text stays as it is, so that the source of JSON lines sees each digit and a key
    that occurs twice.

    Raises:
      ValueError: The document is not JSON.
    """
    json.loads(document)
    if document.lstrip().startswith("{"):
        return [_on_one_line(document)]
    rows, decoder = [], json.JSONDecoder()
    start = _after_space(document, document.index("[") + 1)
    while document[start] != "]":
        _, end = decoder.raw_decode(document, start)
        rows.append(_on_one_line(document[start:end]))
        start = _after_space(document, end)
        if document[start] == ",":
            start = _after_space(document, start + 1)
    return rows


def _on_one_line(row: str) -> str:
    """The text of a row; line breaks stand outside of the strings of JSON."""
    return row.replace("\n", " ").replace("\r", " ")


def _after_space(text: str, start: int) -> int:
    """The place of the first character from `start` on that is no space of JSON."""
    return required(_SPACE.match(text, start)).end()


def _is_piped(rows: str) -> bool:
    """Whether rows can be read only once: sources seek, and read again for errors."""
    if rows == STDIN:
        return True
    try:
        return stat.S_ISFIFO(os.stat(rows).st_mode)
    except OSError as error:
        raise BadInputError(str(error.strerror), place=Place(rows)) from error


def _copied(rows: str, folder: str) -> str:
    """Copies standard input or a pipe to a file with the suffix of its format."""
    from strategos.components.data_files import formats

    opened = os.dup(0) if rows == STDIN else rows
    with open(opened, "rb") as source, open(f"{folder}/rows", "wb") as copy:
        shutil.copyfileobj(source, copy)
    suffix = formats.suffix(formats.head(f"{folder}/rows"))
    return shutil.move(f"{folder}/rows", f"{folder}/rows{suffix}")


def contents(name: str, paths: pa.Array, folder: Path) -> pa.Array:
    """The contents of files, null for no path.

    Args:
      name: The column with the paths.
      paths: text[rows], null for a missing value.
      folder: The base of relative paths.

    Raises:
      BadValueError: A file cannot be read.
    """
    from strategos.components.data_files.values import features

    values: list[bytes | None] = []
    for row, path in enumerate(paths.to_pylist()):
        try:
            values.append(folder.joinpath(str(path)).read_bytes() if path else None)
        except (OSError, ValueError) as error:
            reason = f"the file cannot be read: {getattr(error, 'strerror', error)}"
            raise features.BadValueError(name, row, path, reason) from error
    return pa.array(values, pa.binary())
