"""One task of a gang: the forked process, and its state as its parent knows it."""

from __future__ import annotations

import dataclasses
import faulthandler
import io
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Collection
from typing import Any, NoReturn

from strategos.components.errors import ExitCode, UserError
from strategos.components.limits import oom
from strategos.components.processes import die_with_parent, fork
from strategos.components.trainer.gang import contact, heartbeat, loopback
from strategos.components.trainer.gang.preemption import Preempted
from strategos.components.worker_process import described, error_of, leave

Work = Callable[[heartbeat.Reporter], "dict[str, Any] | None"]

_CHUNK = 1 << 16
_REPEATED = {"StagingError"} | {
    kind.__name__
    for kind in (
        AssertionError,
        AttributeError,
        ImportError,
        IndexError,
        KeyError,
        ModuleNotFoundError,
        NameError,
        NotImplementedError,
        RecursionError,
        SyntaxError,
        TypeError,
        UnboundLocalError,
        ValueError,
        ZeroDivisionError,
    )
}  # errors of Python code that a restart would only raise again; AutoGraph's among them
_MORE_MEMORY = "use a smaller `batch_size` or model, or a machine with more memory"


@dataclasses.dataclass(frozen=True)
class Failure:
    """The failure of a task.

    Attributes:
      task: The task's name.
      what: The failure as a predicate, e.g. "was killed by SIGKILL".
      error: The exception that the task raised, if it reported one.
      at: Time of the failure, by the monotonic clock of its machine, in seconds.
      echo: Whether this looks like the consequence of another task's failure.
      passing: Whether the cause may be temporary, e.g. a service did not answer.
      preempted: Whether the task received SIGTERM.
      hint: Remedy for the user, or "".
      silent: Whether the failure only showed by missing reports.
      repeated: Whether Python code raised `error`, so that a restart raises it again.
    """

    task: str
    what: str
    error: Exception | None = None
    at: float = 0.0
    echo: bool = False
    passing: bool = False
    preempted: bool = False
    hint: str = ""
    silent: bool = False
    repeated: bool = False

    @property
    def permanent(self) -> bool:
        """Whether a restart cannot help: code, settings or data fail."""
        fixed = isinstance(self.error, UserError) or self.repeated
        return fixed and not (self.echo or self.passing)


class Lines:
    """Reads lines from a pipe without blocking.

    Args:
      descriptor: The pipe's end to read from.
      longest: For text: bytes after which a line is split. None: each line ends with a
        newline, and a line cut off by its writer's death is dropped.

    Attributes:
      ended: Whether all writers have closed the pipe.
    """

    def __init__(self, descriptor: int, longest: int | None = None):
        os.set_blocking(descriptor, False)
        self._descriptor = descriptor
        self._longest = longest
        self._rest = b""
        self.ended = False

    def fileno(self) -> int:
        """The descriptor, for `selectors`."""
        return self._descriptor

    def read(self) -> list[bytes]:
        """Reads the available lines, at most a chunk, so that others get their turn."""
        try:
            data = os.read(self._descriptor, _CHUNK)
        except BlockingIOError:
            return []
        self.ended = not data
        *lines, self._rest = (self._rest + data).split(b"\n")
        if self._longest is not None and len(self._rest) >= self._longest:
            lines.append(self._rest)
            self._rest = b""
        return lines

    def close(self) -> list[bytes]:
        """Reads the remaining lines; does not wait for other holders of the pipe."""
        lines: list[bytes] = []
        before = None
        while before != (len(lines), self._rest) and not self.ended:
            before = (len(lines), self._rest)
            lines += self.read()
        os.close(self._descriptor)
        if self._longest is not None and self._rest:
            lines.append(self._rest)
        return lines


