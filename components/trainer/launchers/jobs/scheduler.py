"""Interface of a batch system for trainings that run as its jobs."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from typing import Literal, Protocol

from strategos.components.trainer.launchers.jobs.attempt import Attempt
from strategos.components.trainer.launchers.jobs.output import Output


class UnreachableError(Exception):
    """The batch system does not answer; nothing is known about its jobs."""


Phase = Literal["waiting", "running", "ended"]


def phase(state: str, waiting: Collection[str], running: Collection[str]) -> Phase:
    """The phase of a job, from the batch system's own state.

    Args:
      state: The state.
      waiting: The states of a job that waits for machines.
      running: The states of a job that runs; in all others it has ended.
    """
    if state in waiting:
        return "waiting"
    return "running" if state in running else "ended"


@dataclasses.dataclass(frozen=True)
class Job:
    """A job as the batch system reports it.

    Attributes:
      id: Its id.
      folder: Folder of the attempt that it was submitted for.
      phase: Whether it waits for machines, runs or has ended.
      state: The batch system's own words for state and reason.
      hopeless: Whether it waits until somebody changes the job or the cluster, e.g. by
        Slurm's reason `InvalidQOS`.
      cancelled: Whether somebody cancelled it.
      partial: Whether some of its tasks run while it waits for machines for others.
      reclaimed: Whether it ended because its time was up or its machines were taken
        for another job: training goes on from its last checkpoint.
      hint: Remedy for the way it ended, or "".
    """

    id: str
    folder: str
    phase: Phase
    state: str
    hopeless: bool = False
    cancelled: bool = False
    reclaimed: bool = False
    hint: str = ""
    partial: bool = False


class Scheduler(Protocol):
    """A batch system.

    Attributes:
      name: Its name in messages.
      pending_timeout: Seconds that a job may wait for machines.
      remedy: Remedy for a job that does not start.
      launcher_timeout: Seconds without a launcher after which a job ends by itself;
        None where jobs never do.
    """

    name: str
    pending_timeout: float
    remedy: str
    launcher_timeout: float | None

    def submit(self, name: str, attempt: Attempt) -> Job:
        """Submits a job for the tasks of an attempt.

        Args:
          name: Name of the job, by which `jobs` finds it.
          attempt: The attempt.

        Raises:
          UserError: The batch system rejects the job.
          UnreachableError: It does not answer.
        """

    def jobs(self, name: str) -> list[Job]:
        """The jobs of this name that the batch system still knows, the newest last.

        Raises:
          UnreachableError: It does not answer.
        """

    def output(self, job: Job, attempt: Attempt) -> Output:
        """The logs and events of a job.

        Args:
          job: The job.
          attempt: The attempt that it was submitted for.
        """

    def adopt(self, job: Job) -> None:
        """Makes a job that another launcher left end with this one, if jobs do.

        Raises:
          UserError: The batch system rejects the request.
          UnreachableError: It does not answer.
        """

    def cancel(self, job: Job) -> None:
        """Makes a job end; its tasks receive SIGTERM first.

        Raises:
          UnreachableError: The batch system does not answer.
        """
