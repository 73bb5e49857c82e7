"""The interface of services that run compiled pipelines, and their errors."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from strategos.components import node_ids
from strategos.components.errors import UserError

ENDED = ("succeeded", "failed", "canceled")
"""States of a run after which nothing changes."""


class TransientError(UserError):
    """A request without an answer, or with an error that can pass, e.g. 503.

    The service may have carried out the request.
    """


class UnsentError(TransientError):
    """A request that the service did not accept, so that nothing was done."""


class MissingError(UserError):
    """404: the service does not know the object in the request, e.g. a run."""


class ConflictError(UserError):
    """409: the object to create exists, or is being changed."""


def kind_of(code: int) -> type[UserError]:
    """The class of the error for an HTTP status."""
    if code in (500, 502, 503, 504):
        return TransientError
    return {404: MissingError, 409: ConflictError, 429: UnsentError}.get(
        code, UserError
    )


@dataclasses.dataclass(frozen=True)
class StepState:
    """A step of a run.

    Attributes:
      state: pending, running, complete, cached, failed or interrupted.
      started: Unix seconds; None before the start.
      finished: Unix seconds; None before the end.
      message: Why the step waits or has failed, in the service's words.
      container: The service's id of the step's pod or job; "" if it is unknown.
      record: URL of the folder with the step's record; "" if the service names none.
    """

    state: str = "pending"
    started: float | None = None
    finished: float | None = None
    message: str = ""
    container: str = ""
    record: str = ""

    @property
    def seconds(self) -> float | None:
        """Duration; None before the end."""
        if self.started is None or self.finished is None:
            return None
        return max(0.0, self.finished - self.started)

    def within(self, run: str) -> StepState:
        """The step as part of its run: once that has ended, no step still runs.

        Args:
          run: State of the run; one that was terminated has ended its steps.
        """
        unfinished = self.state == "running"
        if run == "canceled" and (unfinished or self.state == "failed"):
            # Argo's reason would be "Step exceeded its deadline".
            return dataclasses.replace(self, state="interrupted", message="terminated")
        if run in ENDED and unfinished:
            return dataclasses.replace(self, state="interrupted")
        return self


@dataclasses.dataclass(frozen=True)
class RemoteRun:
    """A run, as its service reports it.

    Attributes:
      run_id: The service's id of the run.
      pipeline: The pipeline's name.
      state: running, or one of `ENDED`.
      tasks: All steps by node, in the order of the graph.
      started: Unix seconds.
      finished: Unix seconds; None before the end.
      message: Why the run failed, if it was not a step.
    """

    run_id: str
    pipeline: str
    state: str
    tasks: Mapping[str, StepState]
    started: float
    finished: float | None = None
    message: str = ""

    @property
    def failed_node(self) -> str:
        """The first step that failed, or ""."""
        failed = (n for n, task in self.tasks.items() if task.state == "failed")
        return next(failed, "")


@dataclasses.dataclass(frozen=True)
class Log:
    """The end of a step's log.

    Attributes:
      lines: The last lines; empty if the service does not give them.
      exit_code: Exit code of the step's process; None if it is unknown.
      command: The command that shows the log; "" if it is unknown.
    """

    lines: tuple[str, ...] = ()
    exit_code: int | None = None
    command: str = ""


@dataclasses.dataclass(frozen=True)
class Recurring:
    """A schedule by which a service starts runs.

    Attributes:
      recurring_id: The service's id.
      cron: The expression, as the service reads it.
      is_active: Whether it starts runs; False if it was paused.
      next_run: Unix seconds; None if none will start.
    """

    recurring_id: str
    cron: str
    is_active: bool
    next_run: float | None


class Service(Protocol):
    """Runs compiled pipelines; every method raises a UserError if a request fails."""

    def check(self) -> None:
        """Checks by one request that the service answers and accepts credentials."""

    def submit(self, file: Path, pipeline: str) -> str:
        """Starts a run of a compiled file; returns the id of the run."""

    def run(self, run_id: str) -> RemoteRun:
        """The present state of a run."""

    def terminate(self, run_id: str) -> None:
        """Ends a run; one that has ended stays as it is."""

    def log(self, run: RemoteRun, node: str) -> Log:
        """The end of a step's log."""

    def progress(self, run: RemoteRun, node: str) -> str:
        """The last progress that a running step has logged; "" if unknown."""

    def link(self, run_id: str) -> str:
        """The page of a run in the service's user interface."""

    def cron(self) -> str:
        """`schedule.cron` as the service reads it; raises a BadInputError."""

    def create_recurring(self, file: Path, pipeline: str) -> Recurring:
        """Starts runs of a compiled file by `schedule.cron`."""

    def recurring(self, pipeline: str) -> list[Recurring]:
        """The schedules of a pipeline, by its name."""

    def delete_recurring(self, recurring_id: str) -> None:
        """Deletes a schedule; its runs stay."""


def in_order(names: Sequence[str]) -> list[str]:
    """Sorts nodes by the order of the graph; unknown ones come last."""
    places = {name: place for place, name in enumerate(node_ids.ON_CLUSTER)}
    return sorted(names, key=lambda name: (places.get(name, len(places)), name))


def unix_seconds(text: str | None) -> float | None:
    """Unix seconds of a time in RFC 3339; None without one, and for 1970."""
    if not text:
        return None
    whole, _, fraction = text.rstrip("Z").partition(".")
    when = datetime.datetime.fromisoformat(whole).replace(tzinfo=datetime.timezone.utc)
    seconds = when.timestamp() + float(f"0.{fraction or 0}")
    return seconds if seconds > 0 else None