class TaskProcess:
    """A task that runs in a fork of this process.

    Args:
      name: Name of the task in log lines and errors, such as "worker-0".
      work: Runs in the fork.
      prefixed: Whether the task's output is forwarded line by line, prefixed by its
        name; otherwise it shares this process's output.
      alone: Whether the cluster has no other task: no error comes from losing one.
      exposed: For a task that other hosts must not reach: called with the reason if the
        system does not allow that to be ensured.

    Attributes:
      joined: Whether the task has reported anything yet.
      stepped: Whether the task has finished a training step.
      last_report: When the task last reported, by the monotonic clock.
      answer: Result of `work`, once it has returned.
      failure: The failure of the task, if it has failed.
      preempted: Whether the task received SIGTERM.
      ended: Whether the process has ended.
    """

    def __init__(
        self,
        name: str,
        work: Work,
        *,
        prefixed: bool,
        alone: bool,
        exposed: Callable[[str], None] | None = None,
    ):
        self.name = name
        self._alone = alone
        self.joined = self.stepped = self.preempted = self.ended = False
        self._last_step = heartbeat.shared_step()
        self.last_report = time.monotonic()
        self.answer: dict[str, Any] | None = None
        self.failure: Failure | None = None
        self._label = name if prefixed else ""
        reports_end, reporting = os.pipe()
        output_end, printing = os.pipe() if prefixed else (None, None)
        guarding, guarded = socket.socketpair() if exposed else (None, None)
        parent = os.getpid()
        self._kills = oom.OomKills()
        self._pid = fork()
        if self._pid == 0:
            reporter = heartbeat.Reporter(reporting, last_step=self._last_step)
            _run_task(work, parent, reporter, printing, guarded)
        os.close(reporting)
        self._reports = Lines(reports_end)
        self._output = None
        if output_end is not None and printing is not None:
            os.close(printing)
            self._output = Lines(output_end, longest=_CHUNK)
        self._exposed, self._guard = exposed, None
        if guarding is not None and guarded is not None:
            guarded.close()
            self._guard = loopback.Guard(guarding)
            self._report_exposure(self._guard.refusal)

    @property
    def step(self) -> int:
        """The last training step that has ended, also if the task died after it."""
        return int(self._last_step[0])

    def sources(self) -> list[tuple[Lines | loopback.Guard, Callable[[], None]]]:
        """The pipes to wait for, each with the function to call when it is readable."""
        if self.ended:
            return []
        all_sources: list[tuple[Lines | loopback.Guard, Callable[[], None]]] = [
            (self._reports, lambda: self._read_reports(self._reports.read()))
        ]
        if self._output is not None:
            output = self._output
            all_sources.append((output, lambda: self._print(output.read())))
        if self._guard is not None:
            guard = self._guard
            all_sources.append((guard, lambda: self._report_exposure(guard.answer())))
        return [(source, take) for source, take in all_sources if not source.ended]

    def _report_exposure(self, reason: str | None) -> None:
        if reason and self._exposed is not None:
            self._exposed(reason)

    def _read_reports(self, lines: list[bytes]) -> None:
        for line in lines:
            report = json.loads(line)
            self.last_report, self.joined = time.monotonic(), True
            self.stepped |= "stepped" in report
            self.preempted |= "preempted" in report
            if "done" in report:
                self.answer = report["done"]
            elif "error" in report:
                self.failure = self._raised(**report)

    def _raised(self, error: dict[str, Any], at: float, lost: bool) -> Failure:
        echo = lost and not self._alone
        what = "lost contact with another task" if echo else f"failed ({error['type']})"
        raised = error_of(error, self._label)
        repeated = error["type"] in _REPEATED
        return Failure(
            self.name, what, raised, at, echo=echo, passing=lost, repeated=repeated
        )

    def _print(self, lines: list[bytes]) -> None:
        prefix = f"[{self.name}] ".encode()
        text = b"".join(prefix + line + b"\n" for line in lines)
        while text:
            text = text[os.write(2, text) :]

    def reap(self) -> None:
        """Records how the process ended, if it has, and closes its pipes."""
        if self.ended:
            return
        pid, status = os.waitpid(self._pid, os.WNOHANG)
        if not pid:
            return
        self.ended = True
        self._read_reports(self._reports.close())
        if self._output is not None:
            self._print(self._output.close())
        if self._guard is not None:
            self._guard.close()
        if self.answer is None and self.failure is None:
            code = os.waitstatus_to_exitcode(status)
            self.preempted |= code == ExitCode.PREEMPTED
            self.failure = None if self.preempted else self._death(code)

    def _death(self, code: int) -> Failure:
        now = time.monotonic()
        if code >= 0:
            return Failure(self.name, f"ended with exit code {code}", at=now)
        # TensorFlow aborts when it loses contact with other tasks.
        return Failure(
            self.name,
            f"was killed by {signal.Signals(-code).name}",
            at=now,
            echo=-code == signal.SIGABRT and not self._alone,
            hint=self._kills.explain(_MORE_MEMORY) if -code == signal.SIGKILL else "",
        )

    def send(self, sig: int) -> None:
        """Sends a signal, unless the process has ended.

        Args:
          sig: Signal number.
        """
        if not self.ended:
            os.kill(self._pid, sig)


def kill(tasks: Collection[TaskProcess], until: float) -> None:
    """Kills tasks and waits for their end.

    Args:
      tasks: The tasks.
      until: Deadline, in seconds of `time.monotonic()`.
    """
    for task in tasks:
        task.send(signal.SIGKILL)
    while not all(task.ended for task in tasks) and time.monotonic() < until:
        for task in tasks:
            task.reap()
        time.sleep(0.005)


def _run_task(
    work: Work,
    parent: int,
    reporter: heartbeat.Reporter,
    printing: int | None,
    guarded: socket.socket | None,
) -> NoReturn:
    """Runs in the forked process: works, reports the result, and waits to be killed.

    A task that is done stays: other tasks may still need its answers to their last
    collective operation.
    """
    code = 1
    try:
        die_with_parent(parent)
        faulthandler.register(signal.SIGUSR1, file=2, all_threads=True)
        _print_to(printing)
        heartbeat.use(reporter)
        if guarded is not None:
            loopback.submit(guarded)
        answer = work(reporter) or {}
        sys.stdout.flush()
        reporter.report(done=answer)
        while True:
            signal.pause()
    except Preempted:
        code = ExitCode.PREEMPTED
    except BaseException as error:
        at = time.monotonic()  # the first of several failures is the cause
        reporter.report(error=described(error), at=at, lost=contact.is_loss(error))
    finally:
        leave(code)


def _print_to(descriptor: int | None) -> None:
    if descriptor is not None:
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        os.close(descriptor)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True)
