"""Trains by workers on other hosts, each started there by `strategos worker`.

This side belongs to the run, in the Trainer's executor. It calls for workers through a
folder that all hosts share (`rendezvous.py`), starts an attempt when all have joined,
and starts another one, on the same addresses, when a worker has failed. It computes
nothing; the chief's host publishes the model.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import shutil
import time
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from strategos.components import events, worker_process
from strategos.components.errors import UserError, required
from strategos.components.files import places
from strategos.components.processes import Grace
from strategos.components.trainer import remote_checkpoints
from strategos.components.trainer.distribution.environment import ClusterSpec
from strategos.components.trainer.gang import watchdog
from strategos.components.trainer.gang.restarts import Restarts
from strategos.components.trainer.gang.task_process import Failure
from strategos.components.trainer.hosts import rendezvous
from strategos.components.trainer.hosts.rendezvous import HeartbeatMonitor
from strategos.components.trainer.hosts.roster import Roster
from strategos.components.trainer.launchers.launcher import Launcher
from strategos.components.trainer.operation import Operation
from strategos.components.trainer.spec import WorkerSpec
from strategos.components.user_code import uses

_JOIN = (
    ". Run `strategos worker PIPELINE_YAML` on each host, with TF_CONFIG naming its "
    "task."
)
_ECHO_SECONDS = 2.0  # for the original failure to be reported, after its echo


def launch(spec: WorkerSpec, operation: Operation) -> dict[str, Any]:
    """Waits for workers on other hosts, lets them train, and returns the facts.

    Args:
      spec: The training.
      operation: Launcher, time-outs, restarts and checkpoints.

    Returns:
      The facts of the training, as in `trainer.json`.

    Raises:
      UserError: Workers are missing or differ, or the user's code or data fail on one.
      WorkerError: A worker failed by an internal error.
    """
    if operation.from_scratch:
        shutil.rmtree(spec.checkpoint_dir, ignore_errors=True)
        operation = dataclasses.replace(operation, from_scratch=False)
    folder = rendezvous.folder_of(spec.model_dir)
    with worker_process.terminated_last(), Run(spec, operation, folder) as run:
        return run.facts()


def check(root: str, _: Mapping[str, Any]) -> None:
    """Rejects a root that hosts cannot share as files.

    Args:
      root: Path or URL of the root, or a folder in it.

    Raises:
      UserError: `root` is remote.
    """
    rendezvous.folder_of(f"{root}/Trainer/model/0")


LAUNCHER = Launcher(
    "external",
    "waits for hosts that join by `strategos worker`",
    launch,
    check=check,
    hosts_join=True,
    fixed_size="",
)


class LostHostError(Exception):
    """A host is lost for good: no other can join the run in its place."""


class Run:
    """One run: its call for workers, and the state of the workers that join.

    Args:
      spec: The training.
      operation: Launcher, time-outs, restarts and checkpoints.
      folder: The folder that all hosts share, see `rendezvous.py`.
      needed: Names of the tasks in whose place no other host can join. If the host of
        one is lost, `facts` raises `LostHostError`.
    """

    def __init__(
        self,
        spec: WorkerSpec,
        operation: Operation,
        folder: Path,
        *,
        needed: Collection[str] = (),
    ):
        self._operation = operation
        self._needed = needed
        self._checkpoints = places.at(spec.checkpoint_dir)
        self._shared = rendezvous.Rendezvous(folder)
        self._call = {
            "spec": spec.to_json(),
            "operation": operation.to_json(),
            "fingerprints": rendezvous.fingerprints(spec),
        }
        self._generation = self._beats = 0
        self._restarts = Restarts(operation.max_restarts)
        self._going = self._silent = False
        self._workers: dict[str, dict[str, Any]] = {}
        self._monitors: dict[str, HeartbeatMonitor] = {}
        self._sessions: dict[str, str] = {}
        newest = functools.partial(
            remote_checkpoints.newest_complete, self._checkpoints
        )
        self._roster = Roster(operation, self._restarts, self._state, newest, needed)
        self._events: dict[str, events.NewEvents] = {}
        self._broken = 0.0

    def __enter__(self) -> Run:
        self._here = self._shared.open_run(self._call)
        return self

    def __exit__(self, kind: Any, error: BaseException | None, _: Any) -> None:
        """Reports to the workers how the run ended."""
        over: dict[str, Any] = {"how": "done"}
        if isinstance(error, Exception):
            over = {"how": "failed", "error": worker_process.summary(error)}
        elif error is not None:
            over = {"how": "interrupted"}
        self._shared.remove(rendezvous.CALL)
        self._exchange(over)
        until = time.monotonic() + Grace.SAVE
        while over["how"] == "interrupted" and time.monotonic() < until:
            if not any(map(self._is_alive, self._workers)):
                break
            self._exchange(over)

    def facts(self) -> dict[str, Any]:
        """Waits for workers and lets them train, in several attempts if needed."""
        while True:
            self._await_workers()
            facts = self._train()
            if facts is not None:
                return self._roster.recorded(facts)
            self._generation += 1

    def _exchange(self, over: Mapping[str, Any] | None = None) -> None:
        """Writes the orders, waits a little, and reads the workers' reports."""
        self._beats += 1
        orders = {
            "beat": self._beats,
            "generation": self._generation,
            "go": self._going,
            "lost": self._roster.lost,
            "silent": self._silent,
            "over": over,
        }
        self._here.put(rendezvous.RUN, orders)
        time.sleep(rendezvous.HEARTBEAT_SECONDS)
        files = self._here.folder.glob("*-*.json")
        for name in sorted(path.name.removesuffix(".json") for path in files):
            state = self._here.get(name)
            if state:
                self._workers[name] = state

    def _state(self, name: str) -> str:
        alive = name in self._workers and self._is_alive(name)
        return self._workers[name]["state"] if alive else ""

    def _is_alive(self, name: str) -> bool:
        value = None
        with contextlib.suppress(OSError):  # no heartbeat yet, or no shared files
            value = (self._here.folder / f"{name}.beat").read_text()
        lost = self._monitors.setdefault(name, HeartbeatMonitor()).is_lost(value)
        return not lost and self._workers[name]["state"] != "left"

    def _await_workers(self) -> None:
        """Waits until all tasks are ready for the next attempt.

        Or until the chief is done: it may have left the last attempt before it could
        read that another task had failed.
        """
        began, logged = time.monotonic(), ""
        while True:
            self._exchange()
            if self._chief_is("done"):
                return
            ready = [name for name in self._workers if self._is_ready(name)]
            self._check_hosts()
            self._check_failures()
            self._check_clusters(ready)
            members = [task.name for task in self._roster.tasks]
            missing = [name for name in members if name not in ready]
            if ready and not missing:
                self._sessions = {n: self._workers[n]["session"] for n in members}
                return
            waited = time.monotonic() - began
            if self._roster.goes_on_without(missing, waited):
                continue
            if waited > self._operation.start_timeout:
                raise UserError(self._missing_workers(ready, missing))
            text = f"waiting for {', '.join(missing) or 'workers'}"
            if text != logged:
                events.emit("progress", message=text)
                watchdog.log(text)
                logged = text

    def _check_hosts(self) -> None:
        lost = [name for name in self._workers if not self._is_alive(name)]
        lost = [name for name in lost if name in self._needed]
        if lost:
            raise LostHostError(f"{self._on_host(lost[0])} is lost")

    def _check_failures(self) -> None:
        """Lets all tasks start again if one has failed before the attempt began."""
        for name, state in self._workers.items():
            if not self._takes_part(name):
                continue
            mine = state["generation"] == self._generation
            if state["state"] == "failed" and mine and self._is_alive(name):
                failure = _failure(self._on_host(name), state["failure"])
                self._count_failure(name, *failure)
                self._generation += 1
                return

    def _takes_part(self, name: str) -> bool:
        tasks = self._roster.tasks
        return not tasks or any(task.name == name for task in tasks)

    def _is_ready(self, name: str) -> bool:
        state = self._workers[name]
        if state["state"] == "rejected":
            raise UserError(f"{self._on_host(name)}: {state['reason']}")
        ready = (state["state"], state["generation"]) == ("ready", self._generation)
        return self._is_alive(name) and ready

    def _check_clusters(self, ready: list[str]) -> None:
        """Rejects workers that name different tasks or addresses."""
        if not ready:
            return
        clusters = {name: self._workers[name]["cluster"] for name in ready}
        first, cluster = next(iter(clusters.items()))
        for name, other in clusters.items():
            if other != cluster:
                raise UserError(
                    f"{self._on_host(name)} names another cluster in TF_CONFIG "
                    f"({json.dumps(other)}) than {self._on_host(first)} "
                    f"({json.dumps(cluster)}). It must be the same on every host."
                )
        addresses = {kind: tuple(hosts) for kind, hosts in cluster.items()}
        self._roster.settle(ClusterSpec(addresses))

    def _missing_workers(self, ready: list[str], missing: list[str]) -> str:
        who = f"{', '.join(missing)} did" if missing else "no worker"
        verb = "not join" if missing else "joined"
        others = ", ".join(map(self._on_host, ready))
        return (
            f"{who} {verb} within {self._operation.start_timeout:g} s "
            "(trainer.distribution.start_timeout)"
            + (f"; {others} did" if ready else "")
            + (". The log has the output of each task." if self._needed else _JOIN)
        )

    def _on_host(self, name: str) -> str:
        return f"{name} on {self._workers[name]['host']}"

    def _train(self) -> dict[str, Any] | None:
        """Starts an attempt; returns the facts, or None for another attempt."""
        self._going, echoing = True, 0.0
        self._roster.begin()
        try:
            while not self._chief_is("done"):
                self._exchange()
                self._pass_on()
                if not self._chief_is("trained") and self._roster.takes_in():
                    return None
                failures = sorted(self._failures_now(), key=lambda each: each[1].echo)
                if not failures:
                    continue
                echoing = echoing or time.monotonic()
                if (
                    not failures[0][1].echo
                    or time.monotonic() - echoing > _ECHO_SECONDS
                ):
                    self._count_failure(*failures[0])
                    return None
            self._pass_on()
            return self._workers[required(self._roster.chief).name]["facts"]
        finally:
            self._going = False

    def _pass_on(self) -> None:
        """Emits all events of the chief, and other tasks' events of `uses.EVENT`."""
        for task in self._roster.cluster.tasks:
            path = Path(str(self._here.folder), f"{task.name}.events")
            new = self._events.setdefault(task.name, events.NewEvents(path))
            for event in new.read():
                if task == self._roster.chief or event["event"] == uses.EVENT:
                    events.relay(event)

    def _chief_is(self, *states: str) -> bool:
        """Whether the chief's state is one of `states`."""
        chief = self._roster.chief
        state = self._workers.get(chief.name) if chief else None
        return bool(state and state["state"] in states)

    def _failures_now(self) -> Iterator[tuple[str, Failure, bool]]:
        """The failures of this attempt by task, and whether a step had been done.

        Once the chief has trained, it evaluates, exports and publishes alone: the ends
        of other workers no longer matter.
        """
        alone = self._chief_is("trained", "done")
        for name, session in self._sessions.items():
            if alone and name != required(self._roster.chief).name:
                continue
            state = self._workers[name]
            mine = state.get("generation") == self._generation
            if state["session"] != session:
                yield name, Failure(self._on_host(name), "was started again"), True
            elif state["state"] == "failed" and mine:
                yield name, *_failure(self._on_host(name), state["failure"])
            elif state["state"] == "left":
                left = Failure(self._on_host(name), "has left", preempted=True)
                yield name, left, True
            elif not self._is_alive(name):
                yield name, Failure(self._on_host(name), "is gone"), True

    def _count_failure(self, name: str, failure: Failure, stepped: bool) -> None:
        """Counts a failure; raises an error if no restart is left."""
        self._silent, now = failure.silent, time.monotonic()
        if stepped or not self._broken:
            self._broken = now
        again = failure.echo and not stepped and self._generation > 0
        joining = again and now - self._broken < self._operation.start_timeout
        step = 0
        with contextlib.suppress(OSError):  # of a store that does not answer now
            step = remote_checkpoints.newest(self._checkpoints)
        failed = watchdog.AttemptFailedError(failure, stepped=stepped, step=step)
        self._restarts.after(failed, joining=joining, culprit=name)


def _failure(name: str, report: Mapping[str, Any]) -> tuple[Failure, bool]:
    """The failure that a worker reported, and whether a step had been done."""
    error = report["error"] and worker_process.error_of(report["error"], name)
    values = {**report, "error": error}
    stepped = values.pop("stepped")
    if not report["preempted"]:  # the whole gang is preempted
        values["task"] = name
    return Failure(**values), stepped
