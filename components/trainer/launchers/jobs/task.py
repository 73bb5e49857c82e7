"""Runs one task of the training in a process of a job; the chief's also leads the run.

The first process of the job is the chief. It runs the training as the launcher
`external` does, and starts a child process for the chief's task. The job ends with it.
With `min_workers`, the batch system starts a worker that was lost again, as the same
task, and the run takes it in.
"""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn, TypeVar

from strategos.components import events, worker_process
from strategos.components.errors import ExitCode, UserError, required
from strategos.components.files import filesystems
from strategos.components.trainer.distribution.environment import ClusterSpec
from strategos.components.trainer.hosts import worker
from strategos.components.trainer.hosts.rendezvous import HeartbeatMonitor
from strategos.components.trainer.launchers import external
from strategos.components.trainer.launchers.jobs.attempt import (
    Attempt,
    RemoteAttempt,
)
from strategos.components.user_code import archive
from strategos.components.worker_process import WorkerError

_CHILD = "strategos.components.trainer.launchers.jobs.task"
_ALONE = "127.0.0.1:2222"
_PAUSE_SECONDS = 0.1
_PUBLISH_SECONDS = 2.0  # an object store takes one change of an object a second
_FAREWELL_SECONDS = 10.0  # for the chief's task to end after the run

_Attempt = TypeVar("_Attempt", bound=Attempt)


def run(attempt: Attempt) -> NoReturn:
    """Does the task that TF_CONFIG names, and exits.

    The exit code is 1 only for a task that could not join: other tasks then end too. A
    task which is started again exits with 0 only if the run is over.

    Args:
      attempt: The attempt.
    """
    cluster = ClusterSpec.from_environment()
    again = starts_again(attempt.here, cluster)
    end = _ending(ExitCode.PREEMPTED if again else ExitCode.DONE)
    signal.signal(signal.SIGTERM, end)
    try:
        worker.check_port(cluster)
    except UserError as error:
        sys.exit(f"error: {error}")
    if cluster.is_chief:
        _conduct(attempt, cluster)
    elif not _take_part(attempt, cluster) and again:
        sys.exit(ExitCode.FAILED)
    sys.exit()


def starts_again(attempt: Attempt, cluster: ClusterSpec) -> bool:
    """Whether the batch system starts a task again that ends before the run does.

    Args:
      attempt: The attempt.
      cluster: All tasks, and the task of this process.
    """
    return attempt.is_elastic and not cluster.is_chief


def reject(attempt: Attempt, cluster: ClusterSpec, error: UserError) -> NoReturn:
    """Exits because this task cannot take part; ends the training unless others may.

    Args:
      attempt: The attempt.
      cluster: All tasks, and the task of this process.
      error: The reason.
    """
    if not starts_again(attempt, cluster):
        attempt.put_answer(error=error.to_json())
    sys.exit(f"error: {error}")


def cluster_or_alone(attempt: Attempt) -> ClusterSpec:
    """The cluster that the environment names, from now on by TF_CONFIG.

    Args:
      attempt: The attempt; one with a single task needs no cluster.
    """
    cluster = ClusterSpec.from_environment()
    if cluster.task is None:
        cluster = ClusterSpec.of(attempt.tasks, [_ALONE]).at(attempt.tasks[0])
    os.environ["TF_CONFIG"] = cluster.tf_config()
    return cluster


def with_modules(attempt: _Attempt, scratch: Path, target: str) -> _Attempt:
    """The attempt, with the user's modules downloaded if they are in an object store.

    Args:
      attempt: The attempt.
      scratch: Folder of this machine for the modules.
      target: `kubeflow` or `vertex`, the section of `modules`.

    Raises:
      UserError: The modules are missing, cannot be read, or have other content.
    """
    spec, _ = attempt.request()
    if not filesystems.is_remote(spec.folder):
        return attempt
    folder = archive.download(spec.folder, scratch, f"{target}.modules")
    return dataclasses.replace(attempt, modules=folder)


def _ending(code: int = ExitCode.DONE) -> Callable[..., NoReturn]:
    """A handler of SIGTERM that ends this process in order, once.

    Its task saves a checkpoint first.

    Args:
      code: The exit code.
    """

    def end(*_: object) -> NoReturn:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        sys.exit(code)

    return end


def _conduct(attempt: Attempt, cluster: ClusterSpec) -> None:
    """Runs the training, and writes how it ended."""
    spec, operation = attempt.here.request()
    events.open_sink(str(attempt.events), node=events.current_node())
    threading.Thread(target=end_if_unwanted, args=(attempt,), daemon=True).start()
    if isinstance(attempt, RemoteAttempt):
        threading.Thread(target=_keep_publishing, args=(attempt,), daemon=True).start()
    command = [sys.executable, "-m", _CHILD, str(attempt.here.folder)]
    chief = subprocess.Popen(command, stdin=subprocess.PIPE)  # closes with this process
    names = [task.name for task in cluster.tasks]  # the chief's is the first
    needed = names if operation.min_workers is None else names[:1]
    try:
        with external.Run(spec, operation, attempt.gang, needed=needed) as training:
            try:
                attempt.put_answer(facts=training.facts())
            except external.LostHostError as error:
                attempt.put_answer(lost=str(error))
                raise
            except Exception as error:
                attempt.put_answer(error=worker_process.described(error))
                raise
    except Exception as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
    finally:
        until = time.monotonic() + _FAREWELL_SECONDS
        while chief.poll() is None and time.monotonic() < until:
            time.sleep(_PAUSE_SECONDS)
        required(chief.stdin).close()


def _keep_publishing(attempt: RemoteAttempt) -> NoReturn:
    while True:
        attempt.publish()
        time.sleep(_PUBLISH_SECONDS)


def end_if_unwanted(attempt: Attempt) -> None:
    """Sends this process SIGTERM once no launcher waits for the attempt any longer.

    Args:
      attempt: The attempt; with a `launcher_timeout`, silence counts as well.
    """
    limit = attempt.launcher_timeout
    launcher = HeartbeatMonitor(limit=limit) if limit else None
    while not attempt.is_revoked:
        if launcher and launcher.is_lost(attempt.launcher_beat()):
            print(f"no launcher for {limit:g} s: ending", file=sys.stderr, flush=True)
            break
        time.sleep(attempt.look_seconds)
    os.kill(os.getpid(), signal.SIGTERM)


def _take_part(attempt: Attempt, cluster: ClusterSpec) -> bool:
    """Does the task until the run is over; returns False if it ended before."""
    _, operation = attempt.here.request()
    timeout = operation.start_timeout
    try:
        worker.join_job(attempt.gang, cluster, timeout, attempt.modules)
    except (UserError, WorkerError) as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        return False
    return True


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _ending())
    worker_process.end_with_input()
    _take_part(Attempt(Path(sys.argv[1])), ClusterSpec.from_environment())
