"""A gang: the tasks of a cluster that run on this machine, started, watched and ended.

The tasks are forks of this process, which has imported TensorFlow and run nothing of
it; so a restart costs no import. Whatever goes wrong in one task ends all, at once, by
SIGKILL: without that one they would wait for ever. Then all start anew and go on from
the last checkpoint. This process waits for pipes and signals alone; a task that hangs
shows by its silence.
"""

from __future__ import annotations

import dataclasses
import os
import selectors
import signal
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NoReturn

from strategos.components import events, processes
from strategos.components.errors import UserError
from strategos.components.trainer.cluster import ClusterSpec, Task
from strategos.components.trainer.member import Failure, Member
from strategos.components.trainer.operation import Operation
from strategos.components.trainer.reports import Reporter
from strategos.components.worker_process import PREEMPTED, WorkerError

Work = Callable[[ClusterSpec, Reporter, int], "dict[str, Any] | None"]
Outside = Callable[[bool], bool]

_TICK = 0.2  # seconds between looks at the clock
_DUMP_SECONDS = 1.0  # for stack dumps to arrive
_WAITING_SECONDS = 10.0  # between lines about who is missing
_DEATH_SECONDS = 10.0  # that the kernel may take to end a process
PREEMPTION = Failure("the gang", "was asked to end (SIGTERM), and has saved")


@dataclasses.dataclass(frozen=True)
class Limits:
    """What a gang may take; seconds.

    Attributes:
      start_timeout: From the start to the first step of each task.
      stall_timeout: Without a report, later.
      max_restarts: How often a failed gang is started again.
      save: From SIGTERM to the end, in which a checkpoint is saved.
      farewell: For the others, after the chief is done.
      echo: In which a failure that looks like another's consequence waits for that.
    """

    start_timeout: float = 300.0
    stall_timeout: float = 300.0
    max_restarts: int = 3
    save: float = 20.0
    farewell: float = 5.0
    echo: float = 1.0

    @classmethod
    def of(cls, operation: Operation) -> Limits:
        """The limits that the settings name."""
        return cls(
            operation.start_timeout, operation.stall_timeout, operation.max_restarts
        )


class AttemptFailedError(Exception):
    """The gang failed and is gone.

    Attributes:
      failure: The first task that failed, and how.
      stepped: Whether there had been a step of training.
    """

    def __init__(self, failure: Failure, *, stepped: bool):
        super().__init__(f"{failure.member} {failure.what}")
        self.failure = failure
        self.stepped = stepped

    @property
    def counts(self) -> bool:
        """Whether this uses up a restart."""
        return not (self.failure is PREEMPTION and self.stepped)


def run(
    tasks: Sequence[Task],
    cluster_of: Callable[[int], ClusterSpec],
    work: Work,
    limits: Limits,
) -> dict[str, Any]:
    """Runs the tasks of a cluster to their end, restarting them where that helps.

    Args:
      tasks: All tasks of the cluster; of one on its own, which has no addresses, one.
      cluster_of: Gives the cluster of the n-th attempt, from 0.
      work: What a task does, called as `work(cluster, reporter, attempt)` in its fork:
        `cluster.task` is itself, and TF_CONFIG is set where there are others.
      limits: Time and restarts.

    Returns:
      The chief's answer and "restarts".

    Raises:
      UserError: A task says so, or the gang kept being killed, hanging or not starting.
      WorkerError: The gang kept failing otherwise.
      SystemExit: This process was asked to end; the tasks have.
    """
    attempts = failures = 0
    with Gang(tasks, work, limits) as gang:
        while True:
            try:
                answer = gang.attempt(cluster_of(attempts), attempts)
                return {**answer, "restarts": attempts}
            except AttemptFailedError as failed:
                failures += failed.counts
                if failed.failure.permanent and failed.failure.error:
                    raise failed.failure.error from None
                if failures > limits.max_restarts:
                    raise exhausted(failed.failure, limits.max_restarts) from None
                number = f"{failures} of {limits.max_restarts}"
                announce(failed, number if failed.counts else "not counted")
            attempts += 1


def announce(failed: AttemptFailedError, number: str) -> None:
    """Says in the log and in the live view that the gang is started again."""
    failure = failed.failure
    text = f"{failed}: restarting the gang ({number})"
    say(text if failure.echo or not failure.error else f"{text}: {failure.error}")
    events.emit("warning", message=text)


