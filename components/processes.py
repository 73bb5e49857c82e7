"""Processes that never outlive the one that started them."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_LOOK_SECONDS = 0.005
GRACE_SECONDS = 30.0
"""Time for a process to end after SIGTERM: a training saves a checkpoint first."""
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD)


def start(module: str, arguments: Sequence[str], **how: Any) -> subprocess.Popen[bytes]:
    """Starts `python -m module` in a session of its own.

    Args:
      module: The module; it gets this process's id first, for `die_with_parent`.
      arguments: Its further arguments.
      **how: The other settings of a `subprocess.Popen`.
    """
    command = [sys.executable, "-m", module, str(os.getpid()), *arguments]
    return subprocess.Popen(command, start_new_session=True, **how)


def die_with_parent(parent: int, sig: int = signal.SIGKILL) -> None:
    """Has the kernel send `sig` to this process when its parent dies.

    Called by the child, before it imports anything that takes time. The kernel follows
    the parent's *thread* that forked, so that thread must stay until the child ends.

    Args:
      parent: The parent's process id, as the parent itself has told it: who asks for it
        here may come too late, and be told of whoever adopts orphans.
      sig: The signal.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_PDEATHSIG, int(sig), 0, 0, 0)
    if os.getppid() != parent:  # it died before the kernel was told
        os.kill(os.getpid(), sig)


def adopt_orphans(adopt: bool = True) -> None:
    """Makes this process the parent of all that its children leave behind, or not."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, int(adopt), 0, 0, 0)


def children() -> set[int]:
    """Process ids of this process's children, those that ended unnoticed included."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it ended in between
            # Bytes: what anyone calls a process need not be UTF-8.
            _, parent = path.read_bytes().rpartition(b")")[2].split()[:2]
            if int(parent) == os.getpid():
                found.add(int(path.parent.name))
    return found


def end_children(others: set[int], until: float) -> None:
    """Kills this process's children and all that they leave behind to it.

    Each one's end brings its children here (see `adopt_orphans`): until none is left.

    Args:
      others: Children that stay.
      until: When to stop waiting for their end, by the monotonic clock.
    """
    while left := children() - others:
        for pid in left:
            with contextlib.suppress(ProcessLookupError, ChildProcessError):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, os.WNOHANG)
        if time.monotonic() > until:
            return
        time.sleep(_LOOK_SECONDS)


class Signals:
    """SIGTERM, SIGINT and SIGCHLD as something that `select` can wait for."""

    def __init__(self) -> None:
        self.asked_to_end = False

    def take(self) -> None:
        """Handles the signals from now on."""
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)
        self._fd = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        self._handlers = {sig: signal.signal(sig, self._note) for sig in _SIGNALS}

    def give_back(self) -> None:
        """Restores what was before `take`."""
        for sig, handler in self._handlers.items():
            signal.signal(sig, handler)
        signal.set_wakeup_fd(self._fd)
        os.close(self._read)
        os.close(self._write)

    def forget(self) -> None:
        """In a fork: the signals do there what they do anywhere."""
        signal.set_wakeup_fd(-1)
        os.close(self._read)
        os.close(self._write)
        for sig in _SIGNALS:
            signal.signal(sig, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent turns it to SIGTERM

    def fileno(self) -> int:
        """Readable when a signal came."""
        return self._read

    def clear(self) -> None:
        """Makes it unreadable again."""
        with contextlib.suppress(BlockingIOError):
            os.read(self._read, 4096)

    def _note(self, sig: int, _: object) -> None:
        self.asked_to_end |= sig != signal.SIGCHLD


def end_session(
    process: subprocess.Popen, grace: float = GRACE_SECONDS, *, ask_all: bool = True
) -> None:
    """Asks the leader of a session to end, then kills all that is left of the session.

    An interrupt while this waits kills the session at once.

    Args:
      process: The leader.
      grace: Seconds from SIGTERM to SIGKILL.
      ask_all: Whether all processes of the session get SIGTERM; else the leader alone,
        and it decides what its children get.
    """
    try:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM) if ask_all else process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(grace)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
