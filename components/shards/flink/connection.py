"""A run's connection to Flink: `connected`."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path
from typing import IO, Any

from strategos.components import errors, fork_server, processes
from strategos.components.errors import UserError
from strategos.components.files import temporary
from strategos.components.shards.flink import jars, java
from strategos.components.shards.flink.master import Master

_HOST = "strategos.components.shards.flink.host"
_WORKERS = "strategos.components.shards.worker_boot"


@dataclasses.dataclass(frozen=True)
class Connection:
    """The addresses that pipelines are sent to.

    Attributes:
      job_endpoint: `host:port` of Beam's job server; None for a service.
      master: `host:port` of the REST API of Flink's JobManager; None for a job server
        of another runner.
      slots: Task slots of each TaskManager.
      lost: The error, once no more jobs can be sent.
    """

    job_endpoint: str | None = None
    master: str | None = None
    slots: int = 1
    lost: futures.Future[UserError] = dataclasses.field(default_factory=futures.Future)


@contextlib.contextmanager
def connected(
    master: str | None, taskmanagers: int, workers: int, logs: Path
) -> Iterator[Connection]:
    """Starts Beam's job server, and a Flink cluster without `master`, for a block.

    The started processes end with the block, and with this process, however it ends; so
    do jobs that still run on the cluster of `master`.

    Args:
      master: `host:port` of the REST API of a running cluster; None to start one.
      taskmanagers: Number of TaskManagers of a cluster that is started.
      workers: Shards that are worked on at a time: task slots that a job needs.
      logs: Folder for the logs of the processes; created if missing.

    Raises:
      BadInputError: Java or the jars are missing; or `check` rejects the master.
      UserError: A process did not start.
    """
    slots = -(-workers // taskmanagers)
    if master is not None:
        slots = Master(master).check(workers)
    request: dict[str, Any] = {
        "java": java.program(),
        "jars": str(jars.find()),
        "logs": str(logs.absolute()),
        "master": master,
        "taskmanagers": taskmanagers,
        "slots": slots,
    }
    logs.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        # On a cluster that stays, workers are not forks.
        parent = None if master else stack.enter_context(_parent_of_workers(logs))
        request["workers"] = parent
        yield stack.enter_context(_hosted(request, slots, logs))


@contextlib.contextmanager
def _parent_of_workers(logs: Path) -> Iterator[str]:
    """Starts the process that workers are forks of, for a block.

    The process is a fork with all imports done if a fork server runs here; otherwise it
    imports everything again.

    Yields:
      The path of its socket.
    """
    with temporary.folder() as folder, (logs / "workers.log").open("ab") as log:
        words = [path := f"{folder}/workers"]
        parent: subprocess.Popen[bytes] | fork_server.Child | None
        parent = fork_server.launch(_WORKERS, words, os.environ, folder)
        copying = threading.Thread(
            target=shutil.copyfileobj, args=(parent.stdout, log), daemon=True
        )
        copying.start()
        try:
            yield path
        finally:
            parent.kill()
            parent.wait()
            copying.join()
            _close(parent.stdin, parent.stdout)


@contextlib.contextmanager
def _hosted(request: dict[str, Any], slots: int, logs: Path) -> Iterator[Connection]:
    """Starts the processes that `request` describes, for a block."""
    with (logs / "host.log").open("ab") as log:
        host = processes.start(
            _HOST,
            [json.dumps(request)],
            stdin=subprocess.PIPE,  # never written to: closes when this process ends
            stdout=subprocess.PIPE,
            stderr=log,
        )
    listener = None
    try:
        connection = Connection(**_answer(host, logs)["addresses"], slots=slots)
        listener = threading.Thread(target=_listen, args=(host, logs, connection.lost))
        listener.start()
        yield connection
    finally:
        _close(host.stdin)
        with contextlib.suppress(subprocess.TimeoutExpired):
            host.wait(processes.Grace.ENGINE)
        processes.end_session(host)
        if listener:
            listener.join()
        _close(host.stdout)


def _close(*pipes: IO[bytes] | None) -> None:
    for pipe in pipes:
        if pipe is not None:
            pipe.close()


def _answer(host: subprocess.Popen[bytes], logs: Path) -> dict[str, Any]:
    """The next answer of the host.

    Raises:
      UserError: The answer is an error, or the host has ended.
    """
    line = host.stdout.readline() if host.stdout else b""
    if not line:
        raise UserError(
            f"the process that starts Flink ended unexpectedly ({host.wait()})",
            remedy=f"Its log: {logs / 'host.log'}",
        )
    answer = json.loads(line)
    if "error" in answer:
        raise errors.from_json(answer["error"])
    return answer


def _listen(
    host: subprocess.Popen[bytes], logs: Path, lost: futures.Future[UserError]
) -> None:
    """Waits for the host's error, or its end."""
    try:
        _answer(host, logs)
    except UserError as error:
        lost.set_result(error)
