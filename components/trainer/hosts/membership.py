"""A worker's place in a run that waits for workers: what it says and hears there."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from strategos.components import worker_process
from strategos.components.errors import UserError
from strategos.components.trainer.cluster.environment import ClusterSpec
from strategos.components.trainer.gang import watchdog
from strategos.components.trainer.hosts import rendezvous
from strategos.components.trainer.hosts.rendezvous import Rendezvous

_LOOK_SECONDS = 0.3
_TRAINED = ("trained", "done")


class _InterruptedRunError(UserError):
    """The run was asked to end."""


class Membership:
    """A worker's place in a run.

    Args:
      folder: The run's own folder.
      cluster: All tasks, and which of them this worker is.
      session: Tells this worker from one before it at the same place.
    """

    def __init__(self, folder: str | Path, cluster: ClusterSpec, session: str):
        self._shared = Rendezvous(Path(folder))
        self._cluster = cluster
        self._session = session
        self._looked = 0.0
        self._orders: dict[str, Any] = {}
        self._last_report: tuple[str, int] = ("", -1)
        self.generation = 0

    @property
    def name(self) -> str:
        """The task's."""
        return self._cluster.task.name

    def join(self) -> None:
        """Tells the run that this worker is there, in place of any before it."""
        self._put("joined")

    def report(self, state: str, **more: Any) -> None:
        """Tells the run how this worker is, once.

        Raises:
          UserError: Another one has taken its place.
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
        """Goes on from what the host has reported; returns its last state."""
        report = self._shared.get(self.name) or {}
        if report.get("session") != self._session:
            return ""
        self.generation = report["generation"]
        self._last_report = (report["state"], self.generation)
        return report["state"]

    def to_json(self) -> dict[str, Any]:
        """As JSON-able values, for another process of this worker."""
        return {"folder": str(self._shared.folder), "session": self._session}

    def orders(self) -> dict[str, Any]:
        """What the run wants now.

        Raises:
          UserError: It has failed, or was interrupted; of the class of its own error.
            Or another worker has taken the place of this one.
          WorkerError: It has failed by an error of ours.
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
        """Waits until all tasks are there and the run lets them go.

        False where it is over instead: the chief had no more need of this one.

        Args:
          check: Called now and then; what it raises ends the waiting.
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
            elif self._last_report == ("ready", generation):
                return True
            else:
                self.report("arrived")  # in the middle of an attempt: the next is ours
            time.sleep(_LOOK_SECONDS / 2)

    def await_end(self, check: Callable[[], None]) -> bool:
        """Waits until the run is over, or wants a new attempt: then False."""
        while True:
            check()
            orders = self.orders()
            if orders.get("over"):
                return True
            if orders.get("generation", 0) > self.generation:
                return False
            time.sleep(_LOOK_SECONDS / 2)

    def outside(self, done: bool) -> bool:
        """See `gang.Gang`: whether the others no longer need this task."""
        try:
            orders = self.orders()
        except _InterruptedRunError:
            return False  # `worker._send_heartbeats` has the task save and end
        if orders.get("over"):
            return True
        if orders.get("generation", 0) > self.generation:
            raise watchdog.NewAttemptError(silent=orders["silent"])
        if not done and not self._serves:
            return False
        if done and not self._serves:
            self.report("trained")
        if self._cluster.is_chief:
            return all(map(self._has_trained, self._peers()))
        return self._has_trained(self._cluster.chief.name)

    def may_leave(self) -> bool:
        """After an interrupt: whether the chief does not save what this task holds."""
        chief = self._shared.get(self._cluster.chief.name) or {}
        return not self._serves or chief.get("state") == "left"

    @property
    def _serves(self) -> bool:
        return watchdog.serves(self._cluster, self._cluster.task)

    def _peers(self) -> Iterator[str]:
        for task in self._cluster.tasks:
            if task != self._cluster.task and not watchdog.serves(self._cluster, task):
                yield task.name

    def _has_trained(self, name: str) -> bool:
        state = self._shared.get(name) or {}
        mine = state.get("generation") == self.generation
        return mine and state.get("state") in _TRAINED
