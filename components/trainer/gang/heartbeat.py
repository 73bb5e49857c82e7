"""Reports of a task to the process that watches it: JSON lines in a pipe."""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

_QUIET_SECONDS = 0.5
_KEEP_ALIVE_SECONDS = 5.0
_BUSY = 0.01
"""CPU seconds per second below which a process counts as standing still."""


def shared_step() -> memoryview:
    """The number of a task's last step, 0 at first, in memory shared with its forks.

    A task that is killed has not reported its last steps, and whether a restart got
    further may hang on one.
    """
    return memoryview(mmap.mmap(-1, 8)).cast("q")


class Reporter:
    """A task's end of the pipe. Without a pipe, reports are dropped at no cost.

    A task that reports nothing for `stall_timeout` counts as hanging.

    Args:
      descriptor: The pipe's end to write to, or None.
      clock: Monotonic time in seconds.
      last_step: See `shared_step`.
    """

    def __init__(
        self,
        descriptor: int | None = None,
        clock: Callable[[], float] = time.monotonic,
        last_step: memoryview | None = None,
    ):
        self._descriptor = descriptor
        self._clock = clock
        self._last_step = shared_step() if last_step is None else last_step
        self._lock = threading.Lock()
        self._reported_at = -float("inf")
        self._stepped = False

    def joined(self) -> None:
        """Reports that this task has started; before it waits for other tasks."""
        self.report(joined=True)

    def step(self, number: int) -> None:
        """Reports that a training step has ended. Cheap: at most two reports a second.

        Args:
          number: Steps that have ended.
        """
        self._last_step[0] = int(number)
        if not self._stepped or self._is_due():
            self._stepped = True
            self.report(stepped=True)

    def alive(self) -> None:
        """Reports other progress than steps: reading, evaluating, saving. Cheap."""
        if self._is_due():
            self.report(alive=True)

    def preempted(self) -> None:
        """Reports SIGTERM: this task waits for the chief to save before it ends."""
        self.report(preempted=True)

    def report(self, **values: Any) -> None:
        """Writes `values` as one line."""
        if self._descriptor is None:
            return
        line = json.dumps(values, default=str).encode() + b"\n"
        # If the watching process ended, the kernel kills this one (`die_with_parent`).
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
    """This process's reporter; outside of a gang one without a pipe."""
    return _current


def use(reporter: Reporter) -> None:
    """Makes `reporter` this process's current reporter."""
    global _current
    _current = reporter


@contextlib.contextmanager
def keep_alive(seconds: float = _KEEP_ALIVE_SECONDS) -> Iterator[None]:
    """Reports progress for as long as this process computes.

    For third-party code that does not report. However long such code takes, it is at
    work while it uses the CPU; when it neither uses the CPU nor ends, it is hanging.

    Args:
      seconds: Time between two reports.
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
