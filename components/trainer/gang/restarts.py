"""Decides between a restart and an error after a failed attempt, for every launcher."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection

from strategos.components import events
from strategos.components.errors import UserError, required
from strategos.components.trainer.gang import members
from strategos.components.trainer.gang.members import Members
from strategos.components.trainer.gang.task_process import Failure
from strategos.components.trainer.gang.watchdog import AttemptFailedError, log
from strategos.components.wording import counted
from strategos.components.worker_process import WorkerError


@dataclasses.dataclass(frozen=True)
class Decision:
    """The decision after a failed attempt: a restart, or the error that ends training.

    Attributes:
      failures: Failures that count since the last progress, with this one.
      number: Number of the restart for log lines, e.g. "1 of 3" or "not counted".
      error: The error that ends the training.
    """

    failures: int
    number: str = ""
    error: Exception | None = None


@dataclasses.dataclass(frozen=True)
class RestartPolicy:
    """Restarts a gang where that helps.

    A training that gets further with each restart may be restarted as often as machines
    fail; restarts in a row that repeat the same steps are limited.

    Attributes:
      limit: `trainer.distribution.max_restarts`.
    """

    limit: int

    def decide(
        self,
        failed: AttemptFailedError,
        failures: int,
        *,
        furthest: int = 0,
        joining: bool = False,
    ) -> Decision:
        """Decides between a restart and an error after a failed attempt.

        Args:
          failed: The failed attempt.
          failures: Earlier failures that count.
          furthest: The furthest step that any earlier attempt is known to have done.
          joining: Whether the gang has not yet joined again since the last failure:
            then it starts once more, and this failure does not count.
        """
        if failed.failure.permanent and failed.failure.error:
            return Decision(failures, error=failed.failure.error)
        if joining:
            return Decision(failures, "once more")
        failures = failed.counts + (failures if failed.step <= furthest else 0)
        if failures > self.limit:
            return Decision(failures, error=self._exhausted(failed.failure))
        number = f"{failures} of {self.limit}" if failed.counts else "not counted"
        return Decision(failures, number)

    def _exhausted(self, failure: Failure) -> Exception:
        """The error for a gang that failed after its last restart."""
        setting = "trainer.distribution.max_restarts"
        tried = f"{setting} allows no restart."
        if self.limit:
            times = counted(self.limit, "time")
            tried = f"The gang was restarted {times} without progress ({setting})."
        if isinstance(failure.error, UserError):
            remedy = " ".join(filter(None, (failure.error.remedy, tried)))
            return failure.error.but(remedy=remedy)
        if failure.error is not None:
            return WorkerError(f"{str(failure.error).rstrip('. ')}. {tried}")
        name = failure.task[0].upper() + failure.task[1:]
        kind = UserError if failure.hint else WorkerError
        return kind(f"{name} {failure.what}. {tried} {failure.hint}".strip())


class Restarts:
    """The restarts of one training.

    Args:
      limit: See `RestartPolicy`.
      of: The workers of the gang, if it may lose some.

    Attributes:
      members: Those of the next attempt.
    """

    def __init__(self, limit: int, of: Members | None = None):
        self._policy, self._failures, self._furthest = RestartPolicy(limit), 0, 0
        self.members = of

    def after(
        self, failed: AttemptFailedError, *, joining: bool = False, culprit: str = ""
    ) -> None:
        """Reports that another attempt follows, in the log and in the live view.

        Args:
          failed: The last attempt.
          joining: See `RestartPolicy.decide`.
          culprit: Name of the task that failed first; by default the failure's task.

        Raises:
          Exception: No other attempt follows.
        """
        if self._loses_workers(failed, culprit or failed.failure.task):
            return
        decision = self._policy.decide(
            failed, self._failures, furthest=self._furthest, joining=joining
        )
        self._failures = decision.failures
        self._furthest = max(self._furthest, failed.step)
        if decision.error:
            raise decision.error from None
        error = failed.failure.error
        text = f"{failed}: restarting the gang ({decision.number})"
        log(f"{text}: {error}" if error else text)
        events.emit("warning", message=text)

    def take_in(self, names: Collection[str], step: int) -> None:
        """Reports that lost workers are tried again in the next attempt.

        Args:
          names: Their names.
          step: Step of the checkpoint from which it goes on.
        """
        before = required(self.members)
        self.members = before.with_back(names)
        self._furthest = max(step, self._furthest)
        members.announce(before, self.members, f"step {step:,}")

    def leave_out(self, names: Collection[str], why: str) -> None:
        """Reports that the next attempt goes on without workers that are away.

        Args:
          names: Their names.
          why: The reason, as part of a sentence.
        """
        before = required(self.members)
        self.members, self._failures = before.without(names), 0
        members.announce(before, self.members, why)

    def _loses_workers(self, failed: AttemptFailedError, culprit: str) -> bool:
        """Whether the gang goes on with fewer workers; reports that."""
        before, failure = self.members, failed.failure
        if before is None or failure.permanent or failure.preempted:
            return False
        progressed = failed.step > self._furthest
        self.members = before.after_failure(culprit, progressed=progressed)
        if self.members.lost == before.lost:
            return False
        self._furthest, self._failures = max(self._furthest, failed.step), 0
        why = f"{failed}, again without progress"
        members.announce(before, self.members, why)
        return True
