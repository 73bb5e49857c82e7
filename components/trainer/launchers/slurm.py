"""Trains as a job of Slurm, with one task for each worker.

The job is submitted by sbatch and found again by its name, so that a run joins the job
that a killed launcher left. Slurm requeues nothing (`--no-requeue`: a requeued job
would write to the same files); `jobs/training.py` submits a new job that resumes from
the last checkpoint.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from strategos.components.errors import UserError
from strategos.components.files.filesystems import is_remote
from strategos.components.trainer.launchers.jobs import training
from strategos.components.trainer.launchers.jobs.attempt import Attempt
from strategos.components.trainer.launchers.jobs.output import FileOutput, Output
from strategos.components.trainer.launchers.jobs.scheduler import (
    Job,
    UnreachableError,
    phase,
)
from strategos.components.trainer.launchers.launcher import Launcher
from strategos.components.trainer.operation import Operation
from strategos.components.trainer.spec import WorkerSpec

_KEY = "trainer.distribution.slurm"
_COMMANDS = ("sbatch", "squeue", "scancel", "scontrol", "srun")
_TASK = "strategos.components.trainer.launchers.jobs.slurm_task"
_SECONDS = 30.0  # for a command of Slurm, which itself tries for ten
# The files that `jobs/slurm_task.py` reads; since 22.05 srun no longer takes the CPUs
# for a task from sbatch.
_SCRIPT = """#!/bin/bash
scontrol show hostnames "$SLURM_JOB_NODELIST" > hosts.txt &&
  scontrol show node -o "$SLURM_JOB_NODELIST" > nodes.txt || exit 1
