"""Rows from standard input, pipes, JSON documents and files by path."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from strategos.components import errors
from strategos.components.errors import BadInputError, Place, UserError
from strategos.components.slow_imports import pa

STDIN = "-"
"""Stands for standard input in place of a path."""

_HEAD = 4096


@contextlib.contextmanager
def on_disk(rows: str) -> Iterator[str]:
    """Yields the path of the rows; for standard input and pipes, of a copy.

    Raises:
      BadInputError: The rows cannot be read; the message names `rows`, not the copy.
    """
    with tempfile.TemporaryDirectory(prefix="rows-") as folder:
        path = _copied(rows, folder) if _is_piped(rows) else rows
        lines = _lines_of(path, f"{folder}/lines.jsonl")
        try:
            yield lines or path
        except UserError as error:
            described = {**error.to_json(), "type": BadInputError.__name__}
            name = "standard input" if rows == STDIN else rows
            text = json.dumps(described)
            if lines:  # a line has one row of the document
                text = text.replace(f"{lines}: line ", f"{name}: row ")
            text = text.replace(json.dumps(lines or path)[1:-1], name)
            raise errors.from_json(json.loads(text)) from error


def _lines_of(path: str, copy: str) -> str | None:
    """Writes a JSON document, a row or a list of rows, as JSON lines.

    Returns:
      `copy`; None if the file is none, such as JSON lines.
    """
    with open(path, "rb") as file:
        if file.read(_HEAD).lstrip()[:1] not in (b"[", b"{"):
            return None
        file.seek(0)
        with contextlib.suppress(ValueError):
            if isinstance(json.loads(file.readline()), dict) and file.readline():
                return None
        file.seek(0)
        try:
            document = json.load(file)
        except ValueError:
            return None  # reported by the source of the file
    rows = document if isinstance(document, list) else [document]
    lines = (json.dumps(row, ensure_ascii=False) for row in rows)
    Path(copy).write_text("".join(f"{line}\n" for line in lines))
    return copy


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
