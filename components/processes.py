"""Starts and ends child processes so that none outlives its parent."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import psutil

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_LOOK_SECONDS = 0.005
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD)


class Grace:
    """Seconds from SIGTERM to SIGKILL.

    The first four wait for one another: an outer process has more time than the next
    inner process, to report how the inner process ended.

    Attributes:
      RUN: A run, for the process that called `strategos.run`.
      NODE: The process of a run's nodes, with its children; a pod of a training.
      GANG: The processes of a training on one host.
      SAVE: The tasks of a training, which save a checkpoint.
      ENGINE: The host of a Flink cluster, which cancels jobs on a permanent cluster.
      WORKER: A process that has nothing to save.
    """

    RUN = 40.0
    NODE = 30.0
    GANG = 25.0
    SAVE = 20.0
    ENGINE = 15.0
    WORKER = 5.0


def start(module: str, arguments: Sequence[str], **how: Any) -> subprocess.Popen[bytes]:
    """Starts `python -m module` in a new session.

    Args:
      module: The module to run. Its first argument is this process's id, for
        `die_with_parent`.
      arguments: Further arguments.
      **how: Keyword arguments of `subprocess.Popen`.
    """
    command = [sys.executable, "-m", module, str(os.getpid()), *arguments]
    return subprocess.Popen(command, start_new_session=True, **how)


def fork() -> int:
    """`os.fork`, without Python's warning of other threads.

    Call it where other threads only wait: for the parent's end, for the next request or
    for work of a library.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def die_with_parent(parent: int, sig: int = signal.SIGKILL) -> None:
    """Makes the kernel send `sig` to this process when its parent dies.

    The child calls this before slow imports. The kernel watches the parent's *thread*
    that forked, so that thread must live until the child ends.

    Args:
      parent: The parent's process id, passed by the parent. After the parent's death,
        `os.getppid` would return the id of the process that adopts orphans.
      sig: The signal.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_PDEATHSIG, int(sig), 0, 0, 0)
    if os.getppid() != parent:  # the parent died before the call to prctl
        os.kill(os.getpid(), sig)


def peer(connection: socket.socket) -> tuple[int, int]:
    """Ids of the process and user at the other end of a Unix socket, by the kernel.

    For a client, the process is the one that called `listen` last.
    """
    size = struct.calcsize("3i")
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    process, user, _ = struct.unpack("3i", credentials)
    return process, user


def when_ended(descriptor: int, act: Callable[[], None]) -> None:
    """Calls `act`, in a thread, once the process behind a file descriptor has ended.

    Args:
      descriptor: A pidfd; or a pipe that the process keeps open and never writes to.
      act: Kills this process, for example.
    """

    def wait() -> None:
        with contextlib.suppress(OSError):
            select.select([descriptor], [], [])
        act()

    threading.Thread(target=wait, daemon=True).start()


def adopt_orphans(adopt: bool = True) -> None:
    """Makes this process the new parent of its children's orphaned processes.

    Args:
      adopt: False restores the default: init adopts them.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, int(adopt), 0, 0, 0)


def children() -> set[int]:
    """Process ids of this process's children, including zombies."""
    return {each.pid for each in psutil.Process().children()}


def end_children(others: set[int], until: float) -> None:
    """Kills this process's children and all their descendants, after `adopt_orphans`.

    The end of a child makes its own children this process's; the loop ends when none
    is left.

    Args:
      others: Process ids of children to spare.
      until: Deadline, in seconds of `time.monotonic()`.
    """
    while left := children() - others:
        for pid in left:
            with contextlib.suppress(ProcessLookupError, ChildProcessError):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, os.WNOHANG)
        if time.monotonic() > until:
            return
        time.sleep(_LOOK_SECONDS)


@contextlib.contextmanager
def without_collections() -> Iterator[None]:
    """Imports in the block cause no garbage collections.

    TFX, TensorFlow and Beam make half a million objects that live as long as the
    process. Collections while they are imported take a quarter of the time and find
    nothing; later collections skip these objects.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()


def return_freed_memory() -> None:
    """Returns memory that this process has freed to the system.

    The C library keeps freed pieces between others: a hundred megabytes after a node,
    as much as the columns after examples are parsed. Takes milliseconds. Without effect
    with other C libraries.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


class Signals:
    """Makes SIGTERM, SIGINT and SIGCHLD readable by `select`, as a file descriptor.

    Attributes:
      stop_requested: Whether SIGTERM or SIGINT was received.
    """

    def __init__(self) -> None:
        self.stop_requested = False

    def install(self) -> None:
        """Installs the signal handlers. Call it in the main thread."""
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)
        self._fd = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        self._handlers = {sig: signal.signal(sig, self._note) for sig in _SIGNALS}

    def restore(self) -> None:
        """Restores the signal handlers from before `install`."""
        for sig, handler in self._handlers.items():
            signal.signal(sig, handler)
        signal.set_wakeup_fd(self._fd)
        os.close(self._read)
        os.close(self._write)

    def reset_in_fork(self) -> None:
        """Resets a forked child to default handlers; the child ignores SIGINT."""
        signal.set_wakeup_fd(-1)
        os.close(self._read)
        os.close(self._write)
        for sig in _SIGNALS:
            signal.signal(sig, signal.SIG_DFL)
        # The parent receives the same Ctrl-C, and sends SIGTERM.
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    def fileno(self) -> int:
        """File descriptor, readable after a signal."""
        return self._read

    def clear(self) -> None:
        """Empties the file descriptor, so that `select` waits for the next signal."""
        with contextlib.suppress(BlockingIOError):
            os.read(self._read, 4096)

    def _note(self, sig: int, _: object) -> None:
        self.stop_requested |= sig != signal.SIGCHLD


class Leader(Protocol):
    """The first process of a session: a `Popen`, or a fork of a server."""

    pid: int

    def poll(self) -> int | None:
        """The exit code; None while the process runs."""

    def terminate(self) -> None:
        """Sends SIGTERM."""

    def wait(self, timeout: float | None = None) -> int:
        """Waits for the end; returns the exit code."""


def end_session(
    process: Leader, grace: float = Grace.NODE, *, ask_all: bool = True
) -> None:
    """Sends SIGTERM to a session, then SIGKILL to its remaining processes.

    An exception during the wait, such as KeyboardInterrupt, sends SIGKILL at once.

    Args:
      process: The session's leader.
      grace: Seconds from SIGTERM to SIGKILL.
      ask_all: Whether all processes of the session get SIGTERM. If False, only the
        leader does, and ends its children itself.
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
