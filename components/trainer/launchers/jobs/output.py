"""The logs and events of a job, passed on by the launcher."""

from __future__ import annotations

import abc
import re
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Protocol

from strategos.components import events
from strategos.components.trainer.distribution.environment import Task
from strategos.components.trainer.launchers.jobs.attempt import (
    REJECTED,
    Attempt,
    RemoteAttempt,
)

_KEPT_LINES = 12
# srun's own report of a task that ended badly: `srun: error: n2: task 1: Killed`
_BAD_TASK = re.compile(r"error: .*\btasks? (\d+).*: (?:Exited|Killed|.*core dumped)")


class Output(abc.ABC):
    """The logs and the events of one attempt.

    Args:
      attempt: The attempt.
      batch: Name of the batch system, which prefixes the output of the job itself.
    """

    def __init__(self, attempt: Attempt, batch: str):
        self._job = _Log(batch.lower())
        self._tasks = {task: _Log(task.name) for task in attempt.tasks}

    @abc.abstractmethod
    def pass_on(self, *, at_once: bool = False) -> None:
        """Prints the new lines to stderr, and emits the new events.

        Args:
          at_once: Whether the batch system is asked even if it was a moment ago.
        """

    @property
    def rejection(self) -> str:
        """Why a task cannot use the attempt's folder, as far as it is known; or ""."""
        lines = (line for log in self._tasks.values() for line in log.last)
        return next((r for line in lines if (r := line.partition(REJECTED)[2])), "")

    def last_lines(self) -> str:
        """The last lines of the task that failed first, as far as it is known."""
        bad = [match for line in self._job.last if (match := _BAD_TASK.search(line))]
        tasks = list(self._tasks.values())
        logs = [tasks[int(bad[0][1])]] if bad else tasks
        source = next((log for log in logs if log.last), self._job)
        if not source.last:
            return ""
        lines = "".join(f"\n      {line}" for line in source.last)
        return f"The last lines of {source.name}:{lines}"


class FileOutput(Output):
    """Output of a job with a shared folder, where logs and events are files that grow.

    Args:
      attempt: See `Output`.
      batch: See `Output`.
    """

    def __init__(self, attempt: Attempt, batch: str):
        super().__init__(attempt, batch)
        self._files = [(self._job, events.NewLines(attempt.log))]
        for rank, log in enumerate(self._tasks.values()):
            self._files.append((log, events.NewLines(attempt.log_of(rank))))
        self._events = events.NewEvents(attempt.events)

    def pass_on(self, *, at_once: bool = False) -> None:
        """See `Output`."""
        for log, file in self._files:
            for line in file.read():
                log.show(line.decode(errors="replace"))
        for event in self._events.read():
            events.relay(event)


class Logs(Protocol):
    """The log that a batch system keeps of one job."""

    def new_lines(
        self, tasks: Sequence[Task], *, at_once: bool = False
    ) -> Iterator[tuple[Task | None, str]]:
        """The new lines, each with its task; with None if the job itself wrote it.

        Args:
          tasks: The tasks of the job, by rank.
          at_once: Whether to ask even if the last request was a moment ago.
        """


class ServiceOutput(Output):
    """Output of a job without a shared folder: logs of its system, events of its store.

    Args:
      attempt: See `Output`.
      batch: See `Output`.
      logs: The log of the job.
    """

    def __init__(self, attempt: RemoteAttempt, batch: str, logs: Logs):
        super().__init__(attempt, batch)
        self._attempt, self._logs = attempt, logs
        self._passed = 0

    def pass_on(self, *, at_once: bool = False) -> None:
        """See `Output`."""
        for task, line in self._logs.new_lines([*self._tasks], at_once=at_once):
            (self._tasks[task] if task else self._job).show(line)
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
    """The lines of a task or job that were shown last.

    Args:
      name: Prefix of the lines.
    """

    def __init__(self, name: str):
        self.name = name
        self.last: deque[str] = deque(maxlen=_KEPT_LINES)

    def show(self, line: str) -> None:
        line = line.rstrip().removeprefix(f"[{self.name}]").removeprefix(" ")
        self.last.append(line)
        print(f"[{self.name}] {line}", file=sys.stderr, flush=True)
