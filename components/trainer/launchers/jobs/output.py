"""What a job prints and reports, passed on by the launcher."""

from __future__ import annotations

import re
import sys
from collections import deque
from pathlib import Path

from strategos.components.trainer.launchers.external import Relay
from strategos.components.trainer.launchers.jobs.attempt import Attempt

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
        self._events, self._relay = attempt.events, Relay()

    def pass_on(self) -> None:
        """Prints the new lines to stderr, and emits the new events."""
        for log in (self._job, *self._tasks):
            log.pass_on()
        self._relay.pass_on(self._events)

    def last_lines(self) -> str:
        """The last lines of the task that failed first, as far as it is known."""
        bad = [match for line in self._job.last if (match := _BAD_TASK.search(line))]
        logs = [self._tasks[int(bad[0][1])]] if bad else self._tasks
        found = next((log for log in logs if log.last), self._job)
        if not found.last:
            return ""
        lines = "".join(f"\n      {line}" for line in found.last)
        return f"The last lines of {found.name}:{lines}"


class _Log:
    """A file that grows.

    Args:
      path: The file; it may not exist yet.
      name: Prefix of its lines.
    """

    def __init__(self, path: Path, name: str):
        self._path = path
        self._position = 0
        self.name = name
        self.last: deque[str] = deque(maxlen=_KEPT_LINES)

    def pass_on(self) -> None:
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(self._position)
            for line in file:
                if not line.endswith(b"\n"):
                    break  # its rest is being written
                self._position += len(line)
                self._print(line.decode(errors="replace").rstrip())

    def _print(self, line: str) -> None:
        line = line.removeprefix(f"[{self.name}]").removeprefix(" ")
        self.last.append(line)
        print(f"[{self.name}] {line}", file=sys.stderr, flush=True)
