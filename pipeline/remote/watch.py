"""Follows a run of a service: its steps become the events of the live view."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from strategos.components import events, node_ids
from strategos.components.errors import UserError, first_line
from strategos.pipeline.remote.retries import WATCH_SECONDS, Retries
from strategos.pipeline.remote.service import ENDED, RemoteRun, Service, StepState

Json = dict[str, Any]

_POLL_SECONDS = 3.0
_LOG_SECONDS = 9.0  # Between two reads of a running step's log.
_GOING_ON = ("pending", "running")
_DONE = ("complete", "cached")


def follow(
    service: Service,
    run_id: str,
    *,
    runner: str,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> RemoteRun:
    """Waits for the end of a run, and reports each change as an event.

    Args:
      service: The service.
      run_id: The service's id of the run.
      runner: Name of the runner for the view.
      clock: Returns monotonic seconds.
      sleep: Waits for so many seconds.

    Raises:
      UserError: The service does not know the run, rejects the request, or has not
        answered for `WATCH_SECONDS`. The run goes on.
    """
    retries = Retries(WATCH_SECONDS, clock=clock, sleep=sleep, on_failure=_warn)
    known: dict[str, StepState] = {}
    progress = _Progress(service, clock)
    while True:
        run = retries.call(lambda: service.run(run_id))
        if run.tasks.keys() - known.keys():
            _announce(run, runner)
            known = {name: StepState() for name in run.tasks}
        changes = [
            change
            for node, task in run.tasks.items()
            for change in _changes(node, known[node], task)
        ]
        for kind, fields in sorted(changes, key=lambda each: each[1]["time"]):
            events.emit(kind, **fields)
        known = dict(run.tasks)
        if run.state in ENDED:
            return run
        progress.report(run)
        sleep(_POLL_SECONDS)


class _Progress:
    """Reports the progress in the Trainer's log, as training takes the longest.

    Args:
      service: The service.
      clock: Returns monotonic seconds.
    """

    def __init__(self, service: Service, clock: Callable[[], float]):
        self._service, self._clock = service, clock
        self._next, self._text = 0.0, ""

    def report(self, run: RemoteRun) -> None:
        """Reads the log, if that is due and the step is running."""
        task = run.tasks.get(node_ids.TRAINER)
        if task is None or task.state != "running" or self._clock() < self._next:
            return
        self._next = self._clock() + _LOG_SECONDS
        text = self._service.progress(run, node_ids.TRAINER)
        if text and text != self._text:
            self._text = text
            events.emit("progress", node=node_ids.TRAINER, message=text)


def _warn(error: UserError) -> None:
    events.emit("warning", message=f"{first_line(error)}; asking again")


def _announce(run: RemoteRun, runner: str) -> None:
    events.emit(
        "run_started",
        run_id=run.run_id,
        pipeline=run.pipeline,
        nodes=list(run.tasks),
        runner=runner,
    )


def _changes(
    node: str, before: StepState, now: StepState
) -> Iterator[tuple[str, Json]]:
    """Yields the events that lead from one state of a step to another."""
    at = {"node": node, "time": float(now.started or time.time())}
    if before.state == "pending" and now.state != "pending":
        yield "node_started", at
    at = at | {"time": float(now.finished or time.time())}
    if now.state == before.state or now.state in _GOING_ON:
        if now.message != before.message:
            yield "progress", at | {"message": now.message}
        return
    at["seconds"] = now.seconds
    if now.state in _DONE:
        yield "node_finished", at | {"state": now.state}
        return
    error = UserError(now.message or now.state)
    yield "node_failed", at | {"error": error.to_json()}
