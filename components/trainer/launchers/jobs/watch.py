"""Watches one job from the launcher until its attempt has ended."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

from strategos.components import events
from strategos.components.errors import UserError
from strategos.components.processes import Grace
from strategos.components.trainer.gang import watchdog
from strategos.components.trainer.gang.task_process import Failure
from strategos.components.trainer.hosts.rendezvous import HeartbeatMonitor
from strategos.components.trainer.launchers.jobs.attempt import REJECTED, Attempt
from strategos.components.trainer.launchers.jobs.scheduler import (
    Job,
    Scheduler,
    UnreachableError,
)

_ASK_SECONDS = 3.0  # between two questions to the batch system
_SILENT_SECONDS = 30.0  # without a heartbeat; the tasks themselves end after six
_LATE_SECONDS = 6.0  # in which an answer written by another machine becomes visible


class Watch:
    """Watches one job. The answer in the attempt's folder outranks the job's state.

    Args:
      scheduler: The batch system.
      name: Name of the job.
      job: The job.
      attempt: The attempt that it was submitted for.
      start_timeout: Seconds from the job's start to its first heartbeat.
      clock: Monotonic time in seconds.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        name: str,
        job: Job,
        attempt: Attempt,
        start_timeout: float,
        clock: Callable[[], float] = time.monotonic,
    ):
        self._scheduler, self._name, self._attempt = scheduler, name, attempt
        self._start_timeout = start_timeout
        self._clock = clock
        self._output = scheduler.output(job, attempt)
        self._beat: Any = None  # the last one that could be read
        self._monitor = HeartbeatMonitor(clock, _SILENT_SECONDS)
        self._since: dict[str, float] = {}
        self._asked = -_ASK_SECONDS
        self._logged = ""
        self.job = job

    @property
    def label(self) -> str:
        """Name of the job in messages: `Slurm job 12`."""
        return f"{self._scheduler.name} job {self.job.id}"

    def until_ended(self) -> dict[str, Any] | Failure:
        """Waits for the end of the attempt, and passes on the job's logs and events.

        Returns:
          The job's answer with `facts` or `error`, or how the job failed without one.

        Raises:
          UserError: The job cannot start, or somebody cancelled it.
        """
        while True:
            self._output.pass_on()
            answer = self._attempt.answer()
            if answer and "lost" in answer:
                self._asked = -_ASK_SECONDS
                self._ask()
                return self._failed(f"lost a task: {answer['lost']} ({self.job.state})")
            if answer:
                self.await_end()
                return answer
            known = self._ask()
            failure = self._failure(known)
            if failure:
                return failure
            time.sleep(self._attempt.look_seconds)

    def end(self) -> None:
        """Makes the job end, and waits until its tasks have saved.

        Tasks that find the attempt revoked end, too. Revoking comes first because it is
        quick: Argo kills a step a second after SIGTERM.
        """
        with contextlib.suppress(OSError):
            self._attempt.revoke()
        with contextlib.suppress(UnreachableError):
            self._scheduler.cancel(self.job)
        self.await_end()

    def await_end(self) -> None:
        """Waits for the job to end, but not long."""
        until = self._clock() + Grace.SAVE
        while self._clock() < until:
            self._asked = -_ASK_SECONDS
            if not self._ask() or self.job.phase == "ended":
                break
            self._output.pass_on()  # Kubernetes deletes the log of a pod with the pod
            time.sleep(self._attempt.look_seconds)
        self._output.pass_on(at_once=True)

    def _ask(self) -> bool:
        """Asks for the job's state now and then; False if the job is unknown."""
        now = self._clock()
        if now - self._asked < _ASK_SECONDS:
            return True
        self._asked = now
        if self._scheduler.launcher_timeout:
            self._attempt.beat()
        try:
            jobs = self._scheduler.jobs(self._name)
        except UnreachableError as error:
            self._log(f"{self._scheduler.name} does not answer, {self.label}: {error}")
            return True
        same = [job for job in jobs if job.id == self.job.id]
        self.job = same[0] if same else self.job
        return bool(same)

    def _failure(self, known: bool) -> Failure | None:
        """How the job failed, if it has."""
        job, beat = self.job, self._attempt.heartbeat()
        self._beat = self._beat if beat is None else beat
        silent, begun = self._monitor.is_lost(self._beat), self._beat is not None
        waits = job.phase == "waiting" and known and (not begun or job.partial)
        too_long = self._lasts("waiting", waits, self._scheduler.pending_timeout)
        if waits:
            self._check_pending(too_long)
            self._monitor = HeartbeatMonitor(self._clock, _SILENT_SECONDS)
            return None
        gone = job.phase == "ended" or (not known and silent)
        ended = self._lasts("ended", gone, _LATE_SECONDS)
        if gone:
            return self._ending() if ended else None
        if job.partial:  # the training goes on without the others
            self._log(f"{self.label}: {job.state}")
        if self._lasts("starting", not begun, self._start_timeout):
            what = f"started no task within {self._start_timeout:g} s"
            return self._failed(what)
        if begun and silent:
            return self._failed(f"sent no heartbeat for {_SILENT_SECONDS:g} s")
        return None

    def _check_pending(self, too_long: bool) -> None:
        job, limit = self.job, self._scheduler.pending_timeout
        self._log(f"waiting for {self.label}: {job.state}")
        if not job.hopeless and not too_long:
            return
        when = "cannot start" if job.hopeless else f"has not started within {limit:g} s"
        raise UserError(
            f"{self.label} {when}: {job.state}", remedy=self._scheduler.remedy
        )

    def _ending(self) -> Failure:
        if self.job.cancelled:
            raise UserError(
                f"{self.label} was cancelled: {self.job.state}.",
                remedy="The next run resumes from the last checkpoint.",
            )
        if self._output.rejection:
            raise UserError(
                f"a task of {self.label} {REJECTED}{self._output.rejection}"
            )
        state = self.job.state if self.job.phase == "ended" else "an unknown state"
        return self._failed(f"ended as {state}", preempted=self.job.reclaimed)

    def _failed(self, what: str, preempted: bool = False) -> Failure:
        self._output.pass_on()
        hint = f"{self.job.hint} {self._output.last_lines()}".strip()
        return Failure(self.label, what, hint=hint, preempted=preempted)

    def _lasts(self, what: str, holds: bool, seconds: float) -> bool:
        """Whether a condition has held at each look for longer than `seconds`."""
        if not holds:
            self._since.pop(what, None)
            return False
        now = self._clock()
        return now - self._since.setdefault(what, now) > seconds

    def _log(self, text: str) -> None:
        if text != self._logged:
            self._logged = text
            watchdog.log(text)
            events.emit("progress", message=text)
