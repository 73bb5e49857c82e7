"""Watches a job on Flink: its progress, its restarts, and exceptions of Python code."""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Iterator
from typing import Any

from strategos.components import events
from strategos.components.errors import first_line
from strategos.components.shards.flink.master import Master, MasterError

_LOOK_SECONDS = 1.0
# What Beam's runner reports if a worker's code raised an exception: Flink would run the
# same code on the same rows again, five times. A worker that is lost reads otherwise.
_OF_PYTHON = re.compile(
    r"Error received from SDK harness for instruction \d+: .*", re.S
)


class Watched:
    """A job that is watched.

    Attributes:
      failure: The exception of a worker's code because of which the job was cancelled;
        "" if there was none.
    """

    def __init__(self, address: str | None, name: str):
        self.failure = ""
        self._master, self._name = Master(address or ""), name
        self._seen: set[int] = set()
        self._job: str | None = None

    def look(self) -> None:
        """Reports progress and restarts; cancels the job if its code failed."""
        self._job = self._job or self._master.job_named(self._name)
        if self._job is None:
            return
        vertices = self._master.get(f"/jobs/{self._job}")["vertices"]
        tasks = [each["tasks"] for each in vertices]
        total = sum(each["parallelism"] for each in vertices)
        finished = sum(each["FINISHED"] for each in tasks)
        events.emit("progress", message=f"{finished} of {total} tasks on Flink")
        for each in self._exceptions():
            self._seen.add(each["timestamp"])
            self._handle(each["stacktrace"])

    def _exceptions(self) -> list[dict[str, Any]]:
        history = self._master.get(f"/jobs/{self._job}/exceptions")["exceptionHistory"]
        entries = history["entries"]
        return [each for each in entries if each["timestamp"] not in self._seen]

    def _handle(self, trace: str) -> None:
        found = _OF_PYTHON.search(trace)
        if found and not self.failure:
            self.failure = found[0]
            self._master.cancel(self._job)
        elif not found:
            message = f"Flink restarted the job after: {first_line(trace)}"
            events.emit("note", message=message)


@contextlib.contextmanager
def watch(address: str | None, name: str) -> Iterator[Watched]:
    """Watches a job until the end of the block.

    Args:
      address: `HOST:PORT` of the REST API of Flink's JobManager; None watches nothing.
      name: The job's name, which no other job has.
    """
    watched, ended = Watched(address, name), threading.Event()
    if address is None:
        yield watched
        return

    def keep_looking() -> None:
        while not ended.wait(_LOOK_SECONDS):
            with contextlib.suppress(MasterError):  # the job's end says more
                watched.look()

    thread = threading.Thread(target=keep_looking, daemon=True)
    thread.start()
    try:
        yield watched
    finally:
        ended.set()
        thread.join()
