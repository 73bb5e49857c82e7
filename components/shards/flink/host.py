"""Holds the Java processes of an engine: `python -m` this module, from `connection`.

The host starts them, prints a line of JSON (addresses or an error), and ends with its
standard input, which closes when the parent process ends, even by SIGKILL. The host
leaves nothing behind: it cancels jobs on a cluster that stays, kills its Java processes
and the workers that these started. If the host itself is killed, the kernel kills the
Java processes.

A TaskManager that dies is replaced; Flink restarts the job. Without its JobManager or
job server no job can go on: then all ends, after a second line (an error).
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from strategos.components import processes
from strategos.components.errors import UserError
from strategos.components.files import temporary
from strategos.components.shards import worker_boot
from strategos.components.shards.flink import jvms
from strategos.components.shards.flink.master import Master, MasterError

_START_SECONDS = 180.0  # 4 on an idle machine
_CANCEL_SECONDS = 5.0
_LOOK_SECONDS = 0.05
_LAST_LINES = 5
_RPC_PORT = "jobmanager.rpc.port"
_AGAIN = "Run again: what was finished is cached. "
_REPLACEMENTS = 20  # of TaskManagers; more is no accident


class _Ended(Exception):
    """The parent has ended or wants an end."""


@dataclasses.dataclass
class _Jvm:
    """A Java process and its log."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path
    position: int = 0  # where the log of this process begins
    has_started: bool = False

    def logged(self) -> str:
        with self.log.open("rb") as file:
            file.seek(self.position)
            return file.read().decode(errors="replace")

    def failure(self, what: str, remedy: str = "") -> UserError:
        """An error that ends with the last lines of the log."""
        code = self.process.poll()
        if code is not None:
            how = f"exit code {code}" if code >= 0 else signal.Signals(-code).name
            what = f"{what} ({how})"
        lines = self.logged().strip().splitlines()[-_LAST_LINES:]
        tail = "".join(f"\n      {line}" for line in lines)
        remedy = f"{remedy}Its log, {self.log}:{tail}"
        return UserError(f"{self.name} {what}", remedy=remedy)