[ -z "$SLURM_CPUS_PER_TASK" ] || export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK
exec srun --kill-on-bad-exit=1 --output=%t.log {command}
"""
_WAITING = ("PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT")
_RUNNING = (
    "RUNNING",
    "COMPLETING",
    "SUSPENDED",
    "STOPPED",
    "RESIZING",
    "SIGNALING",
    "STAGE_OUT",
)
_RECLAIMED = ("TIMEOUT", "PREEMPTED")
# Reasons for which a job waits until somebody changes the job or the cluster.
_HOPELESS = (
    "AccountNotAllowed",
    "BadConstraints",
    "DependencyNeverSatisfied",
    "InvalidAccount",
    "InvalidQOS",
    "PartitionNodeLimit",
    "PartitionTimeLimit",
    "QOSNotAllowed",
)
# The commands print this when slurmctld or munged is down; the jobs go on.
_UNREACHABLE = (
    "Unable to contact slurm controller",
    "Connection refused",
    "Socket timed out",
    "Zero Bytes were transmitted",
    "Protocol authentication error",
    "Transport endpoint is not connected",
    "Resource temporarily unavailable",
    "slurm_load_jobs error: Unexpected message",
)


def launch(spec: WorkerSpec, operation: Operation) -> dict[str, Any]:
    """Submits a job to Slurm, or joins the job that an earlier launcher left.

    Args:
      spec: The training.
      operation: Time-outs and restarts; its `job` has the settings for the job.

    Returns:
      The facts of the training, as in `trainer.json`.

    Raises:
      UserError: Slurm is missing or rejects the job, the job cannot start, or the
        user's code, settings or data cannot be trained with.
      WorkerError: The job failed by an internal error.
    """
    check(spec.checkpoint_dir, operation.job)
    return training.launch(spec, operation, Slurm(operation.job))


def check(root: str, _: Mapping[str, Any]) -> None:
    """Rejects a machine or a root from which no job of Slurm can train.

    Args:
      root: Path or URL of the root, or a folder in it.

    Raises:
      UserError: Slurm's commands are missing, or `root` is remote.
    """
    missing = [name for name in _COMMANDS if shutil.which(name) is None]
    if missing:
        raise UserError(
            f"this machine has no {', '.join(missing)}",
            key="trainer.distribution.launcher",
            received="slurm",
            remedy="Run on a login node of the cluster, or install Slurm's client "
            "commands (Debian: slurm-client).",
        )
    if is_remote(root):
        raise UserError(
            f"the tasks of a job meet under run.root, which is "
            f"{root.partition('://')[0]}:// here",
            key="trainer.distribution.launcher",
            received="slurm",
            remedy="Use a folder on a file system that all nodes share.",
        )


LAUNCHER = Launcher(
    "slurm",
    "submits a job to Slurm",
    launch,
    check=check,
    fixed_size="a job of Slurm that loses a node ends, and the next one needs as many",
)


class Slurm:
    """Slurm, by its commands.

    Args:
      settings: `trainer.distribution.slurm`, with times in seconds.
    """

    name = "Slurm"
    remedy = f"Check {_KEY} against `sinfo` and the state of the nodes."
    launcher_timeout: float | None = None

    def __init__(self, settings: Mapping[str, Any]):
        self._settings = settings
        self.pending_timeout = settings["pending_timeout"]

    def submit(self, name: str, attempt: Attempt) -> Job:
        """Submits a job; see `Scheduler`."""
        command = (sys.executable, "-m", _TASK, str(attempt.folder))
        script = Path(str(attempt.folder), "job.sh")
        script.write_text(_SCRIPT.format(command=shlex.join(command)))
        try:
            text = _ran("sbatch", *self._arguments(name, attempt), str(script))
        except _RejectedError as error:
            raise UserError(
                f"Slurm rejects the job: {error}", key=_KEY, remedy=self.remedy
            ) from None
        number = text.strip().partition(";")[0]
        return Job(number, str(attempt.folder), "waiting", "submitted")

    def _arguments(self, name: str, attempt: Attempt) -> list[str]:
        folder, tasks = attempt.folder, attempt.tasks
        wanted = {
            "job-name": name,
            "dependency": "singleton",
            "chdir": folder,
            "output": attempt.log,
            "ntasks": len(tasks),
            "partition": self._settings["partition"],
            "account": self._settings["account"],
        }
        if not any(task.type == "ps" for task in tasks):
            wanted |= {"nodes": len(tasks), "ntasks-per-node": 1}
        if self._settings["time_limit"]:
            wanted["time"] = -(-int(self._settings["time_limit"]) // 60)  # minutes
        words = [f"--{key}={value}" for key, value in wanted.items() if value]
        options = ("--parsable", "--no-requeue", "--kill-on-invalid-dep=yes")
        return [*options, *words, *self._settings["options"]]

    def jobs(self, name: str) -> list[Job]:
        """The jobs of this user and name; see `Scheduler`."""
        text = _ran(
            "squeue",
            "--noheader",
            "--states=all",
            f"--user={os.getuid()}",
            f"--name={name}",
            "--sort=i",
            "--format=%i|%T|%r|%Z",
        )
        return [_job(*line.split("|", 3)) for line in text.splitlines() if line]

    def output(self, job: Job, attempt: Attempt) -> Output:
        """The logs and events of a job; see `Scheduler`."""
        return FileOutput(attempt, self.name)

    def adopt(self, job: Job) -> None:
        """Nothing: jobs outlive their launcher; see `Scheduler`."""

    def cancel(self, job: Job) -> None:
        """Cancels a job; see `Scheduler`."""
        try:
            _ran("scancel", job.id)
        except _RejectedError:
            return  # it has ended


def _job(number: str, state: str, reason: str, folder: str) -> Job:
    return Job(
        number,
        folder,
        phase(state, _WAITING, _RUNNING),
        state if reason == "None" else f"{state} ({reason})",
        hopeless=reason in _HOPELESS,
        cancelled=state == "CANCELLED",
        reclaimed=state in _RECLAIMED,
    )


class _RejectedError(Exception):
    """Slurm rejects a command's request; the message is Slurm's own."""


def _ran(*command: str) -> str:
    """The output of one of Slurm's commands.

    Raises:
      UnreachableError: slurmctld or munged does not answer.
      _RejectedError: Slurm rejects the request.
    """
    # Inside of a job, its own variables would count as options of the new one.
    own = ("SLURM_", "SBATCH_", "SRUN_")
    env = {k: v for k, v in os.environ.items() if not k.startswith(own)}
    if "SLURM_CONF" in os.environ:
        env["SLURM_CONF"] = os.environ["SLURM_CONF"]
    try:
        done = subprocess.run(
            command, env=env, capture_output=True, text=True, timeout=_SECONDS
        )
    except subprocess.TimeoutExpired:
        raise UnreachableError(f"{command[0]}: no answer in {_SECONDS:g} s") from None
    if done.returncode == 0:
        return done.stdout
    text = " ".join(done.stderr.split()) or f"exit code {done.returncode}"
    if any(reason in text for reason in _UNREACHABLE):
        raise UnreachableError(text)
    raise _RejectedError(text.replace(f"{Path(command[0]).name}: error: ", ""))
