"""Commits: readers see a file or folder as before, or complete, but never a part of it.

A local file or folder is written aside and then renamed. An object appears as a whole;
a folder in an object store is complete once its marker, the last object, is written.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def aside(
    target: str | Path, name: str = "", *, shared: bool = False
) -> Iterator[Path]:
    """Yields a path for new content, which is renamed to `target` after the block.

    If the block fails, the new content is removed, and `target` stays as it was.

    Args:
      target: A file, which is replaced; or a folder, which is missing or empty.
      name: Name of the path, beside `target`. Default: a hidden one that no other
        process uses and no glob such as `*.json` finds. A fixed name suits large
        content: the leftover of a killed process is removed first.
      shared: Whether other processes write equal content: if one of them completes the
        folder first, it stays, and no error is raised.

    Raises:
      OSError: The content cannot be renamed.
    """
    target = Path(target)
    made = target.with_name(name or f".{target.name}.{uuid.uuid4().hex}")
    if name:
        remove(made)
    try:
        yield made
        os.replace(made, target)
    except BaseException as error:
        with contextlib.suppress(OSError):
            remove(made)
        if not (shared and isinstance(error, OSError) and target.is_dir()):
            raise


def write(target: str | Path, content: str | bytes) -> None:
    """Replaces the content of a file, or makes the file.

    Args:
      target: The file, in an existing folder.
      content: The new content; text becomes UTF-8.

    Raises:
      OSError: The file cannot be written.
    """
    with aside(target) as made:
        made.write_bytes(content.encode() if isinstance(content, str) else content)


def remove(path: str | Path) -> None:
    """Removes a file, a link or a folder, if it exists; the target of a link stays.

    Args:
      path: The path.

    Raises:
      OSError: The path cannot be removed.
    """
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    else:
        Path(path).unlink(missing_ok=True)
