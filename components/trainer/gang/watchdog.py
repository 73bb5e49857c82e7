"""Watches one attempt of a gang: decides when it is over, and how it ended."""

from __future__ import annotations

import dataclasses
import selectors
import signal
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NoReturn

from strategos.components import events, processes
from strategos.components.errors import ExitCode
from strategos.components.trainer.distribution.environment import ClusterSpec, Task
from strategos.components.trainer.gang.task_process import Failure, TaskProcess
from strategos.components.trainer.operation import Operation

Outside = Callable[[bool], bool]

PREEMPTION = Failure("the gang", "received SIGTERM and has saved", preempted=True)
_UNSAVED = dataclasses.replace(PREEMPTION, what="received SIGTERM and has not saved")
_TICK = 0.2  # seconds between two checks of the time-outs
_ABOUT_AS_LONG = 0.8  # of a time-out, in which a task is named as silent too
_DUMP_SECONDS = 1.0  # for stack dumps to arrive
_WAITING_SECONDS = 10.0  # between log lines about missing tasks


@dataclasses.dataclass(frozen=True)
class Limits:
    """Time-outs in seconds, and the number of restarts.

    Attributes:
      start_timeout: Time from the start to the first step of each task.
      stall_timeout: Time without a report, after the first step.
      max_restarts: Number of restarts in a row without progress.
      min_workers: Workers with which the gang goes on after it has lost others; None
        for all.
      save: Time from SIGTERM to the end, for saving a checkpoint.
      farewell: Time for the other tasks to end after the chief is done.
      echo: Time for the original failure to be reported, when a failure looks like its
        consequence.
    """

    start_timeout: float = Operation.start_timeout
    stall_timeout: float = Operation.stall_timeout
    max_restarts: int = Operation.max_restarts
    min_workers: int | None = None
    save: float = processes.Grace.SAVE
    farewell: float = 5.0
    echo: float = 1.0

    @classmethod
    def of(cls, operation: Operation) -> Limits:
        """The limits of an operation; `save`, `farewell` and `echo` keep defaults."""
        return cls(
            operation.start_timeout,
            operation.stall_timeout,
            operation.max_restarts,
            operation.min_workers,
        )


class AttemptFailedError(Exception):
    """An attempt failed; all its tasks have ended.

    Attributes:
      failure: The first failure of a task.
      stepped: Whether any training task had finished a step.
      step: Steps of the training that are known to be done, over all attempts.
    """

    def __init__(self, failure: Failure, *, stepped: bool, step: int = 0):
        super().__init__(f"{failure.task} {failure.what}")
        self.failure = failure
        self.stepped = stepped
        self.step = step

    @property
    def counts(self) -> bool:
        """Whether this failure counts as a restart."""
        return not (self.failure.preempted and self.stepped)


class NewAttemptError(Exception):
    """Raised by `outside`: the gang starts again, not for a failure of a task here.

    Args:
      reason: The reason, as a clause.
      silent: Whether a task was hanging, so that the stacks of all tasks matter.
    """

    def __init__(self, reason: str, *, silent: bool = False):
        super().__init__(reason)
        self.silent = silent


