"""Helpers of a fold: worker processes for shards, one for a thread.

A helper gets the fold's work once, and keeps what the work loads from shard to shard.

Python's lock lets one thread of a process run Python code at a time, which leaves most
cores of a large machine idle. A helper is a fork of a server that has done the imports
of shards (`fork_server`), so it starts in milliseconds. Its end frees all that it has
loaded, e.g. a graph of TensorFlow.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from multiprocessing import connection
from typing import Any

from strategos.components import errors, fork_server, worker_process
from strategos.components.errors import UserError
from strategos.components.limits import oom
from strategos.components.shards import progress

_RESULT, _FAILURE, _ROWS = "result", "failure", "rows"


class Helper:
    """A process that works for one thread of this one, until `end`."""

    def __init__(self, process: fork_server.Child, pipe: connection.Connection):
        """See `start`."""
        self._kills = oom.OomKills()
        self._lock = threading.Lock()  # two threads must not wait for the process
        self._process, self._pipe = process, pipe

    @classmethod
    def start(cls, work: Callable[[Any], Any]) -> Helper | None:
        """Starts a helper; None where no fork server runs.

        Args:
          work: What it calls for each shard; picklable, from an importable module.
        """
        ours, theirs = socket.socketpair()
        env = {**worker_process.ONE_THREAD, **os.environ, **worker_process.NO_GPU}
        with theirs:
            process = fork_server.call(
                __name__, _serve.__name__, env=env, path=sys.path, pipe=theirs
            )
        if process is None:
            ours.close()
            return None
        helper = cls(process, connection.Connection(ours.detach()))
        try:
            helper._pipe.send(work)
        except OSError:  # it is dead, as its first shard finds
            pass
        except BaseException:
            helper.end()
            raise
        return helper

    def work(self, shard: Any) -> Any:
        """Has the helper work on a shard, and returns the result.

        Args:
          shard: Picklable.

        Raises:
          Exception: Any error of `work`.
          UserError: The helper was killed.
          EndedError: The fold has ended.
        """
        kind, value = self._asked(shard)
        while kind == _ROWS:
            progress.add(value)
            kind, value = self._asked()
        if kind == _FAILURE:
            raise errors.unpacked(*value)
        return value

    def end(self) -> None:
        """Ends the process; a thread that waits for its work gets an error."""
        with self._lock:
            self._process.kill()
        self._pipe.close()

    def _asked(self, *messages: Any) -> tuple[str, Any]:
        """Sends objects, and returns the helper's next message."""
        try:
            for each in messages:
                self._pipe.send(each)
            return self._pipe.recv()
        except (EOFError, OSError):
            raise self._death() from None

    def _death(self) -> UserError:
        with self._lock:
            code = self._process.wait()
        how = f"ended with exit code {code}"
        if code < 0:
            how = f"was killed by {signal.Signals(-code).name}"
        remedy = "use fewer `run.engine.workers`, or a machine with more memory"
        why = self._kills.explain(remedy) if code == -signal.SIGKILL else ""
        return UserError(f"a process that worked on data {how}. {why}".strip())


def _serve(descriptor: int) -> None:
    """Works in a helper until the other side closes the pipe."""
    pipe = connection.Connection(descriptor)
    with contextlib.suppress(EOFError):
        progress.forward(lambda rows: pipe.send((_ROWS, rows)))
        work = pipe.recv()
        while True:
            pipe.send(_outcome(work, pipe.recv()))


def _outcome(work: Callable[[Any], Any], shard: Any) -> tuple[str, Any]:
    try:
        return _RESULT, work(shard)
    except Exception as error:
        return _FAILURE, errors.packed(error)
