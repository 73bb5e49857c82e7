"""Forks worker processes from a process that has imported what they need.

Importing TensorFlow takes seconds. `start` forks a server from a process that has
imported TensorFlow and executed nothing with it; for each request the server forks a
worker, which runs a module as `python -m` would. So a process that executes TensorFlow
later can still start workers that have imported it and not used it.

The server is killed when the process that started it ends, and a worker when the server
ends. Where no server runs, or it was killed, `launch` returns None.
"""

from __future__ import annotations

import contextlib
import gc
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
from typing import IO, NoReturn

from strategos.components import processes

_SIZE = 1 << 17  # bytes of a message: the environment
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
      The worker, or None if no server is ready: none was started, it was killed, its
      last worker still runs, or the environment is too large to send.
    """
    global _channel
    request = {"module": module, "arguments": list(arguments), "env": dict(env)}
    message = json.dumps({**request, "cwd": cwd}).encode()
    if _channel is None or len(message) > _SIZE:
        return None
    channel, _channel = _channel, None
    given, stdin = os.pipe()
    stdout, taken = os.pipe()
    try:
        socket.send_fds(channel, [message], [given, taken])
        pid = int(channel.recv(_SIZE))
    except (OSError, ValueError):  # the server was killed
        channel.close()
        os.close(stdin)
        os.close(stdout)
        return None
    finally:
        os.close(given)
        os.close(taken)
    return Worker(channel, pid, os.fdopen(stdin, "wb"), os.fdopen(stdout, "rb"))


class Worker:
    """A worker, with what `worker_process` uses of `subprocess.Popen`.

    Attributes:
      pid: The worker's process id.
      stdin: Pipe to its standard input.
      stdout: Pipe from its standard output and standard error.
      returncode: As of `Popen`; None while it runs.
    """

    def __init__(
        self, channel: socket.socket, pid: int, stdin: IO[bytes], stdout: IO[bytes]
    ):
        self._channel = channel
        self.pid, self.stdin, self.stdout = pid, stdin, stdout
        self.returncode: int | None = None

    def wait(self, timeout: float | None = None) -> int:
        """Waits for the worker's end, and returns its exit code as `Popen.wait` does.

        Args:
          timeout: Seconds; by default for ever.

        Raises:
          subprocess.TimeoutExpired: The worker still runs.
        """
        if self.returncode is None:
            if not select.select([self._channel], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
            self._take_code(self._channel.recv(_SIZE))
        assert self.returncode is not None
        return self.returncode

    def poll(self) -> int | None:
        """The exit code, or None if the worker still runs."""
        try:
            return self.wait(0.0)
        except subprocess.TimeoutExpired:
            return None

    def terminate(self) -> None:
        """Sends SIGTERM, unless the worker has ended."""
        if self.poll() is None:
            os.kill(self.pid, signal.SIGTERM)

    def _take_code(self, message: bytes) -> None:
        global _channel
        if not message:  # the server was killed, and the kernel kills its worker
            self.returncode = -signal.SIGKILL
            return
        self.returncode = int(message)
        self._channel.send(b"1")
        _channel = self._channel


def _serve(channel: socket.socket, parent: int) -> NoReturn:
    """Runs in the server: forks a worker per request and reports its exit code."""
    processes.die_with_parent(parent)
    for each in _ASKS_TO_END:  # sent to the whole session; the parent decides
        signal.signal(each, signal.SIG_IGN)
    try:
        while True:
            message, descriptors, *_ = socket.recv_fds(channel, _SIZE, 2)
            if not message:
                break
            begun, begins = os.pipe()
            server, pid = os.getpid(), processes.fork()
            if pid == 0:
                channel.close()
                os.close(begun)
                _work(json.loads(message), descriptors, server, begins)
            for descriptor in (*descriptors, begins):
                os.close(descriptor)
            os.read(begun, 1)  # until the worker can be signalled, or has died
            os.close(begun)
            channel.send(str(pid).encode())
            # The id stays taken until the other side knows the exit code.
            end = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
            assert end is not None
            sign = 1 if end.si_code == os.CLD_EXITED else -1
            channel.send(str(sign * end.si_status).encode())
            channel.recv(1)
            os.waitpid(pid, 0)
    finally:
        os._exit(0)


def _work(
    request: dict, descriptors: Sequence[int], server: int, begins: int
) -> NoReturn:
    """Runs in the worker: becomes what `python -m module` would be, and runs it.

    Closes `begins` once it leads a session and takes signals.
    """
    try:
        os.setsid()
        for each, handler in zip(
            _ASKS_TO_END, (signal.SIG_DFL, signal.default_int_handler), strict=True
        ):
            signal.signal(each, handler)
        os.close(begins)
        given, taken = descriptors
        for descriptor, number in ((given, 0), (taken, 1), (taken, 2)):
            os.dup2(descriptor, number)
        os.close(given)
        os.close(taken)
        os.chdir(request["cwd"])
        os.environ.clear()
        os.environ.update(request["env"])
        tempfile.tempdir = None
        sys.path[0] = request["cwd"]
        sys.argv = [request["module"], str(server), *request["arguments"]]
        runpy.run_module(request["module"], run_name="__main__", alter_sys=True)
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1)
