"""Trains as a job of a batch system, in as many attempts as it takes."""

from __future__ import annotations

import dataclasses
import hashlib
import time
from collections.abc import Callable
from typing import Any, TypeVar

from strategos.components import worker_process
from strategos.components.errors import UserError
from strategos.components.files import places
from strategos.components.files.places import RemotePath
from strategos.components.trainer import finished, remote_checkpoints
from strategos.components.trainer.gang import watchdog
from strategos.components.trainer.gang.restarts import Restarts
from strategos.components.trainer.gang.task_process import Failure
from strategos.components.trainer.launchers.jobs.attempt import (
    Attempt,
    Attempts,
    attempt_at,
)
from strategos.components.trainer.launchers.jobs.scheduler import (
    Job,
    Scheduler,
    UnreachableError,
)
from strategos.components.trainer.launchers.jobs.watch import Watch
from strategos.components.trainer.operation import Operation
from strategos.components.trainer.spec import WorkerSpec
from strategos.components.worker_process import WorkerError

_T = TypeVar("_T")

_TRIES = 6
_PAUSE_SECONDS = 5.0


def launch(
    spec: WorkerSpec, operation: Operation, scheduler: Scheduler
) -> dict[str, Any]:
    """Trains as a job and waits for its end; joins a job of an earlier launcher.

    Args:
      spec: The training; all machines see its paths as this one does.
      operation: Launcher, time-outs, restarts and checkpoints.
      scheduler: The batch system.

    Returns:
      The facts of the training, as in `trainer.json`.

    Raises:
      UserError: The job is rejected, cannot start or was cancelled, or the user's code,
        settings or data cannot be trained with.
      WorkerError: The job failed by an internal error.
    """
    with worker_process.terminated_last():
        return _Training(spec, operation, scheduler).facts()


class _Training:
    """One training, and its jobs."""

    def __init__(self, spec: WorkerSpec, operation: Operation, scheduler: Scheduler):
        self._spec = spec
        self._operation = dataclasses.replace(operation, from_scratch=False)
        self._from_scratch = operation.from_scratch
        self._scheduler = scheduler
        self._attempts = Attempts(spec, self._operation)
        self._folder = places.at(spec.checkpoint_dir).absolute()
        digest = hashlib.sha256(str(self._folder).encode()).hexdigest()[:12]
        self._name = f"strategos-{digest}"

    def facts(self) -> dict[str, Any]:
        """Trains until the model is published, or no restart is left."""
        attempt = self._left()
        if self._from_scratch:
            places.remove(self._folder)
        restarts, policy = 0, Restarts(self._operation.max_restarts)
        while True:
            before = self._newest()
            ending = self._ended(attempt or self._submitted())
            attempt = None
            if isinstance(ending, dict):
                break
            step = self._newest()
            policy.after(
                watchdog.AttemptFailedError(ending, stepped=step != before, step=step)
            )
            restarts += 1
        if "error" in ending:
            raise worker_process.error_of(ending["error"])
        facts = ending["facts"]
        if not self._operation.check_bytes:
            self._publish()
        self._attempts.remove()
        return {**facts, "restarts": facts["restarts"] + restarts}

    def _left(self) -> tuple[Job, Attempt] | None:
        """The job that an earlier launcher of this training left; ends all others."""
        live = [j for j in self._asked(self._jobs) if j.phase != "ended"]
        same = [j for j in live if self._is_same(j) and not j.cancelled]
        latest = same[-1] if same else None
        for job in live:
            if job is not latest:
                self._end(job)
        if latest is None:
            return None
        watchdog.log(f"joining {self._scheduler.name} job {latest.id}: {latest.state}")
        self._asked(lambda: self._scheduler.adopt(latest))
        return latest, attempt_at(latest.folder)

    def _end(self, job: Job) -> None:
        """Makes a job of other settings end; its folder may have been removed."""
        attempt = attempt_at(job.folder)
        if attempt.exists:
            self._watch(job, attempt).end()
        else:
            self._asked(lambda: self._scheduler.cancel(job))

    def _is_same(self, job: Job) -> bool:
        is_same = self._attempts.is_same(attempt_at(job.folder))
        return is_same and not self._from_scratch

    def _submitted(self) -> tuple[Job, Attempt]:
        timeout = self._scheduler.launcher_timeout
        attempt = self._stored(lambda: self._attempts.new(timeout))
        job = self._asked(lambda: self._scheduler.submit(self._name, attempt))
        watchdog.log(f"submitted {self._scheduler.name} job {job.id}: {attempt.folder}")
        return job, attempt

    def _jobs(self) -> list[Job]:
        return self._scheduler.jobs(self._name)

    def _asked(self, question: Callable[[], _T]) -> _T:
        """The batch system's answer; asks again for a while if there is none."""
        problem = f"{self._scheduler.name} does not answer"
        return _insisted(question, UnreachableError, problem)

    def _ended(self, started: tuple[Job, Attempt]) -> dict[str, Any] | Failure:
        """How a job has ended; it is cancelled if this process must end before."""
        watch = self._watch(*started)
        ending: dict[str, Any] | Failure | None = None
        try:
            ending = watch.until_ended()
        finally:
            if not isinstance(ending, dict):
                watch.end()
        return ending

    def _watch(self, job: Job, attempt: Attempt) -> Watch:
        timeout = self._operation.start_timeout
        return Watch(self._scheduler, self._name, job, attempt, timeout)

    def _stored(self, use: Callable[[], _T]) -> _T:
        """Result of `use`, which is retried while the object store does not answer."""
        if not isinstance(self._folder, RemotePath):
            return use()
        problem = f"{self._folder}: the object store cannot be used"
        remedy = "The next run resumes from the last checkpoint."
        return _insisted(use, OSError, problem, remedy)

    def _newest(self) -> int:
        return self._stored(lambda: remote_checkpoints.newest(self._folder))

    def _publish(self) -> None:
        """Copies the model from the attempt's folder to its own."""
        if self._stored(lambda: finished.take(self._spec, new=True)) is None:
            raise WorkerError(
                f"a job of {self._scheduler.name} trained a model, but "
                f"{self._spec.checkpoint_dir} does not have it"
            )


def _insisted(
    use: Callable[[], _T], passing: type[Exception], problem: str, remedy: str = ""
) -> _T:
    """Result of `use`, which is retried for a while after errors of `passing`.

    Raises:
      UserError: The last error.
    """
    for left in reversed(range(_TRIES)):
        try:
            return use()
        except passing as error:
            if not left:
                raise UserError(f"{problem}: {error}", remedy=remedy) from None
            watchdog.log(f"{problem}: {error}")
            time.sleep(_PAUSE_SECONDS)
    raise AssertionError("unreachable")
