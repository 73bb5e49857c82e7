from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from strategos.components.errors import UserError
from strategos.components.shards.flink import jars, java

_HOLDER = """
import contextlib, json, pathlib, sys
from strategos.components import fork_server
from strategos.components.shards.flink.connection import connected

fork_server.start()  # as in a run: workers are forks of what is imported
folder, taskmanagers, slots = sys.argv[1:]
with contextlib.ExitStack() as stack:
    stack.enter_context(contextlib.suppress(KeyboardInterrupt))
    logs = pathlib.Path(folder)
    found = stack.enter_context(connected(None, int(taskmanagers), int(slots), logs))
    print(json.dumps([found.job_endpoint, found.master]), flush=True)
    sys.stdin.read()
"""


@dataclasses.dataclass(frozen=True)
class Cluster:
    """A Flink cluster.

    Attributes:
      job_endpoint: `host:port` of Beam's job server.
      master: `host:port` of Flink's REST API.
      pid: Of the process that started all the others.
      folder: For logs and temporary files.
    """

    job_endpoint: str
    master: str
    pid: int
    folder: Path


@pytest.fixture(scope="session")
def installed():
    try:
        java.program()
        jars.find()
    except UserError as error:
        pytest.skip(error.headline)


@pytest.fixture(scope="session")
def start_cluster(installed, warm_tfx, tmp_path_factory):
    """Starts a `Cluster`, for a block: `start_cluster(taskmanagers, slots in all)`."""

    @contextlib.contextmanager
    def start(taskmanagers: int, slots: int) -> Iterator[Cluster]:
        folder = tmp_path_factory.mktemp("flink")
        words = (str(folder), str(taskmanagers), str(slots))
        holder = warm_tfx.script(_HOLDER, *words, TMPDIR=str(folder))
        answer = holder.stdout.readline()
        assert answer, holder.errors()
        try:
            yield Cluster(*json.loads(answer), holder.pid, folder)
        finally:
            holder.output()

    return start


@pytest.fixture(scope="session")
def cluster(start_cluster):
    """A cluster of two TaskManagers with two slots in all."""
    with start_cluster(2, 2) as cluster:
        yield cluster


@pytest.fixture
def wait_until() -> Callable[..., None]:
    def wait_until(reached: Callable[[], object], seconds: float = 90) -> None:
        until = time.monotonic() + seconds
        while not reached():
            assert time.monotonic() < until
            time.sleep(0.02)

    return wait_until


@pytest.fixture
def pids() -> Callable[[Path, str], list[int]]:
    """The processes of a test whose command has a part: `pids(folder, part)`."""

    def pids(folder: Path, part: str) -> list[int]:
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                command = (entry / "cmdline").read_bytes()
                about = command + (entry / "environ").read_bytes()
                if part.encode() in command and os.fsencode(folder) in about:
                    found.append(int(entry.name))
        return sorted(found)

    return pids


@pytest.fixture
def connected_workers(pids) -> Callable[[Path], list[int]]:
    """The workers of a folder's cluster, once all have both of their streams open.

    For one that dies with one of the two, Beam waits three minutes.
    """

    def connected_workers(folder: Path) -> list[int]:
        found = pids(folder, "strategos-worker")
        return found if all(map(_is_connected, found)) else []

    return connected_workers


def _is_connected(pid: int) -> bool:
    try:
        command = Path(f"/proc/{pid}/cmdline").read_text()
        parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]
        log = Path(f"/proc/{parent}/fd/1").read_text(errors="replace")
    except OSError:  # it has ended
        return False
    control, data = (f"Beam Fn {name} client connected" for name in ("Control", "Data"))
    name = "".join(re.findall("--id=([^\0]+)", command))
    _, own, later = log.rpartition(f"{control} with id {name}\n")
    # The log names no worker for data: others that came later may have some of these.
    return bool(own) and later.count(data) > later.count(control)
