"""Detects a full disk, or a limit on files, in the messages of various libraries."""

from __future__ import annotations

import os
import re
import resource
import shutil
import tempfile

from strategos.components.errors import first_line
from strategos.components.wording import data_size

# SQLite rolls back when the disk is full; the caller's commit then gets the first of
# these errors, and each later transaction of ML Metadata the second.
_ROLLED_BACK = ("cannot commit - no transaction is active", "Transaction already open")
_TOO_LARGE = ("File too large", "disk I/O error")  # the latter is SQLite's
_WORDS = ("No space left", "Disk quota exceeded", "disk is full", *_ROLLED_BACK)


def is_reported(text: str) -> bool:
    """Whether the text of an error reports a full disk, or the limit on files."""
    return any(words in text for words in _WORDS) or limit_of(text) is not None


def message(text: str, folder: str) -> str:
    """The error message for a full disk.

    Args:
      text: Text of the original error.
      folder: The pipeline root; its disk is named if `text` names no path.
    """
    limit = limit_of(text)
    if limit is not None:
        return (
            f"a file may not exceed {limit:,} bytes here, by `ulimit -f`; "
            f"{first_line(text)}. Raise the limit, `ulimit -f unlimited`, and run "
            "again: finished nodes are kept."
        )
    named = re.search(r"(?:^|[\s'\"])(/[^\s'\";:]+)", text)
    places = [named[1]] if named else [folder, tempfile.gettempdir()]
    place = min(map(_existing, places), key=lambda path: shutil.disk_usage(path).free)
    is_rolled_back = any(words in text for words in _ROLLED_BACK)
    reason = "database or disk is full" if is_rolled_back else first_line(text)
    return (
        f"no space left in {place}, {free(place)[:-1]}; {reason}). Make room there, or "
        "name folders on a larger disk (`--set run.root=DIR`; TMPDIR in the "
        "environment), and run again: finished nodes are kept."
    )


def limit_of(text: str) -> int | None:
    """The largest size of a file, if that may be the cause of an error."""
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    caused = limit != resource.RLIM_INFINITY and any(x in text for x in _TOO_LARGE)
    return limit if caused else None


def free(folder: str) -> str:
    """Describes the free space of a folder's disk: `on the disk mounted at / (…)`.

    Args:
      folder: A path; it need not exist.
    """
    disk = _existing(folder)
    usage = shutil.disk_usage(disk)
    while not os.path.ismount(disk):
        disk = os.path.dirname(disk)
    space = f"{data_size(usage.free)} of {data_size(usage.total)} free now"
    return f"on the disk mounted at {disk} ({space})"


def _existing(path: str) -> str:
    """The nearest existing folder at or above `path`, resolved."""
    path = os.path.realpath(path)
    while not os.path.isdir(path):
        path = os.path.dirname(path)
    return path