def exhausted(failure: Failure, restarts: int) -> Exception:
    """The error to end with when the gang failed once more than it may."""
    tried = (
        f"The gang was restarted {restarts} times (trainer.distribution.max_restarts)."
        if restarts
        else "trainer.distribution.max_restarts allows no restart."
    )
    if failure.error is not None:
        kind = UserError if isinstance(failure.error, UserError) else WorkerError
        return kind(f"{failure.error} {tried}")
    name = failure.member[0].upper() + failure.member[1:]
    kind = UserError if failure.hint else WorkerError
    return kind(f"{name} {failure.what}. {tried} {failure.hint}".strip())


def say(text: str) -> None:
    """A line of this process's own in the log."""
    print(text, file=sys.stderr, flush=True)


class Gang:
    """Runs attempts of tasks; handles this process's signals while it is entered.

    Args:
      tasks: The tasks that run here.
      work: What a task does, see `run`.
      limits: Time and restarts.
      outside: Where the cluster has tasks elsewhere: called several times a second with
        whether the tasks here are done, it returns whether those elsewhere need them
        no longer. What it raises ends the attempt.
    """

    def __init__(
        self,
        tasks: Sequence[Task],
        work: Work,
        limits: Limits,
        outside: Outside | None = None,
    ):
        self._tasks = tasks
        self._work = work
        self._limits = limits
        self._outside = outside
        self._signals = processes.Signals()

    def __enter__(self) -> Gang:
        """Takes over SIGTERM, SIGINT and SIGCHLD. In the main thread."""
        self._signals.take()
        processes.adopt_orphans()
        self._others = processes.children()
        return self

    def __exit__(self, *_: object) -> None:
        """Gives the signals back."""
        self._signals.give_back()

    def check(self) -> None:
        """Between attempts: ends this process if it was asked to end.

        Raises:
          SystemExit: It was.
        """
        if self._signals.asked_to_end:
            raise SystemExit(PREEMPTED)

    def attempt(self, cluster: ClusterSpec, number: int) -> dict[str, Any]:
        """Starts the tasks and watches them until all are done; none is left then.

        Returns:
          The chief's answer, or nothing where that is elsewhere.

        Raises:
          AttemptFailedError: A task failed, hung or did not start.
          SystemExit: This process was asked to end, and so the tasks were.
        """
        members: dict[Task, Member] = {}
        try:
            for task in self._tasks:
                members[task] = self._start(task, cluster, number)
            outside = self._outside or (lambda done: done)
            watch = _Watch(members, cluster, self._limits, outside, self._signals)
            return watch.until_done()
        finally:
            _end(members.values())
            processes.end(processes.children() - self._others)

    def _start(self, task: Task, cluster: ClusterSpec, number: int) -> Member:
        mine = cluster.at(task) if cluster.addresses else cluster

        def work(reporter: Reporter) -> dict[str, Any] | None:
            self._signals.forget()
            if len(mine.tasks) > 1:
                os.environ["TF_CONFIG"] = mine.tf_config()
            if self._outside is None:
                return self._work(mine.share_gpus(), reporter, number)
            return self._work(mine, reporter, number)

        alone = len(self._tasks) == 1
        name = "the trainer" if alone and self._outside is None else task.name
        return Member(name, work, prefixed=not alone)


