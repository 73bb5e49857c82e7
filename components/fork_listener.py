"""The server's side of `fork_server`: listens, and forks for each connection."""

from __future__ import annotations

import contextlib
import fcntl
import importlib
import json
import os
import runpy
import select
import signal
import socket
import sys
import tempfile
import traceback
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from strategos.components import processes

SIZE = 1 << 17
"""The most bytes of a message: the environment."""

_MOST_DESCRIPTORS = 16  # that come with a message
_HIGH = 200  # file descriptors that no request names
_SIGNALS: dict[int, Any] = {
    signal.SIGTERM: signal.SIG_DFL,
    signal.SIGINT: signal.default_int_handler,
}
"""Signals that ask to end, and how a new Python process handles them."""


def listen(
    path: str, kind: int = socket.SOCK_SEQPACKET, mode: int | None = None
) -> socket.socket:
    """Opens a socket for `serve`, or for another server; requests wait until then.

    Args:
      path: Path of the socket, in a folder that only trusted processes may enter.
      kind: Type of the socket.
      mode: Permissions of the socket, such as 0o600; by default those of the umask.
    """
    listening = socket.socket(socket.AF_UNIX, kind)
    with short(path) as address:
        listening.bind(address)
        if mode is not None:
            os.chmod(address, mode)  # nobody can connect before `listen`
    listening.listen(64)
    return listening


def connect(path: str, kind: int = socket.SOCK_SEQPACKET) -> socket.socket | None:
    """A connection to the server at a path; None if no server of that path runs.

    Args:
      path: Path of the socket.
      kind: Type of the socket.
    """
    connection = socket.socket(socket.AF_UNIX, kind)
    try:
        with short(path) as address:
            connection.connect(address)
    except OSError:
        connection.close()
        return None
    return connection


def serve(
    requests: socket.socket, parent: int, imports: Sequence[str] = ()
) -> NoReturn:
    """Forks for each connection, until the process that started this one ends.

    Args:
      requests: From `listen`; or one end of a pair of sockets that sends connections.
      parent: Id of the process that started this one.
      imports: Modules to import first.
    """
    processes.die_with_parent(parent)
    with processes.without_collections():
        for name in imports:
            importlib.import_module(name)
    for each in _SIGNALS:  # sent to the whole session; the parent decides
        signal.signal(each, signal.SIG_IGN)
    try:
        _Server(requests).run()
    finally:
        os._exit(0)


@contextlib.contextmanager
def short(path: str) -> Iterator[str]:
    """A path of the same socket that fits into an address, of 107 bytes."""
    folder = os.open(Path(path).parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{Path(path).name}"
    finally:
        os.close(folder)


class _Served:
    """A fork, as the server knows it.

    Attributes:
      pid: Process id of the fork.
      connection: To its owner, who gets the exit code and closes the other end then, or
        dies. None after that.
      ends: File descriptor that is readable once the fork has ended; None after that.
    """

    def __init__(self, pid: int, connection: socket.socket):
        self.pid = pid
        self.connection: socket.socket | None = connection
        self.ends: int | None = os.pidfd_open(pid)

    def register(self, poll: select.poll) -> None:
        """Registers the descriptors that the server waits for."""
        if self.ends is not None:
            poll.register(self.ends, select.POLLIN)
        if self.connection is not None:
            poll.register(self.connection, 0)  # only its end: the fork reads it

    def take(self, ready: set[int]) -> bool:
        """Handles ready descriptors; True once the fork and the owner have ended."""
        if self.ends in ready:
            self._take_end()
        if self.connection is not None and self.connection.fileno() in ready:
            os.kill(self.pid, signal.SIGKILL)  # no effect on one that has ended
            self.connection.close()
            self.connection = None
        return self.ends is None and self.connection is None

    def _take_end(self) -> None:
        """Reports the exit code; the id stays taken until the owner knows."""
        end = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        assert end is not None and self.ends is not None
        os.close(self.ends)
        self.ends = None
        sign = 1 if end.si_code == os.CLD_EXITED else -1
        if self.connection is not None:
            with contextlib.suppress(OSError):  # the owner is gone
                self.connection.send(f"end {sign * end.si_status}".encode())

    def close(self) -> None:
        """Closes the file descriptors."""
        if self.connection is not None:
            self.connection.close()
        if self.ends is not None:
            os.close(self.ends)


class _Server:
    """Forks for each connection, and reports the forks' exit codes."""

    def __init__(self, requests: socket.socket):
        self._requests = requests
        self._listens = requests.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
        self._children: list[_Served] = []

    def run(self) -> None:
        """Serves; returns when the other end of a pair of sockets is closed."""
        while True:
            poll = select.poll()
            poll.register(self._requests, select.POLLIN)
            for child in self._children:
                child.register(poll)
            ready = {descriptor for descriptor, _ in poll.poll()}
            for child in tuple(self._children):
                if child.take(ready):
                    os.waitpid(child.pid, 0)
                    self._children.remove(child)
            if self._requests.fileno() in ready and not self._fork():
                return

    def _fork(self) -> bool:
        """Forks for the next connection; False if there will be none."""
        connection = self._next()
        if connection is None:
            return False
        server, pid = os.getpid(), processes.fork()
        if pid == 0:
            self._requests.close()
            for child in self._children:
                child.close()
            _work(connection, server)
        self._children.append(_Served(pid, connection))
        return True

    def _next(self) -> socket.socket | None:
        if self._listens:
            return self._requests.accept()[0]
        _, descriptors, *_ = socket.recv_fds(self._requests, 1, 1)
        return socket.socket(fileno=descriptors[0]) if descriptors else None


def _work(connection: socket.socket, server: int) -> NoReturn:
    """Runs in a fork; sends its id once it can be signalled."""
    code = 1
    try:
        processes.die_with_parent(server)
        os.setsid()
        for each, handler in _SIGNALS.items():
            signal.signal(each, handler)
        message, descriptors, *_ = socket.recv_fds(connection, SIZE, _MOST_DESCRIPTORS)
        if message:
            connection.send(str(os.getpid()).encode())
            connection.close()
            request = json.loads(message)
            spare = _enter(request, descriptors)
            module = importlib.import_module(request["module"])
            getattr(module, request["function"])(*spare, *request["arguments"])
        code = 0
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _enter(request: Mapping[str, Any], descriptors: Sequence[int]) -> list[int]:
    """Sets up the process as requested; returns the descriptors without a number."""
    high = [fcntl.fcntl(each, fcntl.F_DUPFD_CLOEXEC, _HIGH) for each in descriptors]
    for descriptor in descriptors:
        os.close(descriptor)
    for number, descriptor in zip(request["numbers"], high, strict=False):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    tempfile.tempdir = None
    if request["path"] is not None:
        sys.path[:] = request["path"]
    return high[len(request["numbers"]) :]


def run_module(module: str, *arguments: str) -> None:
    """Runs a module as `python -m module` would; called in a fork.

    Args:
      module: The module.
      *arguments: The module's arguments after the first, the parent's process id.
    """
    sys.path[0] = os.getcwd()
    sys.argv = [module, str(os.getppid()), *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
