"""Forks worker processes from a process that has imported what they need.

Importing TensorFlow takes seconds. `start` forks a server from a process that has
imported TensorFlow and executed nothing with it; for each request the server forks a
worker, which runs a module as `python -m` would, or a function. So a process that
executes TensorFlow later can still start workers that have imported it and not used it.

The server is killed when the process that started it ends, and a worker when the server
ends. Where no server runs, or it was killed, `launch` and `call` return None.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, Any, NoReturn

from strategos.components import processes

_SIZE = 1 << 17  # bytes of a message: the environment
_MOST_DESCRIPTORS = 4  # that come with a message
_ASKS_TO_END = (signal.SIGTERM, signal.SIGINT)

_channel: socket.socket | None = None


@contextlib.contextmanager
def without_collections() -> Iterator[None]:
    """Imports in the block cause no garbage collections.

    TFX, TensorFlow and Beam make half a million objects that live as long as the
    process. Collections while they are imported take a quarter of the time and find
    nothing; later ones skip what the block has made.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()


def start(*closed: int) -> None:
    """Forks the server.

    Call it in the main thread, after the imports and before anything is configured:
    workers start from the state of this moment.

    Args:
      *closed: File descriptors of this process that workers must not keep open.
    """
    global _channel
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    parent = os.getpid()
    sys.stdout.flush()
    sys.stderr.flush()
    if processes.fork() == 0:
        for descriptor in (ours.detach(), *closed):
            os.close(descriptor)
        _serve(theirs, parent)
    theirs.close()
    _channel = ours


def launch(
    module: str, arguments: Sequence[str], env: Mapping[str, str], cwd: str
) -> Worker | None:
    """Starts `module` in a fork of the server, in a new session.

    Args:
      module: The module to run. As for `processes.start`, its first argument is the id
        of the process to end with.
      arguments: Further arguments.
      env: All environment variables.
      cwd: The worker's current folder.

    Returns:
      The worker, or None if no server is ready: none was started, it was killed, the
      environment is too large to send, or it asks for a fixed hash seed, which this
      interpreter and its forks do not have.
    """
    if env.get("PYTHONHASHSEED") == "0" and sys.flags.hash_randomization:
        return None
    given, stdin = os.pipe()
    stdout, taken = os.pipe()
    about = {"module": module, "arguments": list(arguments), "cwd": cwd}
    forked = _forked({**about, "env": dict(env)}, given, taken)
    os.close(given)
    os.close(taken)
    if forked is None:
        os.close(stdin)
        os.close(stdout)
        return None
    return Worker(*forked, os.fdopen(stdin, "wb"), os.fdopen(stdout, "rb"))


def call(module: str, function: str, pipe: socket.socket) -> Child | None:
    """Calls a function in a fork of the server, in the server's session.

    The function starts with the environment that the server was started with, and
    signals that ask it to end are ignored. The process ends when the function returns.

    Args:
      module: Name of the function's module.
      function: Its name. It gets the file descriptor of its end of `pipe`.
      pipe: The other end; this process can close it then.

    Returns:
      The process, or None if no server is ready.
    """
    forked = _forked({"module": module, "function": function}, pipe.fileno())
    return None if forked is None else Child(*forked)


def _forked(request: dict[str, Any], *given: int) -> tuple[socket.socket, int] | None:
    """A socket for the answers about a new child of the server, and the child's id."""
    global _channel
    message = json.dumps(request).encode()
    if _channel is None or len(message) > _SIZE:
        return None
    answers, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        try:
            socket.send_fds(_channel, [message], [theirs.fileno(), *given])
        except OSError:  # the server was killed
            _channel = None
            answers.close()
            return None
    try:
        return answers, int(answers.recv(_SIZE))
    except (OSError, ValueError):  # it was killed just now
        _channel = None
        answers.close()
        return None


class Child:
    """A process that the server has forked. It is killed if this object is gone.

    Attributes:
      pid: Its process id, which is not given to another process before its exit code
        was taken.
      returncode: As of `Popen`; None while it runs.
    """

    def __init__(self, answers: socket.socket, pid: int):
        self._answers = answers
        self.pid = pid
        self.returncode: int | None = None

    def wait(self, timeout: float | None = None) -> int:
        """Waits for the end, and returns the exit code as `Popen.wait` does.

        Args:
          timeout: Seconds; by default for ever.

        Raises:
          subprocess.TimeoutExpired: The process still runs.
        """
        if self.returncode is None:
            if not select.select([self._answers], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
            message = self._answers.recv(_SIZE)
            # If the server was killed, the kernel has killed the child.
            self.returncode = int(message) if message else -signal.SIGKILL
            self._answers.close()
        return self.returncode

    def poll(self) -> int | None:
        """The exit code, or None if the process still runs."""
        try:
            return self.wait(0.0)
        except subprocess.TimeoutExpired:
            return None

    def kill(self) -> None:
        """Kills the process, unless it has ended; the kernel takes a moment for it."""
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)


class Worker(Child):
    """A worker, with what `worker_process` uses of `subprocess.Popen`.

    Attributes:
      stdin: Pipe to its standard input.
      stdout: Pipe from its standard output and standard error.
    """

    def __init__(
        self, answers: socket.socket, pid: int, stdin: IO[bytes], stdout: IO[bytes]
    ):
        super().__init__(answers, pid)
        self.stdin, self.stdout = stdin, stdout

    def terminate(self) -> None:
        """Sends SIGTERM, unless the worker has ended."""
        if self.poll() is None:
            os.kill(self.pid, signal.SIGTERM)


