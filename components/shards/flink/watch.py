"""Waits for a job on Flink: reports progress and restarts, enforces limits, cancels.

Beam's client waits for the job server alone, and for ever: also for a job that hangs,
for a cluster that is gone, and for a job server that lost a job's end.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import re
import threading
import time
from collections.abc import Callable
from concurrent import futures
from typing import Any

from strategos.components import events
from strategos.components.errors import UserError, first_line
from strategos.components.shards.flink.connection import Connection
from strategos.components.shards.flink.master import ENDED, Master, MasterError
from strategos.components.wording import duration

_LOOK_SECONDS = (0.1, 1.0)  # the longer a job has run, the more seldom
_LOOK_SHARE = 0.02
_DETAILS_SECONDS = 1.0
_SILENT_SECONDS = (
    20.0  # of a master that does not answer; Flink's own clients: a minute
)
_REPORT_SECONDS = 15.0  # from the end of a job to the job server's report of it
_CANCEL_SECONDS = 10.0
# Beam's runner reports this if a worker's code raised an exception: Flink would run the
# same code on the same rows again, five times. The report of a lost worker differs.
_OF_PYTHON = re.compile(
    r"Error received from SDK harness for instruction \d+: .*", re.S
)
_NO_COMMAND = re.compile(r'Cannot run program "(.*?)".* error=(?:2|13), (.*)')
_MOVED = ("read-records", "write-records", "read-bytes", "write-bytes")


@dataclasses.dataclass(frozen=True)
class JobLimits:
    """Time limits of a job.

    Attributes:
      timeout: Seconds for one job; None for no limit.
      stall_timeout: Seconds without progress: no task starts or ends, and nothing moves
        between tasks.
    """

    timeout: float | None
    stall_timeout: float


class _FinishedError(Exception):
    """The job has finished in Flink.

    The job server reports that later, by up to 2 s: it asks the more seldom, too.
    """


def wait(
    finish: Callable[[], Any], connection: Connection, name: str, limits: JobLimits
) -> None:
    """Waits until `finish` returns; cancels the job if this is left in another way.

    Args:
      finish: Waits for the job, and raises an exception if it fails; called in a thread
        that is left behind if the job ends unnoticed.
      connection: Connection to the cluster. A job of another runner is not watched.
      name: The job's name, which no other job has.
      limits: Time limits of the job.

    Raises:
      UserError: A limit is exceeded, or the cluster or the job server is gone.
      RuntimeError: Code in a worker failed; the message has its traceback.
    """
    outcome: futures.Future[None] = futures.Future()
    threading.Thread(target=_call, args=(finish, outcome), daemon=True).start()
    master = connection.master
    ends: list[futures.Future[Any]] = [connection.lost, outcome]
    job = _Job(Master(master), name, limits) if master else None
    begun = time.monotonic()
    try:
        while not futures.wait(ends, _pause(begun), futures.FIRST_COMPLETED).done:
            if job:
                job.look()
        if connection.lost.done():
            raise connection.lost.result()
        outcome.result()
    except _FinishedError:
        return
    except BaseException:
        if job and not connection.lost.done():
            job.cancel()
        raise


def _pause(begun: float) -> float:
    least, most = _LOOK_SECONDS
    return min(max(_LOOK_SHARE * (time.monotonic() - begun), least), most)


def _call(finish: Callable[[], Any], outcome: futures.Future[None]) -> None:
    try:
        finish()
        outcome.set_result(None)
    except BaseException as error:
        outcome.set_exception(error)


class _Job:
    """State of a job as read from the master: progress, restarts, end."""

    def __init__(self, master: Master, name: str, limits: JobLimits):
        self._master, self._name, self._limits = master, name, limits
        self._id: str | None = None
        self._seen: set[int] = set()  # time stamps of exceptions
        self._begun = self._answered = self._moved = time.monotonic()
        self._ended: float | None = None
        self._measured = -math.inf
        self._state: tuple[Any, ...] = ()

    def look(self) -> None:
        """Reports progress and restarts.

        Raises:
          UserError: A limit is exceeded, or the cluster is gone.
          RuntimeError: Code in a worker failed.
          _FinishedError: The job has finished.
        """
        now = time.monotonic()
        try:
            self._ask(now)
            self._answered = now
        except MasterError as error:
            if now - self._answered > _SILENT_SECONDS:
                raise UserError(
                    f"Flink's JobManager at {self._master.address} does not answer "
                    f"any more: {error}",
                    remedy="It was killed, or its machine has no memory left: see its "
                    "log. Run again: what was finished is cached.",
                ) from None
            return
        self._enforce_limits(now)

    def cancel(self) -> None:
        """Cancels the job, and waits for its end."""
        until = time.monotonic() + _CANCEL_SECONDS
        while time.monotonic() < until:
            with contextlib.suppress(MasterError):  # a busy master: ask again
                self._id = self._id or self._master.job_named(self._name)
                if self._id is None or self._master.cancel(self._id):
                    return
            time.sleep(_LOOK_SECONDS[0])

    def _ask(self, now: float) -> None:
        self._id = self._id or self._master.job_named(self._name)
        if self._id is None:
            return
        # Of the job's details, a master remembers an answer for three seconds.
        state = self._master.get(f"/jobs/{self._id}/status")["status"]
        if state in ENDED:
            self._handle_exceptions()
            self._ended = self._ended or now
            self._notice_end(state, now - self._ended)
        elif now - self._measured >= _DETAILS_SECONDS:
            self._handle_exceptions()
            self._measure(self._master.get(f"/jobs/{self._id}"), now)
            self._measured = now

    def _handle_exceptions(self) -> None:
        for each in self._exceptions():
            self._seen.add(each["timestamp"])
            _handle(each["stacktrace"])

    def _measure(self, job: dict[str, Any], now: float) -> None:
        vertices = job["vertices"]
        total = sum(each["parallelism"] for each in vertices)
        finished = sum(each["tasks"]["FINISHED"] for each in vertices)
        moved = sum(each["metrics"][key] for each in vertices for key in _MOVED)
        tasks = [each["tasks"] for each in vertices]
        if (state := (job["state"], tasks, moved)) != self._state:
            self._state, self._moved = state, now
        events.emit("progress", message=f"{finished} of {total} tasks on Flink")

    def _exceptions(self) -> list[dict[str, Any]]:
        history = self._master.get(f"/jobs/{self._id}/exceptions")["exceptionHistory"]
        entries = history["entries"]
        return [each for each in entries if each["timestamp"] not in self._seen]

    def _notice_end(self, state: str, since: float) -> None:
        if state == "FINISHED":
            raise _FinishedError
        if since < _REPORT_SECONDS:
            return
        raise UserError(
            f"the job {self._name} is {state} in Flink, and Beam's job server does not "
            "report why",
            remedy="See its log.",
        )

    def _enforce_limits(self, now: float) -> None:
        if self._ended is not None:
            return
        spent, still, limits = now - self._begun, now - self._moved, self._limits
        if limits.timeout is not None and spent > limits.timeout:
            raise UserError(
                f"a job on Flink has not ended after {duration(spent)}",
                key="run.engine.options.timeout",
                received=f"{limits.timeout:g}s",
                remedy="It is cancelled. Raise the limit, or run.engine.workers.",
            )
        if still > limits.stall_timeout:
            raise UserError(
                f"a job on Flink has made no progress for {duration(still)}",
                key="run.engine.options.stall_timeout",
                received=f"{limits.stall_timeout:g}s",
                remedy="It is cancelled. See the logs of the workers; raise the limit "
                "if one shard takes longer.",
            )


def _handle(trace: str) -> None:
    if match := _OF_PYTHON.search(trace):
        raise RuntimeError(match[0])
    if match := _NO_COMMAND.search(trace):
        raise UserError(
            f"TaskManagers cannot start workers by {match[1]}: {match[2]}",
            remedy="Their hosts need this Python environment, at the same path.",
        )
    message = f"Flink restarted the job after: {first_line(trace)}"
    events.emit("note", message=message)
