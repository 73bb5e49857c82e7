"""A worker's membership in a run: its reports, and the orders that it receives."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from strategos.components import worker_process
from strategos.components.errors import UserError, required
from strategos.components.trainer.distribution.environment import (
    SYNCHRONOUS,
    ClusterSpec,
    Task,
)
from strategos.components.trainer.gang import watchdog
from strategos.components.trainer.hosts import rendezvous
from strategos.components.trainer.hosts.rendezvous import Rendezvous

_LOOK_SECONDS = 0.3
_TRAINED = ("trained", "done")


class _InterruptedRunError(UserError):
    """The run received SIGTERM or SIGINT."""


class Membership:
    """A worker's membership in a run that waits for workers.

    Args:
      folder: The run's own folder, see `rendezvous.py`.
      cluster: All tasks, and the task of this worker.
      session: Unique id of this worker; an earlier worker of the same task has another.

    Attributes:
      generation: Number of the current attempt of the gang, from 0.
      lost: Numbers of the workers without which the gang makes this attempt.
    """

    def __init__(self, folder: str | Path, cluster: ClusterSpec, session: str):
        self._folder = Path(folder)
        self._shared = Rendezvous(self._folder)
        self._cluster = cluster
        self._session = session
        self._looked = 0.0
        self._orders: dict[str, Any] = {}
        self._last_report: tuple[str, int] = ("", -1)
        self.generation = 0
        self.lost: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        """Name of the worker's task, such as `worker-0`."""
        return required(self._cluster.task).name

    @property
    def folder(self) -> Path:
        """The run's own folder."""
        return self._folder

    def join(self) -> None:
        """Registers this worker for its task, in place of any earlier worker."""
        self._put("joined")

    def report(self, state: str, **more: Any) -> None:
        """Writes this worker's state for the run; a repeated state is written once.

        Args:
          state: `ready`, `arrived`, `trained`, `done`, `failed`, `rejected` or `left`.
          **more: Values that belong to the state, e.g. `failure` or `facts`.

        Raises:
          UserError: Another worker has registered for the same task.
        """
        if (state, self.generation) == self._last_report:
            return
        if state == "left" and self._last_report[0] == "done":
            return  # the run may not have seen the facts yet
        self._check_not_replaced()
        self._put(state, **more)

    def _put(self, state: str, **more: Any) -> None:
        self._last_report = (state, self.generation)
        report = {
            "task": self.name,
            "state": state,
            "generation": self.generation,
            "session": self._session,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "cluster": {k: list(v) for k, v in self._cluster.addresses.items()},
        }
        self._shared.put(self.name, {**report, **more})

    def _check_not_replaced(self) -> None:
        report = self._shared.get(self.name)
        if report and report["session"] != self._session:
            raise UserError(
                f"Another process, on {report['host']}, has joined the run as "
                f"{self.name} after this one. Each needs a task of its own in "
                "TF_CONFIG."
            )

    def resume(self) -> str:
        """Continues from the state that this worker's host process has last reported.

        Returns:
          That state; "" if the last report is another worker's or missing.
        """
        report = self._shared.get(self.name) or {}
        if report.get("session") != self._session:
            return ""
        self.generation = report["generation"]
        self._last_report = (report["state"], self.generation)
        return report["state"]

    def to_json(self) -> dict[str, Any]:
        """The arguments `folder` and `session`, for another process of this worker."""
        return {"folder": str(self.folder), "session": self._session}

    def orders(self) -> dict[str, Any]:
        """The run's current orders: `generation`, `go`, `lost`, `silent`, `over`.

        Raises:
          UserError: The run failed by such an error or was interrupted, or another
            worker has registered for this worker's task.
          WorkerError: The run failed by an internal error.
        """
        if time.monotonic() - self._looked > _LOOK_SECONDS:
            self._looked = time.monotonic()
            self._check_not_replaced()
            self._orders = self._shared.get(rendezvous.RUN) or self._orders
        over = self._orders.get("over") or {}
        if over.get("how") == "failed":
            raise worker_process.error_of(over["error"])
        if over.get("how") == "interrupted":
            raise _InterruptedRunError(
                "The run was interrupted. Start it again, and the workers: training "
                "goes on from its last checkpoint."
            )
        return self._orders

    def await_go(self, check: Callable[[], None]) -> bool:
        """Waits until all tasks have joined and the run starts the attempt.

        Returns False if the run ended first: the chief had finished without this task.

        Args:
          check: Called at every look; an exception that it raises ends the waiting.

        Raises:
          UserError, WorkerError: See `orders`.
        """
        while True:
            check()
            orders = self.orders()
            generation = orders.get("generation", 0)
            if orders.get("over"):
                return False
            if not orders.get("go"):
                self.generation = generation
                self.report("ready")
            elif self._is_ready_for(orders):
                self.lost = tuple(orders.get("lost", ()))
                return True
            else:  # an attempt is running: this worker joins the next
                self.report("arrived")
            time.sleep(_LOOK_SECONDS / 2)

    def _is_ready_for(self, orders: Mapping[str, Any]) -> bool:
        """Whether this worker takes part in the attempt that the run has started."""
        task = self._cluster.without(orders.get("lost", ())).task
        ready = ("ready", orders.get("generation", 0))
        return task is not None and self._last_report == ready

    def await_end(self, check: Callable[[], None]) -> bool:
        """Waits until the run ends or orders a new attempt.

        Args:
          check: Called at every look; an exception that it raises ends the waiting.

        Returns:
          True if the run has ended, False if a new attempt is to start.

        Raises:
          UserError, WorkerError: See `orders`.
        """
        while True:
            check()
            orders = self.orders()
            if orders.get("over"):
                return True
            if orders.get("generation", 0) > self.generation:
                return False
            time.sleep(_LOOK_SECONDS / 2)

    def outside(self, done: bool) -> bool:
        """Whether the tasks on other hosts no longer need this one; see `gang.Gang`.

        Args:
          done: Whether this host's task is done.

        Raises:
          NewAttemptError: The run has ordered a new attempt.
          UserError, WorkerError: See `orders`.
        """
        try:
            orders = self.orders()
        except _InterruptedRunError:
            return False  # `worker._send_heartbeats` has the task save and end
        if orders.get("over"):
            return True
        if orders.get("generation", 0) > self.generation:
            why = "a task on another host has failed, or workers return"
            raise watchdog.NewAttemptError(why, silent=orders["silent"])
        if not done and not self._serves:
            return False
        if done and not self._serves:
            self.report("trained")
        if self.name == self._chief:
            return all(map(self._has_trained, self._peers()))
        return self._has_trained(self._chief)

    def may_leave(self) -> bool:
        """Whether this task may end after an interrupt: no checkpoint needs it."""
        chief = self._shared.get(self._chief) or {}
        return not self._serves or chief.get("state") == "left"

    @property
    def _serves(self) -> bool:
        return watchdog.serves(self._cluster, required(self._cluster.task))

    @property
    def _chief(self) -> str:
        """Name of the task that publishes the model of this attempt."""
        return next(x.name for x in self._tasks() if x.type in SYNCHRONOUS)

    def _peers(self) -> Iterator[str]:
        for task in self._tasks():
            if task != self._cluster.task and not watchdog.serves(self._cluster, task):
                yield task.name

    def _tasks(self) -> list[Task]:
        """The tasks of this attempt."""
        tasks = enumerate(self._cluster.tasks)
        return [task for place, task in tasks if place not in self.lost]

    def _has_trained(self, name: str) -> bool:
        state = self._shared.get(name) or {}
        mine = state.get("generation") == self.generation
        return mine and state.get("state") in _TRAINED
