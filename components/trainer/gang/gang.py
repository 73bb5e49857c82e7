"""A gang: the tasks of a cluster that run on this machine, started, watched and ended.

The tasks are forks of this process, which has imported TensorFlow but executed nothing
with it, so a restart costs no import. When one task fails, all are ended at once by
SIGKILL, since the others would wait for the failed one for ever; then all start again
from the last checkpoint. This process waits only for pipes and signals; a hanging task
shows by missing reports.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable, Sequence
from typing import Any

from strategos.components import events, processes
from strategos.components.errors import ExitCode, required
from strategos.components.trainer.distribution.environment import ClusterSpec, Task
from strategos.components.trainer.gang import loopback
from strategos.components.trainer.gang.heartbeat import Reporter
from strategos.components.trainer.gang.members import (
    CheckpointCount,
    Members,
    recorded,
    returning,
)
from strategos.components.trainer.gang.restarts import Restarts
from strategos.components.trainer.gang.task_process import TaskProcess, kill
from strategos.components.trainer.gang.watchdog import (
    AttemptFailedError,
    Limits,
    NewAttemptError,
    Outside,
    Watch,
    log,
)

Work = Callable[[ClusterSpec, Reporter, int], "dict[str, Any] | None"]

_DEATH_SECONDS = 10.0  # for the kernel to end a killed process


def run(
    tasks: Sequence[Task],
    cluster_of: Callable[[int], ClusterSpec],
    work: Work,
    limits: Limits,
    name: str = "the trainer",
    beside: Callable[[], None] = lambda: None,
    newest: Callable[[], int] = lambda: 0,
) -> dict[str, Any]:
    """Runs the tasks of a cluster to their end, restarting them where that helps.

    Args:
      tasks: All tasks of the cluster; a cluster without addresses has one.
      cluster_of: Returns the cluster of the n-th attempt, from 0.
      work: Called in each task's fork as `work(cluster, reporter, attempt)`.
        `cluster.task` is the task, and TF_CONFIG is set if the cluster has other tasks.
      limits: Time-outs and restarts.
      name: Name of the task in messages if it is the only one.
      beside: Called several times a second; its exceptions end the gang.
      newest: Returns the step of the newest complete checkpoint, 0 without one. For a
        gang that may lose workers: it takes them in at a checkpoint.

    Returns:
      The chief's answer and "restarts"; its "reason" names all sizes of the gang.

    Raises:
      UserError: A task raised it, or the gang kept hanging, dying or not starting.
      WorkerError: The gang kept failing otherwise.
      SystemExit: This process received SIGTERM; the tasks have ended.
    """
    names = tuple(task.name for task in tasks)
    members = Members(names, limits.min_workers or len(names))
    restarts = Restarts(limits.max_restarts, members)
    checkpoints = CheckpointCount(newest)
    sizes: list[int] = []

    def look(done: bool) -> None:
        beside()
        smaller = bool(members.lost) and not done
        if smaller and checkpoints.new() >= members.patience:
            raise returning()

    with Gang(tasks, work, limits, name=name, beside=look) as gang:
        while True:
            members = required(restarts.members)
            cluster = cluster_of(len(sizes)).without(members.lost)
            sizes.append(members.size)
            if members.lost:
                checkpoints.begin()
            try:
                answer = gang.attempt(cluster, len(sizes) - 1)
                return {**recorded(answer, sizes), "restarts": len(sizes) - 1}
            except AttemptFailedError as failed:
                restarts.after(failed)
            except NewAttemptError:
                restarts.take_in(members.lost_names, checkpoints.step)


class Gang:
    """Runs attempts of tasks; handles this process's signals inside its context.

    Args:
      tasks: The tasks that run on this machine.
      work: Called in each task's fork, see `run`.
      limits: Time-outs and restarts.
      outside: For clusters with tasks on other hosts: called several times a second as
        `outside(done)`; `done` is True once the tasks on this host are done. Returns
        whether the other hosts no longer need them. An exception ends the attempt.
      name: Name of the task in messages if the cluster has no other.
      beside: Called several times a second as `beside(done)`, see `outside`.
    """

    def __init__(
        self,
        tasks: Sequence[Task],
        work: Work,
        limits: Limits,
        outside: Outside | None = None,
        name: str = "the trainer",
        beside: Callable[[bool], None] = lambda _: None,
    ):
        self._tasks = tasks
        self._work = work
        self._limits = limits
        self._outside = outside
        self._name = name
        self._beside = beside
        self._signals = processes.Signals()
        self._warned = False

    def __enter__(self) -> Gang:
        """Handles SIGTERM, SIGINT and SIGCHLD from now on. In the main thread."""
        self._signals.install()
        processes.adopt_orphans()
        self._others = processes.children()
        return self

    def __exit__(self, *_: object) -> None:
        """Restores the former signal handlers, and stops adopting orphans."""
        processes.adopt_orphans(False)
        self._signals.restore()

    def check(self) -> None:
        """Ends this process if it received SIGTERM; for use between attempts.

        Raises:
          SystemExit: SIGTERM was received.
        """
        if self._signals.stop_requested:
            raise SystemExit(ExitCode.PREEMPTED)

    def attempt(self, cluster: ClusterSpec, number: int) -> dict[str, Any]:
        """Starts the tasks and watches them until all are done; ends all of them.

        Args:
          cluster: All tasks of the cluster, with their addresses.
          number: Number of the attempt, from 0.

        Returns:
          The chief's answer; empty if the chief runs on another host.

        Raises:
          AttemptFailedError: A task failed, hung or did not start.
          SystemExit: This process received SIGTERM; the tasks have ended.
        """
        running: dict[Task, TaskProcess] = {}
        try:
            for task in self._tasks_of(cluster):
                running[task] = self._start(task, cluster, number)
            watch = Watch(running, cluster, self._limits, self._ask, self._signals)
            answer = watch.until_done()
        finally:
            until = time.monotonic() + _DEATH_SECONDS
            kill(running.values(), until)
            processes.end_children(self._others, until)
        self.check()  # SIGTERM may have come meanwhile
        return answer

    def _tasks_of(self, cluster: ClusterSpec) -> Sequence[Task]:
        """The tasks on this machine; of a smaller gang they have other names."""
        if not cluster.lost:
            return self._tasks
        return [cluster.task] if cluster.task else cluster.tasks

    def _ask(self, done: bool) -> bool:
        self._beside(done)
        return self._outside(done) if self._outside else done

    def _start(self, task: Task, cluster: ClusterSpec, number: int) -> TaskProcess:
        mine = cluster.at(task) if cluster.addresses else cluster
        alone = len(mine.tasks) <= 1
        closed = not alone and loopback.is_local(mine)

        def work(reporter: Reporter) -> dict[str, Any] | None:
            self._signals.reset_in_fork()
            if not alone:
                os.environ["TF_CONFIG"] = mine.tf_config()
            if closed:  # NCCL would choose the address of another interface
                os.environ.setdefault("NCCL_SOCKET_IFNAME", "lo")
            if self._outside is None:
                return self._work(mine.share_gpus(), reporter, number)
            return self._work(mine, reporter, number)

        several = len(self._tasks) > 1
        named = several or self._outside
        name = (mine.former or task).name if named else self._name
        exposed = functools.partial(self._warn_once, mine) if closed else None
        return TaskProcess(name, work, prefixed=several, alone=alone, exposed=exposed)

    def _warn_once(self, cluster: ClusterSpec, reason: str) -> None:
        if self._warned:
            return
        self._warned = True
        text = loopback.exposure(cluster, reason)
        log(f"warning: {text}")
        events.emit("warning", message=text)
