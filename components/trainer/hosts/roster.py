"""The tasks of a run on other hosts, and those that take part in its attempts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from strategos.components.trainer.distribution.environment import (
    SYNCHRONOUS,
    ClusterSpec,
    Task,
)
from strategos.components.trainer.gang.members import CheckpointCount, Members, recorded
from strategos.components.trainer.gang.restarts import Restarts
from strategos.components.trainer.operation import Operation

_AWAY_SECONDS = 5.0  # for a lost host to come back, before others go on without it


class Roster:
    """The tasks of a run; with `min_workers`, some attempts go on without lost ones.

    A task is lost if its host is away, or if it fails twice in a row without progress,
    see `Members`. It returns at a checkpoint, once its host is there.

    Args:
      operation: Time-outs and `min_workers`.
      restarts: The restarts of the run.
      is_here: Returns whether the host of a task sends heartbeats, by the task's name.
      newest: Returns the step of the newest complete checkpoint.

    Attributes:
      cluster: All tasks, with their addresses; empty before a host has named them.
    """

    def __init__(
        self,
        operation: Operation,
        restarts: Restarts,
        is_here: Callable[[str], bool],
        newest: Callable[[], int],
    ):
        self._operation, self._restarts = operation, restarts
        self._is_here, self._checkpoints = is_here, CheckpointCount(newest)
        self._sizes: list[int] = []
        self.cluster = ClusterSpec()

    def settle(self, cluster: ClusterSpec) -> None:
        """Takes the tasks that the hosts name, equal on all of them."""
        self.cluster = cluster
        if self._operation.min_workers and self._restarts.members is None:
            names = tuple(task.name for task in cluster.tasks)
            self._restarts.members = Members(names, self._operation.min_workers)

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
        found = (task for task in self.tasks if task.type in SYNCHRONOUS)
        return next(found, None)

    def goes_on_without(self, missing: Sequence[str], waited: float) -> bool:
        """Whether the other tasks go on without some that are missing; reports that.

        Args:
          missing: Names of the tasks that are not ready for the attempt.
          waited: Seconds since the others have waited for them.
        """
        members, limit = self._restarts.members, self._operation.start_timeout
        if members is None or members.size - len(missing) < members.least:
            return False
        if self._sizes and not any(map(self._is_here, missing)):
            limit = min(limit, _AWAY_SECONDS)  # unlike before the first attempt
        if waited > limit:
            self._restarts.leave_out(missing, f"away for {limit:g} s")
        return waited > limit

    def begin(self) -> None:
        """Begins an attempt."""
        self._sizes.append(len(self.tasks))
        if self.lost:
            self._checkpoints.begin()

    def takes_in(self) -> bool:
        """Whether lost tasks return, for which another attempt starts; reports that."""
        members = self._restarts.members
        if members is None or not members.lost:
            return False
        back = [name for name in members.lost_names if self._is_here(name)]
        if not back or self._checkpoints.new() < members.patience:
            return False
        self._restarts.take_in(back, self._checkpoints.step)
        return True

    def recorded(self, facts: dict[str, Any]) -> dict[str, Any]:
        """The facts of the training, with all sizes of its gang in the reason."""
        return recorded(facts, self._sizes)
