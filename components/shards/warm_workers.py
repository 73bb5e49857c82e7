"""Forks workers of a Beam runner from a process that has imported what they need.

A worker imports TensorFlow, Beam and components for five seconds of CPU time, and each
job starts one for each task slot. The host of a cluster starts `main` once; it listens
on a socket that `VARIABLE` names. The worker command, which the runner starts and ends,
has a fork of that process do the work: `lend`. Either one ends with the other.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import select
import signal
import socket
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NoReturn

from strategos.components import fork_server, processes

VARIABLE = "STRATEGOS_WARM_WORKERS"
"""Name of the environment variable with the path of the socket."""

_SIZE = 1 << 17  # bytes of a message: the environment
_IMPORTS = (
    "apache_beam.runners.worker.sdk_worker_main",
    "strategos.components.evaluator.executor",
    "strategos.components.example_gen.executor",
    "strategos.components.statistics_gen.executor",
    "strategos.components.transform.executor",
)


def lend(arguments: list[str]) -> bool:
    """Has a fork run the worker command with `arguments`, and waits for its end.

    Args:
      arguments: Of the worker command.

    Returns:
      False if no process serves forks: this process then works itself.
    """
    path = os.environ.get(VARIABLE)
    if path is None:
        return False
    about = {"arguments": arguments, "path": sys.path[1:], "cwd": os.getcwd()}
    message = json.dumps({**about, "env": dict(os.environ)}).encode()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as channel:
        try:
            with _short(path) as address:
                channel.connect(address)
            socket.send_fds(channel, [message], [0, 1, 2])
            begun = channel.recv(1)
        except OSError:
            return False
        if begun:
            channel.recv(1)
    return bool(begun)


def main(work: Callable[[list[str]], None], parent: int, path: str) -> NoReturn:
    """Forks a worker for each connection, until the process `parent` ends.

    Args:
      work: What a fork calls with the arguments of the worker command.
      parent: Id of the process that started this one.
      path: Path of the socket.
    """
    processes.die_with_parent(parent)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
        with _short(path) as address:
            listening.bind(address)
        listening.listen(64)  # workers wait for the imports
        with fork_server.without_collections():
            for name in _IMPORTS:
                importlib.import_module(name)
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel removes zombies
        while True:
            channel, _ = listening.accept()
            if processes.fork() == 0:
                listening.close()
                _become_worker(channel, work)
            channel.close()


def _become_worker(
    channel: socket.socket, work: Callable[[list[str]], None]
) -> NoReturn:
    """Runs in a fork: takes over from the process at the other end."""
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        message, descriptors, *_ = socket.recv_fds(channel, _SIZE, 3)
        for number, descriptor in enumerate(descriptors):
            os.dup2(descriptor, number)
            os.close(descriptor)
        threading.Thread(target=_end_after, args=(channel,), daemon=True).start()
        request = json.loads(message)
        _enter(request)
        channel.send(b"1")
        work(request["arguments"])
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _enter(request: Mapping[str, object]) -> None:
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    sys.path[1:] = request["path"]
    tempfile.tempdir = None


def _end_after(channel: socket.socket) -> None:
    """Kills this fork when the process at the other end has ended."""
    select.select([channel], [], [])
    os.kill(os.getpid(), signal.SIGKILL)


@contextlib.contextmanager
def _short(path: str) -> Iterator[str]:
    """A path of the same socket that fits into an address, of 107 bytes."""
    folder = os.open(Path(path).parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{Path(path).name}"
    finally:
        os.close(folder)