class Watch:
    """Watches one attempt.

    Args:
      tasks: The processes on this machine, by task.
      cluster: All tasks.
      limits: Time-outs.
      outside: See `Gang`.
      signals: The signals of this process.
    """

    def __init__(
        self,
        tasks: Mapping[Task, TaskProcess],
        cluster: ClusterSpec,
        limits: Limits,
        outside: Outside,
        signals: processes.Signals,
    ):
        self._tasks = list(tasks.values())
        self._training = [
            process for task, process in tasks.items() if not serves(cluster, task)
        ]
        self._chief = tasks.get(cluster.chief) if cluster.chief else self._tasks[0]
        self._limits = limits
        self._outside = outside
        self._signals = signals
        self._since: dict[str, float] = {}
        self._started = self._logged = time.monotonic()

    def until_done(self) -> dict[str, Any]:
        """Watches the tasks until all are done; see `Gang.attempt`.

        Returns:
          The chief's answer; empty if the chief runs on another host.

        Raises:
          AttemptFailedError: A task failed, hung or did not start.
          SystemExit: This process received SIGTERM.
        """
        while True:
            self._wait_for_events()
            if self._signals.stop_requested:
                self._end_on_request()
            done = all(task.answer is not None for task in self._training)
            over = self._ask_outside(done)
            answer = self._chief.answer if self._chief else None
            if answer is not None:
                if over or self._lasts("farewell", self._limits.farewell):
                    return answer
                continue  # failures of other tasks no longer matter
            if over and not self._chief:
                return {}
            self._check_failures()
            self._check_silence()

    def _ask_outside(self, done: bool) -> bool:
        try:
            return self._outside(done)
        except NewAttemptError as wanted:
            if wanted.silent:
                self._dump_stacks()
            raise

    def _wait_for_events(self) -> None:
        """Waits for a report, output, a signal or the next tick."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._signals, selectors.EVENT_READ, self._signals.clear)
            for task in self._tasks:
                for lines, take in task.sources():
                    selector.register(lines, selectors.EVENT_READ, take)
            for key, _ in selector.select(_TICK):
                key.data()
        for task in self._tasks:
            task.reap()

    def _lasts(self, what: str, seconds: float) -> bool:
        """Whether a condition, true now, has been true for longer than `seconds`."""
        now = time.monotonic()
        return now - self._since.setdefault(what, now) > seconds

    def _check_failures(self) -> None:
        failed = [task.failure for task in self._tasks if task.failure]
        failures = sorted(failed, key=lambda failure: failure.at)
        for failure in failures:
            if not failure.echo:
                self._fail(failure)
        if any(task.preempted for task in self._tasks):
            self._forward_preemption()
            left = all(task.ended for task in self._training)
            if left or self._save_takes_too_long("preemption"):
                saved = all(map(_has_saved, self._training))
                self._fail(PREEMPTION if saved else _UNSAVED)
        elif failures and self._lasts("echo", self._limits.echo):
            self._fail(failures[0])

    def _save_takes_too_long(self, what: str) -> bool:
        late = self._lasts(what, self._limits.save)
        if late:
            log(f"no checkpoint within {self._limits.save:g} s: the tasks are killed")
        return late

    def _fail(self, failure: Failure) -> NoReturn:
        # Tasks that only serve report no steps: their chief is on another host.
        stepped = any(task.stepped for task in self._training)
        step = max((task.step for task in self._training), default=0)
        raise AttemptFailedError(
            failure, stepped=stepped or not self._training, step=step
        )

    def _forward_preemption(self) -> None:
        """Forwards SIGTERM from a task that only serves to the chief, which saves."""
        served = any(task.preempted for task in self._training)
        if served or "preemption" in self._since:
            return
        for task in self._training:
            if _saves(task):
                task.send(signal.SIGTERM)

    def _check_silence(self) -> None:
        now = time.monotonic()
        missing = [task for task in self._tasks if not task.joined]
        late = [m for m in missing if now - m.last_report > self._limits.start_timeout]
        if late:
            self._dump_stacks()
            self._fail(self._silent_failure(late, "did not join"))
        if missing and now - self._logged > _WAITING_SECONDS:
            self._logged = now
            text = f"waiting for {_names(missing)}, {now - self._started:.0f} s"
            events.emit("progress", message=text)
        if self._silent(now, 1.0):
            # Tasks wait for one another: the one that hangs may be seen last.
            silent = self._silent(now, _ABOUT_AS_LONG)
            self._dump_stacks()
            self._fail(self._silent_failure(silent, "did no step"))

    def _silent(self, now: float, share: float) -> list[TaskProcess]:
        """Training tasks without a report for that share of their time-out."""
        return [
            task
            for task in self._training
            if now - task.last_report > share * self._timeout_of(task)
        ]

    def _silent_failure(self, tasks: Sequence[TaskProcess], what: str) -> Failure:
        setting = "stall_timeout" if tasks[0].stepped else "start_timeout"
        return Failure(
            _names(tasks),
            f"{what} for {getattr(self._limits, setting):g} s",
            hint="The log has the stacks of all tasks. If that much time is needed, "
            f"raise trainer.distribution.{setting}.",
            silent=True,
        )

    def _timeout_of(self, task: TaskProcess) -> float:
        if task.answer is not None:
            return float("inf")
        limits = self._limits
        return limits.stall_timeout if task.stepped else limits.start_timeout

    def _dump_stacks(self) -> None:
        log("the stacks of all tasks:")
        for task in self._tasks:
            task.send(signal.SIGUSR1)
        while not self._lasts("dump", _DUMP_SECONDS):
            self._wait_for_events()

    def _end_on_request(self) -> NoReturn:
        """Lets the tasks save within the limit, then ends by SystemExit."""
        log("SIGTERM received: the tasks save a checkpoint and end")
        for task in self._training:
            task.send(signal.SIGTERM)
        while any(_saves(task) for task in self._training):
            if self._save_takes_too_long("saving"):
                break
            self._wait_for_events()
        raise SystemExit(ExitCode.PREEMPTED)


def log(text: str) -> None:
    """Writes a line of this process to the log (stderr)."""
    print(text, file=sys.stderr, flush=True)


def serves(cluster: ClusterSpec, task: Task) -> bool:
    """Whether a task only serves a coordinator, and so never ends by itself.

    Args:
      cluster: All tasks.
      task: One of them.
    """
    return "ps" in cluster.addresses and task.type != "chief"


def _saves(task: TaskProcess) -> bool:
    return task.stepped and not task.ended and task.answer is None


def _has_saved(task: TaskProcess) -> bool:
    return task.ended and task.preempted and not task.failure


def _names(tasks: Iterable[TaskProcess]) -> str:
    return ", ".join(task.name for task in tasks)
