"""The logs and events of a job, passed on by the launcher."""

from __future__ import annotations

import re
import sys
from collections import deque
from pathlib import Path
from typing import Protocol

from strategos.components import events
from strategos.components.trainer.launchers.jobs.attempt import (
    REJECTED,
    Attempt,
    RemoteAttempt,
)

_KEPT_LINES = 12
# srun's own report of a task that ended badly: `srun: error: n2: task 1: Killed`
_BAD_TASK = re.compile(r"error: .*\btasks? (\d+).*: (?:Exited|Killed|.*core dumped)")


class Output:
    """The logs and the events of one attempt.

    Args:
      attempt: The attempt.
      batch: Name of the batch system, which prefixes the output of the job itself.
    """

    def __init__(self, attempt: Attempt, batch: str):
        names = [task.name for task in attempt.tasks]
        self._tasks = [_Log(attempt.log_of(n), name) for n, name in enumerate(names)]
        self._job = _Log(attempt.log, batch.lower())
        self._events = events.NewEvents(attempt.events)

    def pass_on(self, *, at_once: bool = False) -> None:
        """Prints the new lines to stderr, and emits the new events.

        Args:
          at_once: Whether the batch system is asked even if it was a moment ago.
        """
        for log in (self._job, *self._tasks):
            log.pass_on()
        for event in self._events.read():
            events.relay(event)

    @property
    def rejection(self) -> str:
        """Why a task cannot use the attempt's folder, as far as it is known; or ""."""
        lines = (line for log in self._tasks for line in log.last)
        return next((r for line in lines if (r := line.partition(REJECTED)[2])), "")

    def last_lines(self) -> str:
        """The last lines of the task that failed first, as far as it is known."""
        bad = [match for line in self._job.last if (match := _BAD_TASK.search(line))]
        logs = [self._tasks[int(bad[0][1])]] if bad else self._tasks
        found = next((log for log in logs if log.last), self._job)
        if not found.last:
            return ""
        lines = "".join(f"\n      {line}" for line in found.last)
        return f"The last lines of {found.name}:{lines}"


class Logs(Protocol):
    """The log that a batch system keeps of one job."""

    def copy(self, attempt: Attempt, *, at_once: bool = False) -> None:
        """Appends new lines to the files of an attempt's `scratch`.

        Args:
          attempt: The attempt.
          at_once: Whether to ask even if the last request was a moment ago.
        """


class CopiedOutput(Output):
    """Output of a job without a shared folder: logs of its system, events of its store.

    Args:
      attempt: The attempt; its `scratch` is a folder of this machine.
      batch: See `Output`.
      logs: The log of the job.
    """

    def __init__(self, attempt: RemoteAttempt, batch: str, logs: Logs):
        super().__init__(attempt, batch)
        self._attempt, self._logs = attempt, logs
        self._passed = 0

    def pass_on(self, *, at_once: bool = False) -> None:
        """See `Output`."""
        self._logs.copy(self._attempt, at_once=at_once)
        super().pass_on()
        report = self._attempt.report()
        new = report["count"] - self._passed
        for event in report["events"][-new:] if new > 0 else ():
            events.relay(event)
        self._passed = max(self._passed, report["count"])

    def last_lines(self) -> str:
        """See `Output`; asks for the log once more, because it is late."""
        self.pass_on(at_once=True)
        return super().last_lines()


class _Log:
    """A file that grows.

    Args:
      path: The file; it may not exist yet.
      name: Prefix of its lines.
    """

    def __init__(self, path: Path, name: str):
        self._lines = events.NewLines(path)
        self.name = name
        self.last: deque[str] = deque(maxlen=_KEPT_LINES)

    def pass_on(self) -> None:
        for line in self._lines.read():
            self._print(line.decode(errors="replace").rstrip())

    def _print(self, line: str) -> None:
        line = line.removeprefix(f"[{self.name}]").removeprefix(" ")
        self.last.append(line)
        print(f"[{self.name}] {line}", file=sys.stderr, flush=True)
