"""One run at a time on a pipeline root.

The lock is the kernel's (`flock`): the kernel releases it however the holder ends, so a
lock is never stale. The file's content only names the holder. It excludes runs on this
machine; `lease` excludes runs on other machines.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import json
import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from strategos.components.errors import BadInputError
from strategos.components.files.filesystems import is_remote
from strategos.pipeline.root.state import make_state, state_folder

_LOOK_SECONDS = 0.5  # longer than `holder` takes the lock to check it


def lock_file(root: str | Path) -> Path:
    """The path of the lock file of a pipeline root."""
    return state_folder(root) / "lock"


class HeldError(BadInputError):
    """Another run holds the lock."""


@contextlib.contextmanager
def hold(root: str | Path, **about: Any) -> Iterator[Callable[..., None]]:
    """Holds the root's lock while the block runs.

    Args:
      root: The pipeline root, a path or a URL.
      **about: Facts about the holder for messages of others, e.g. `run_id`.

    Yields:
      A function that replaces these facts; takes the same arguments.

    Raises:
      HeldError: Another run holds it; the message names that run.
      BadInputError: The root cannot be written.
    """
    path = lock_file(root)
    try:
        make_state(path.parent)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        remedy = "choose another root with `--set run.root=DIR`"
        if is_remote(str(root)):
            remedy = "set XDG_STATE_HOME to a folder that can be written"
        raise BadInputError(
            f"{path.parent}: cannot be written ({error.strerror}), and must hold the "
            f"lock of the pipeline root {root}. Make it writable, or {remedy}."
        ) from error
    try:
        if not _taken(descriptor):
            raise HeldError(
                f"{root}: {held_by(_read(path))}. Two runs on one root would overwrite "
                "each other: wait for it, stop it, or use another run.root."
            )
        _name(descriptor, **about)
        yield functools.partial(_name, descriptor)
        os.ftruncate(descriptor, 0)
    finally:
        os.close(descriptor)


def holder(root: str | Path) -> dict[str, Any] | None:
    """The holder of the root's lock: `run_id`, `pid`, `host`, `since`; None if free.

    Args:
      root: The pipeline root, a path or a URL.
    """
    path = lock_file(root)
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _read(path)
    finally:
        os.close(descriptor)
    return None


def held_by(who: Mapping[str, Any]) -> str:
    """Describes a holder, as from `holder`, for a `HeldError`."""
    since = time.strftime("%H:%M:%S", time.localtime(who.get("since", time.time())))
    return (
        f"run {who.get('run_id', '?')} has been running since {since} (process "
        f"{who.get('pid', '?')} on {who.get('host', '?')})"
    )


def _name(descriptor: int, **about: Any) -> None:
    holder = {"pid": os.getpid(), "host": socket.gethostname()}
    holder |= {"since": time.time(), **about}
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, json.dumps(holder).encode(), 0)


def _taken(descriptor: int) -> bool:
    """Takes the lock and returns whether it did; waits out a check by `holder`."""
    until = time.monotonic() + _LOOK_SECONDS
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() > until:
                return False
        time.sleep(0.01)


def _read(path: Path) -> dict[str, Any]:
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
