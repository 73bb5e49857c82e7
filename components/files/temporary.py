"""Temporary folders; the next process removes the folders of killed processes."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

_PREFIX = "strategos-"
_NEW_SECONDS = 60.0  # a folder may exist for a moment before it is locked


@contextlib.contextmanager
def folder() -> Iterator[str]:
    """A temporary folder for a process and its children, removed at the end.

    Only this user can read the folder. It stays locked while this process lives:
    folders without a lock were left by killed processes, and are removed first.
    """
    with contextlib.suppress(OSError):
        _remove_abandoned(Path(tempfile.gettempdir()))
    with tempfile.TemporaryDirectory(
        prefix=_PREFIX, ignore_cleanup_errors=True
    ) as made:
        descriptor = os.open(made, os.O_RDONLY | os.O_DIRECTORY)
        try:
            with contextlib.suppress(OSError):  # not every file system has locks
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield made
        finally:
            os.close(descriptor)


@contextlib.contextmanager
def shared(name: str) -> Iterator[str]:
    """A temporary folder with the same path in all processes that pass the same name.

    Only this user can read the folder. The last process that leaves the block removes
    it; if that process was killed, a later call of `folder` does.

    Args:
      name: A unique part of the folder's name.
    """
    made = Path(tempfile.gettempdir(), f"{_PREFIX}{name}")
    made.mkdir(mode=stat.S_IRWXU, exist_ok=True)
    descriptor = os.open(made, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        yield str(made)
    finally:
        with contextlib.suppress(OSError):  # another process uses it
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(made, ignore_errors=True)
        os.close(descriptor)


def _remove_abandoned(parent: Path) -> None:
    for path in parent.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):  # a link, no folder, or another user's
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                if _is_abandoned(descriptor):
                    shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(descriptor)


def _is_abandoned(descriptor: int) -> bool:
    about = os.fstat(descriptor)
    private = stat.S_IMODE(about.st_mode) == stat.S_IRWXU  # as `tempfile` makes them
    if about.st_uid != os.geteuid() or not private:
        return False
    if time.time() - about.st_mtime < _NEW_SECONDS:
        return False
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return True
