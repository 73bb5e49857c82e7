"""What a task of a gang tells the process that watches it, as JSON lines in a pipe."""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

_QUIET_SECONDS = 0.5
_KEEP_ALIVE_SECONDS = 5.0
_BUSY = 0.01
"""CPU seconds per second below which a process counts as standing still."""


class Reporter:
    """A task's side of the pipe. One without a pipe tells nobody, at no cost.

    A task that reports nothing for `stall_timeout` counts as hanging.

    Args:
      descriptor: The pipe's end to write to, or None.
      clock: Seconds, ever growing.
    """

    def __init__(
        self,
        descriptor: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ):
        self._descriptor = descriptor
        self._clock = clock
        self._lock = threading.Lock()
        self._reported_at = -float("inf")
        self._stepped = False

    def joined(self) -> None:
        """This task is there. Called before anything that waits for other tasks."""
        self.report(joined=True)

    def step(self, number: int) -> None:
        """A step of training ended. Cheap: at most two reports a second."""
        if not self._stepped or self._is_due():
            self._stepped = True
            self.report(step=int(number))

    def alive(self) -> None:
        """Work goes on that is no step: reading, evaluating, saving. As cheap."""
        if self._is_due():
            self.report(alive=True)

    def preempted(self) -> None:
        """This task was asked to end, and stays until the chief has saved."""
        self.report(preempted=True)

    def report(self, **values: Any) -> None:
        """Writes `report` as it is."""
        if self._descriptor is None:
            return
        line = json.dumps(values, default=str).encode() + b"\n"
        # Whoever watched is gone: then this process is ended by other means.
        with self._lock, contextlib.suppress(BrokenPipeError):
            self._reported_at = self._clock()
            while line:
                line = line[os.write(self._descriptor, line) :]

    def _is_due(self) -> bool:
        if self._descriptor is None:
            return False
        return self._clock() - self._reported_at >= _QUIET_SECONDS


_current = Reporter()


def current() -> Reporter:
    """This process's reporter; outside of a gang one that tells nobody."""
    return _current


def use(reporter: Reporter) -> None:
    """Makes `reporter` this process's own."""
    global _current
    _current = reporter


@contextlib.contextmanager
def keep_alive(seconds: float = _KEEP_ALIVE_SECONDS) -> Iterator[None]:
    """Tells the gang that work goes on, for as long as this process computes.

    For code of others, which knows nothing of reports. However long it takes, it is at
    work while it computes; where it neither computes nor ends it is hanging.
    """
    ended = threading.Event()

    def beat() -> None:
        spent = time.process_time()
        while not ended.wait(seconds):
            if time.process_time() - spent > _BUSY * seconds:
                current().alive()
            spent = time.process_time()

    current().step(0)
    threading.Thread(target=beat, daemon=True).start()
    try:
        yield
    finally:
        ended.set()
