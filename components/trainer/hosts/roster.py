"""The tasks of a run on other hosts, and those that take part in its attempts."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from typing import Any

from strategos.components import events
from strategos.components.trainer.distribution.environment import (
    SYNCHRONOUS,
    ClusterSpec,
    Task,
)
from strategos.components.trainer.gang.members import CheckpointCount, Members, recorded
from strategos.components.trainer.gang.restarts import Restarts
from strategos.components.trainer.gang.watchdog import log
from strategos.components.trainer.operation import Operation
from strategos.components.wording import listed

_AWAY_SECONDS = 3.0  # for a lost host to come back, before others go on without it


class Roster:
    """The tasks of a run; with `min_workers`, some attempts go on without lost ones.

    A task is lost if its host is away, or if it fails twice in a row without progress,
    see `Members`. It returns at a checkpoint, once its host has imported TensorFlow and
    waits for an attempt.

    Args:
      operation: Time-outs and `min_workers`.
      restarts: The restarts of the run.
      state: Returns the state that the host of a task reports, by the task's name; ""
        if it sends no heartbeat.
      newest: Returns the step of the newest complete checkpoint.
      needed: Names of tasks without which no attempt is made.
      clock: Monotonic time in seconds.

    Attributes:
      cluster: All tasks, with their addresses; empty before a host has named them.
    """

    def __init__(
        self,
        operation: Operation,
        restarts: Restarts,
        state: Callable[[str], str],
        newest: Callable[[], int],
        needed: Collection[str] = (),
        clock: Callable[[], float] = time.monotonic,
    ):
        self._operation, self._restarts = operation, restarts
        self._state, self._checkpoints = state, CheckpointCount(newest, clock)
        self._needed, self._sizes = needed, list[int]()
        self._waiting = False
        self.cluster = ClusterSpec()

    def settle(self, cluster: ClusterSpec) -> None:
        """Takes the tasks that the hosts name, equal on all of them."""
        self.cluster = cluster
        if self._operation.min_workers and self._restarts.members is None:
            names = tuple(task.name for task in cluster.tasks)
            needed = frozenset(i for i, x in enumerate(names) if x in self._needed)
            least = self._operation.min_workers
            self._restarts.members = Members(names, least, needed)

    @property
    def lost(self) -> list[int]:
        """Numbers of the tasks without which the next attempt, or this one, is made."""
        members = self._restarts.members
        return sorted(members.lost) if members else []

    @property
    def tasks(self) -> list[Task]:
        """The tasks of the attempt."""
        tasks = enumerate(self.cluster.tasks)
        return [task for place, task in tasks if place not in self.lost]

    @property
    def chief(self) -> Task | None:
        """The task of the attempt that publishes the model."""
        tasks = (task for task in self.tasks if task.type in SYNCHRONOUS)
        return next(tasks, None)

    def goes_on_without(self, missing: Sequence[str], waited: float) -> bool:
        """Whether the other tasks go on without some that are missing; reports that.

        Args:
          missing: Names of the tasks that are not ready for the attempt.
          waited: Seconds since the others have waited for them.
        """
        members, limit = self._restarts.members, self._operation.start_timeout
        if members is None or not members.can_lose(missing):
            return False
        if self._sizes and not any(map(self._state, missing)):
            limit = min(limit, _AWAY_SECONDS)  # unlike before the first attempt
        if waited > limit:
            self._restarts.leave_out(missing, f"away for {limit:g} s")
        return waited > limit

    def begin(self) -> None:
        """Begins an attempt."""
        self._sizes.append(len(self.tasks))
        self._waiting = False
        if self.lost:
            self._checkpoints.begin()

    def takes_in(self) -> bool:
        """Whether lost tasks return, for which another attempt starts; reports that.

        It starts right after a checkpoint, so that the others lose no step.
        """
        members = self._restarts.members
        if members is None or not members.lost:
            return False
        back = [x for x in members.lost_names if self._state(x) == "arrived"]
        waited, self._waiting = self._waiting, bool(back)
        if back and not waited:
            text = f"waiting for a checkpoint to take in {listed(back)}"
            events.emit("progress", message=text)
            log(text)
        if not back or self._checkpoints.new() < members.patience:
            return False
        if not waited or not self._checkpoints.fresh:
            return False  # the newest checkpoint may be an old one
        self._restarts.take_in(back, self._checkpoints.step)
        return True

    def recorded(self, facts: dict[str, Any]) -> dict[str, Any]:
        """The facts of the training, with all sizes of its gang in the reason."""
        return recorded(facts, self._sizes)