class _Served:
    """A child, as the server knows it.

    Attributes:
      pid: Its process id.
      answers: Socket to its owner, for the id and the exit code. The owner closes the
        other end when it knows both; that happens also if the owner is gone. None after
        that.
      ends: File descriptor that is readable once the child has ended; None after that.
    """

    def __init__(self, pid: int, answers: socket.socket):
        self.pid = pid
        self.answers: socket.socket | None = answers
        self.ends: int | None = os.pidfd_open(pid)
        self._tell(pid)

    def take_end(self) -> None:
        """Tells the owner the exit code; the id stays taken until the owner knows."""
        end = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        assert end is not None and self.ends is not None
        os.close(self.ends)
        self.ends = None
        sign = 1 if end.si_code == os.CLD_EXITED else -1
        self._tell(sign * end.si_status)

    def abandon(self) -> None:
        """Kills the child, unless it has ended: its owner is gone."""
        os.kill(self.pid, signal.SIGKILL)  # no effect on one that has ended
        assert self.answers is not None
        self.answers.close()
        self.answers = None

    def close(self) -> None:
        """Closes the file descriptors."""
        if self.answers is not None:
            self.answers.close()
        if self.ends is not None:
            os.close(self.ends)

    def descriptors(self) -> list[int]:
        """The file descriptors; none once child and owner have both ended."""
        answers = [] if self.answers is None else [self.answers.fileno()]
        return answers if self.ends is None else [*answers, self.ends]

    def _tell(self, number: int) -> None:
        if self.answers is not None:
            with contextlib.suppress(OSError):  # the owner is gone
                self.answers.send(str(number).encode())


class _Server:
    """Forks children and reports their exit codes, until its channel is closed."""

    def __init__(self, channel: socket.socket):
        self._channel = channel
        self._children: list[_Served] = []

    def run(self) -> None:
        """Serves requests; returns when the process that started the server ends."""
        while True:
            ready = self._ready()
            for child in tuple(self._children):
                if child.ends in ready:
                    child.take_end()
                if child.answers is not None and child.answers.fileno() in ready:
                    child.abandon()
                if not child.descriptors():
                    os.waitpid(child.pid, 0)
                    self._children.remove(child)
            if self._channel.fileno() in ready and not self._serve():
                return

    def _ready(self) -> set[int]:
        """The file descriptors that something has happened to."""
        poll = select.poll()
        poll.register(self._channel, select.POLLIN)
        for child in self._children:
            for descriptor in child.descriptors():
                poll.register(descriptor, select.POLLIN)
        return {descriptor for descriptor, _ in poll.poll()}

    def _serve(self) -> bool:
        """Forks the child of the next request; False if there will be none."""
        message, found, *_ = socket.recv_fds(self._channel, _SIZE, _MOST_DESCRIPTORS)
        if not message:
            return False
        answers, *given = found
        begun, begins = os.pipe()
        server, pid = os.getpid(), processes.fork()
        if pid == 0:
            os.close(begun)
            os.close(answers)
            self._close()
            _work(json.loads(message), given, server, begins)
        for descriptor in (*given, begins):
            os.close(descriptor)
        os.read(begun, 1)  # until the child can be signalled, or has died
        os.close(begun)
        self._children.append(_Served(pid, socket.socket(fileno=answers)))
        return True

    def _close(self) -> None:
        """Closes in a child what only the server uses."""
        self._channel.close()
        for child in self._children:
            child.close()


def _serve(channel: socket.socket, parent: int) -> NoReturn:
    """Runs in the server."""
    processes.die_with_parent(parent)
    for each in _ASKS_TO_END:  # sent to the whole session; the parent decides
        signal.signal(each, signal.SIG_IGN)
    try:
        _Server(channel).run()
    finally:
        os._exit(0)


def _work(
    request: dict[str, Any], given: Sequence[int], server: int, begins: int
) -> NoReturn:
    """Runs in a child; closes `begins` once it can be signalled."""
    code = 1
    try:
        if "function" in request:
            processes.die_with_parent(server)
            os.close(begins)
            getattr(importlib.import_module(request["module"]), request["function"])(
                *given
            )
            code = 0
        else:
            _run_module(request, given, server, begins)
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _run_module(
    request: dict[str, Any], given: Sequence[int], server: int, begins: int
) -> None:
    """Becomes what `python -m module` would be, and runs it."""
    os.setsid()
    for each, handler in zip(
        _ASKS_TO_END, (signal.SIG_DFL, signal.default_int_handler), strict=True
    ):
        signal.signal(each, handler)
    os.close(begins)
    stdin, stdout = given
    for descriptor, number in ((stdin, 0), (stdout, 1), (stdout, 2)):
        os.dup2(descriptor, number)
    os.close(stdin)
    os.close(stdout)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    tempfile.tempdir = None
    sys.path[0] = request["cwd"]
    sys.argv = [request["module"], str(server), *request["arguments"]]
    runpy.run_module(request["module"], run_name="__main__", alter_sys=True)
