"""Forks processes from a server that has imported their modules.

Importing TensorFlow takes seconds. A server is a process that has imported TensorFlow
but not used it; each connection to the server becomes a fork, which calls a function,
or runs a module as `python -m` would. So a process that executes TensorFlow can still
start processes with TensorFlow imported and unused.

`start` forks a server for this process alone: connections reach it through a pair of
sockets, which leave nothing behind. Other servers listen on a path (`fork_listener`).

A server is killed when the process that started it ends. A fork is killed when the
server ends or the process that requested it. If no server runs, or it was killed,
`call` returns None, and `launch` starts a new Python.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import IO, Any

from strategos.components import fork_listener, processes

KERAS = "TF_USE_LEGACY_KERAS"
"""Environment variable that TensorFlow's import reads: which Keras is `tf.keras`."""

_channel: socket.socket | None = None


def start(*closed: int) -> None:
    """Forks a server for this process.

    Call it in the main thread, after the imports and before anything is configured:
    forks start from the state of this moment.

    Args:
      *closed: File descriptors of this process that forks must not keep open.
    """
    global _channel
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    parent = os.getpid()
    sys.stdout.flush()
    sys.stderr.flush()
    if processes.fork() == 0:
        for descriptor in (ours.detach(), *closed):
            os.close(descriptor)
        fork_listener.serve(theirs, parent)
    theirs.close()
    _channel = ours


def launch(
    module: str, arguments: Sequence[str], env: Mapping[str, str], cwd: str
) -> Child | subprocess.Popen[bytes]:
    """Runs `python -m module` in a new session, with pipes; as a fork if possible.

    Starts a new Python instead if no server is ready, the environment is too large to
    send, or it sets an option that forks of this interpreter lack: a fixed hash seed
    (`PYTHONHASHSEED=0`), or another Keras as `tf.keras` than the imported one.

    Args:
      module: The module to run. As for `processes.start`, its first argument is the id
        of the process to end with.
      arguments: Further arguments.
      env: All environment variables.
      cwd: The process's current folder.
    """
    fixed_seed = env.get("PYTHONHASHSEED") == "0" and sys.flags.hash_randomization
    imported = "tensorflow" in sys.modules
    other_keras = imported and env.get(KERAS) != os.environ.get(KERAS)
    must_start = fixed_seed or other_keras
    forked = None if must_start else _launched(module, arguments, env, cwd)
    return forked or processes.start(
        module,
        arguments,
        stdin=subprocess.PIPE,  # never written: closes when this process ends
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        cwd=cwd,
        env=env,
    )


def _launched(
    module: str, arguments: Sequence[str], env: Mapping[str, str], cwd: str
) -> Child | None:
    child_stdin, stdin = os.pipe()
    stdout, child_stdout = os.pipe()
    child = call(
        fork_listener.__name__,
        fork_listener.run_module.__name__,
        [module, *arguments],
        env=env,
        cwd=cwd,
        numbers={0: child_stdin, 1: child_stdout, 2: child_stdout},
    )
    os.close(child_stdin)
    os.close(child_stdout)
    if child is None:
        os.close(stdin)
        os.close(stdout)
        return None
    child.stdin, child.stdout = os.fdopen(stdin, "wb"), os.fdopen(stdout, "rb")
    return child


def call(
    module: str,
    function: str,
    arguments: Sequence[Any] = (),
    *,
    env: Mapping[str, str] | None = None,
    cwd: str | None = None,
    path: Sequence[str] | None = None,
    numbers: Mapping[int, int] | None = None,
    pipe: socket.socket | None = None,
    at: str | None = None,
) -> Child | None:
    """Calls a function in a fork, in a new session; the fork ends when it returns.

    Args:
      module: Name of the function's module.
      function: Name of the function.
      arguments: Arguments of the function, JSON-able.
      env: All environment variables; this process's by default.
      cwd: The fork's current folder; this process's by default.
      path: The fork's `sys.path`; the server's by default.
      numbers: File descriptors of this process, by their numbers in the fork.
      pipe: A socket; its file descriptor becomes the first argument.
      at: Path of the server's socket; by default the server of this process.

    Returns:
      The fork, or None if no server is ready, or the request is too large to send.
    """
    numbers = numbers or {}
    request = {
        "module": module,
        "function": function,
        "arguments": list(arguments),
        "env": dict(os.environ if env is None else env),
        "cwd": cwd or os.getcwd(),
        "path": path,
        "numbers": list(numbers),
    }
    message = json.dumps(request).encode()
    connection = None if len(message) > fork_listener.SIZE else _connected(at)
    if connection is None:
        return None
    descriptors = [*numbers.values(), *([] if pipe is None else [pipe.fileno()])]
    with contextlib.suppress(OSError):  # the server was killed just now
        socket.send_fds(connection, [message], descriptors)
        begun = connection.recv(fork_listener.SIZE)
        if begun.isdigit():
            return Child(connection, int(begun))
    connection.close()
    return None


def _connected(path: str | None) -> socket.socket | None:
    """A connection to the server at a path, or to the server of this process."""
    global _channel
    if path is not None:
        return fork_listener.connect(path)
    if _channel is None:
        return None
    connection, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        try:
            socket.send_fds(_channel, [b"1"], [theirs.fileno()])
        except OSError:  # the server was killed
            _channel = None
            connection.close()
            return None
    return connection


class Child:
    """A fork of a server, with some methods of `Popen`; killed if this object is gone.

    Attributes:
      pid: Process id; not reused before the exit code was taken.
      returncode: As of `Popen`; None while the fork runs.
      stdin: Pipe to the fork's standard input, from `launch`.
      stdout: Pipe from its standard output and standard error, from `launch`.
    """

    def __init__(self, connection: socket.socket, pid: int):
        self._connection = connection
        self.pid = pid
        self.returncode: int | None = None
        self.stdin: IO[bytes] | None = None
        self.stdout: IO[bytes] | None = None

    def wait(self, timeout: float | None = None) -> int:
        """Waits for the end, and returns the exit code as `Popen.wait` does.

        Args:
          timeout: Seconds; by default for ever.

        Raises:
          subprocess.TimeoutExpired: The process still runs.
        """
        if self.returncode is None:
            if not select.select([self._connection], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
            end = self._connection.recv(fork_listener.SIZE)
            # If the server was killed, the kernel has killed the fork.
            self.returncode = int(end.split()[1]) if end else -signal.SIGKILL
            self._connection.close()
        return self.returncode

    def poll(self) -> int | None:
        """The exit code, or None if the process still runs."""
        try:
            return self.wait(0.0)
        except subprocess.TimeoutExpired:
            return None

    def send_signal(self, sig: int) -> None:
        """Sends a signal, unless the process has ended."""
        if self.poll() is None:
            os.kill(self.pid, sig)

    def terminate(self) -> None:
        """Sends SIGTERM, unless the process has ended."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Kills the process, unless it has ended; the kernel takes a moment for it."""
        self.send_signal(signal.SIGKILL)