class _Host:
    """The processes of one engine."""

    def __init__(self, request: dict[str, Any], folder: Path):
        self._request, self._logs = request, Path(request["logs"])
        self._commands = jvms.Commands(
            request["java"], Path(request["jars"]), folder, request["slots"]
        )
        self._signals = processes.Signals()
        self._signals.install()
        self._jvms: list[_Jvm] = []
        workers = request["workers"]
        self._env = {worker_boot.VARIABLE: workers} if workers else {}
        self._replaced = 0
        self._rpc_port = 0
        self._master: Master

    def start(self) -> dict[str, str]:
        """Starts everything, and returns the addresses.

        Raises:
          UserError: A process did not start.
        """
        address, upload = self._request["master"], True
        if address is None:
            address, upload = self._start_flink(), False
        self._master = Master(address)
        server = self._add(
            "Beam's job server", self._commands.job_server(address, upload)
        )
        port = self._wait(server, lambda: _logged(server, jvms.SERVER_READY))
        if not upload:
            self._wait(self._jvms[0], self._has_task_managers)
        return {"job_endpoint": f"127.0.0.1:{port}", "master": address}

    def keep(self) -> UserError | None:
        """Watches the processes; returns the error once jobs cannot run any more.

        Returns None when the parent ends, or wants this process to end.
        """
        with contextlib.suppress(_Ended):
            while not (lost := self._lost()):
                self._pause(1.0)
            return lost
        return None

    def end(self) -> None:
        """Ends the job server and its jobs, then all other processes."""
        for jvm in self._jvms:
            jvm.process.kill()
        if self._request["master"] is not None and self._jvms:
            self._cancel_jobs(self._jvms[0])
        processes.end_children(set(), time.monotonic() + _CANCEL_SECONDS)

    def _start_flink(self) -> str:
        manager = self._add("Flink's JobManager", self._commands.job_manager())
        address = self._wait(manager, lambda: _logged(manager, jvms.MASTER_READY))
        self._master = Master(address)
        settings = self._wait(manager, lambda: self._asked("/jobmanager/config"))
        ports = (each["value"] for each in settings if each["key"] == _RPC_PORT)
        self._rpc_port = int(next(ports))
        for number in range(1, self._request["taskmanagers"] + 1):
            self._add_task_manager(f"taskmanager-{number}")
        return address

    def _has_task_managers(self) -> bool:
        overview = self._asked("/overview") or {"taskmanagers": 0}
        return overview["taskmanagers"] >= self._request["taskmanagers"]

    def _asked(self, path: str) -> Any:
        """The master's answer; None from one that only just starts."""
        try:
            return self._master.get(path)
        except MasterError:
            return None

    def _add_task_manager(self, name: str) -> None:
        command = self._commands.task_manager(
            f"{name}.{self._replaced}", self._rpc_port
        )
        self._add(f"Flink's {name}", command)

    def _add(self, name: str, command: list[str]) -> _Jvm:
        log = self._logs / f"{name.split(' ', 1)[1].replace(' ', '-').lower()}.log"
        parent = os.getpid()
        with log.open("ab") as file:
            position = file.tell()
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                env={**os.environ, **self._env},
                preexec_fn=lambda: processes.die_with_parent(parent),
            )
        self._jvms.append(_Jvm(name, process, log, position))
        return self._jvms[-1]

    def _wait(self, jvm: _Jvm, ready: Callable[[], Any]) -> Any:
        """Waits for a process that starts, until `ready` returns something."""
        until = time.monotonic() + _START_SECONDS
        while not (value := ready()):
            self._look(jvm, until)
        jvm.has_started = True
        return value

    def _look(self, jvm: _Jvm, until: float) -> None:
        """Waits a moment for processes that start."""
        for each in self._jvms:
            if each.process.poll() is not None:
                if each.has_started:
                    raise each.failure("ended", _AGAIN)
                raise each.failure("did not start")
        if time.monotonic() > until:
            raise jvm.failure(f"did not start within {_START_SECONDS:g} s")
        self._pause(_LOOK_SECONDS)

    def _pause(self, seconds: float) -> None:
        """Waits for a signal or the parent's end.

        Raises:
          _Ended: The parent has ended, or wants this process to end.
        """
        sources: list[Any] = [0, self._signals]
        readable, _, _ = select.select(sources, [], [], seconds)
        self._signals.clear()
        if self._signals.stop_requested or (0 in readable and not os.read(0, 1)):
            raise _Ended

    def _lost(self) -> UserError | None:
        """Replaces dead TaskManagers; the error if jobs cannot run any more."""
        for jvm in [each for each in self._jvms if each.process.poll() is not None]:
            failure = jvm.failure("ended", _AGAIN)
            print(failure, file=sys.stderr, flush=True)
            self._replaced += 1
            name = jvm.name.removeprefix("Flink's ")
            if not name.startswith("taskmanager") or self._replaced > _REPLACEMENTS:
                return failure
            self._jvms.remove(jvm)
            self._add_task_manager(name)
        self._end_orphans()
        return None

    def _end_orphans(self) -> None:
        """Ends the workers of Java processes that have died."""
        own = {jvm.process.pid for jvm in self._jvms}
        for pid in processes.children() - own:
            with contextlib.suppress(ProcessLookupError, ChildProcessError):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, os.WNOHANG)

    def _cancel_jobs(self, server: _Jvm) -> None:
        """Cancels the jobs that the job server has sent to a cluster that stays."""
        left = set(re.findall(jvms.SUBMITTED, server.logged()))
        until = time.monotonic() + _CANCEL_SECONDS
        while left and time.monotonic() < until:
            for job in list(left):
                with contextlib.suppress(MasterError):  # it may only just arrive
                    if self._master.cancel(job):
                        left.remove(job)
            time.sleep(_LOOK_SECONDS)


def _logged(jvm: _Jvm, pattern: str) -> str | None:
    match = re.search(pattern, jvm.logged())
    return match and match.group(1)


def main() -> None:
    """Serves the parent process; its process id is the first argument."""
    processes.die_with_parent(int(sys.argv[1]), signal.SIGTERM)
    processes.adopt_orphans()
    with temporary.folder() as folder:
        host = _Host(json.loads(sys.argv[2]), Path(folder))
        try:
            answer = {"addresses": host.start()}
        except UserError as error:
            answer = {"error": error.to_json()}
        except _Ended:
            answer = None
        try:
            if answer is not None:
                print(json.dumps(answer), flush=True)
            if answer is not None and "addresses" in answer and (lost := host.keep()):
                print(json.dumps({"error": lost.to_json()}), flush=True)
        finally:
            host.end()


if __name__ == "__main__":
    main()