class _Watch:
    """Watches one attempt.

    Args:
      members: The tasks of this machine.
      cluster: All tasks.
      limits: Time that they have.
      outside: See `Gang`.
      signals: Of this process.
    """

    def __init__(
        self,
        members: Mapping[Task, Member],
        cluster: ClusterSpec,
        limits: Limits,
        outside: Outside,
        signals: processes.Signals,
    ):
        self._members = list(members.values())
        self._training = [
            member for task, member in members.items() if not serves(cluster, task)
        ]
        self._chief = members.get(cluster.chief) if cluster.chief else self._members[0]
        self._limits = limits
        self._outside = outside
        self._signals = signals
        self._since: dict[str, float] = {}
        self._started = self._told = time.monotonic()

    def until_done(self) -> dict[str, Any]:
        """See `Gang.attempt`."""
        while True:
            self._turn()
            if self._signals.asked_to_end:
                self._leave()
            done = all(member.answer is not None for member in self._training)
            over = self._outside(done)
            answer = self._chief.answer if self._chief else None
            if answer is not None:
                if over or self._lasts("farewell", self._limits.farewell):
                    return answer
                continue  # whatever happens to the others now does not matter
            if over and not self._chief:
                return {}
            self._check_failures()
            self._check_silence()

    def _turn(self) -> None:
        """Waits for what comes first: a report, output, a signal, the next tick."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._signals, selectors.EVENT_READ, self._signals.clear)
            for member in self._members:
                for lines, take in member.sources():
                    selector.register(lines, selectors.EVENT_READ, take)
            for key, _ in selector.select(_TICK):
                key.data()
        for member in self._members:
            member.reap()

    def _lasts(self, what: str, seconds: float) -> bool:
        """Whether `what`, which is so now, has been for longer than `seconds`."""
        now = time.monotonic()
        return now - self._since.setdefault(what, now) > seconds

    def _check_failures(self) -> None:
        failures = [member.failure for member in self._members if member.failure]
        for failure in failures:
            if not failure.echo:
                self._fail(failure)
        if any(member.preempted for member in self._members):
            self._let_save()
            left = all(member.ended for member in self._training)
            if left or self._lasts("preemption", self._limits.save):
                self._fail(PREEMPTION)
        elif failures and self._lasts("echo", self._limits.echo):
            self._fail(failures[0])

    def _fail(self, failure: Failure) -> NoReturn:
        # Of tasks that only serve, nobody here can tell: the chief is elsewhere.
        stepped = any(member.stepped for member in self._training)
        raise AttemptFailedError(failure, stepped=stepped or not self._training)

    def _let_save(self) -> None:
        """Passes the wish of a task that serves on to the chief, which can save."""
        served = any(member.preempted for member in self._training)
        if served or "preemption" in self._since:
            return
        for member in self._training:
            if _saves(member):
                member.send(signal.SIGTERM)

    def _check_silence(self) -> None:
        now = time.monotonic()
        missing = [member for member in self._members if not member.joined]
        late = [m for m in missing if now - m.heard > self._limits.start_timeout]
        if late:
            self._dump_stacks()
            self._fail(self._silence(late, "did not join"))
        if missing and now - self._told > _WAITING_SECONDS:
            self._told = now
            text = f"waiting for {_names(missing)}, {now - self._started:.0f} s"
            events.emit("progress", message=text)
        silent = [m for m in self._training if now - m.heard > self._patience(m)]
        if silent:
            self._dump_stacks()
            self._fail(self._silence(silent, "did no step"))

    def _silence(self, members: Sequence[Member], what: str) -> Failure:
        setting = "stall_timeout" if members[0].stepped else "start_timeout"
        return Failure(
            _names(members),
            f"{what} for {getattr(self._limits, setting):g} s",
            hint="The log has the stacks of all tasks. If that much time is needed, "
            f"raise trainer.distribution.{setting}.",
        )

    def _patience(self, member: Member) -> float:
        if member.answer is not None:
            return float("inf")
        limits = self._limits
        return limits.stall_timeout if member.stepped else limits.start_timeout

    def _dump_stacks(self) -> None:
        say("the stacks of all tasks:")
        for member in self._members:
            member.send(signal.SIGUSR1)
        while not self._lasts("dump", _DUMP_SECONDS):
            self._turn()

    def _leave(self) -> NoReturn:
        """Lets the tasks save, then ends this process by SystemExit."""
        say("asked to end: so are the tasks, once they have saved a checkpoint")
        for member in self._training:
            member.send(signal.SIGTERM)
        while any(_saves(member) for member in self._training):
            if self._lasts("saving", self._limits.save):
                break
            self._turn()
        raise SystemExit(PREEMPTED)


def serves(cluster: ClusterSpec, task: Task) -> bool:
    """Whether a task only serves a coordinator, and so never ends by itself."""
    return "ps" in cluster.addresses and task.type != "chief"


def _saves(member: Member) -> bool:
    return member.stepped and not member.ended and member.answer is None


def _end(members: Iterable[Member]) -> None:
    for member in members:
        member.send(signal.SIGKILL)
    until = time.monotonic() + _DEATH_SECONDS
    while not all(member.ended for member in members) and time.monotonic() < until:
        for member in members:
            member.reap()
        time.sleep(0.005)


def _names(members: Iterable[Member]) -> str:
    return ", ".join(member.name for member in members)
