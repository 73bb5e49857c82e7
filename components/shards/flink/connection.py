"""A run's connection to Flink: `connected`."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

from strategos.components import errors, processes
from strategos.components.errors import UserError
from strategos.components.shards.flink import jars, java
from strategos.components.shards.flink.master import Master

_HOST = "strategos.components.shards.flink.host"
_GRACE_SECONDS = 15.0  # The host cancels jobs on a cluster that stays.


@dataclasses.dataclass(frozen=True)
class Connection:
    """Where pipelines are sent.

    Attributes:
      job_endpoint: `host:port` of Beam's job server, on the loopback interface.
      master: `host:port` of the REST API of Flink's JobManager.
    """

    job_endpoint: str
    master: str


@contextlib.contextmanager
def connected(
    master: str | None, taskmanagers: int, workers: int, logs: Path
) -> Iterator[Connection]:
    """Starts Beam's job server, and a Flink cluster unless there is one, for a block.

    Everything ends with the block, and with this process, however it ends: the
    processes that were started, and jobs that still run on a cluster that stays.

    Args:
      master: `host:port` of the REST API of a running cluster; None to start one.
      taskmanagers: Number of TaskManagers of a cluster that is started.
      workers: Shards that are worked on at a time: task slots that a job needs.
      logs: Folder for the logs of the processes; created if missing.

    Raises:
      BadInputError: Java or the jars are missing; or `check` rejects the master.
      UserError: A process did not start.
    """
    request = {
        "java": java.program(),
        "jars": str(jars.find()),
        "logs": str(logs.absolute()),
        "master": master,
        "taskmanagers": taskmanagers,
        "slots": -(-workers // taskmanagers),
    }
    if master is not None:
        Master(master).check(workers)
    logs.mkdir(parents=True, exist_ok=True)
    with (logs / "host.log").open("ab") as log:
        host = processes.start(
            _HOST,
            [json.dumps(request)],
            stdin=subprocess.PIPE,  # never written to: closes when this process ends
            stdout=subprocess.PIPE,
            stderr=log,
        )
    try:
        yield _answer(host, logs)
    finally:
        host.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            host.wait(_GRACE_SECONDS)
        processes.end_session(host)
        host.stdout.close()


def _answer(host: subprocess.Popen[bytes], logs: Path) -> Connection:
    line = host.stdout.readline()
    if not line:
        raise UserError(
            f"the process that starts Flink ended unexpectedly ({host.wait()})",
            remedy=f"Its log: {logs / 'host.log'}",
        )
    answer = json.loads(line)
    if "error" in answer:
        raise errors.from_json(answer["error"])
    return Connection(**answer["addresses"])
