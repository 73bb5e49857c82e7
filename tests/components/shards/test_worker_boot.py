"""Workers that are forks of a process that has imported what they need."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest

SERVER = """
import json, os, sys, time
from strategos.components import fork_listener
from strategos.components.shards import worker_boot

def work(*arguments):
    about = [os.getpid(), arguments, os.getcwd(), os.environ.get("OF_WORKER")]
    print(json.dumps([*about, sys.path[-1]]), flush=True)
    time.sleep(float(arguments[-1]))

worker_boot.work = work
requests = fork_listener.listen(sys.argv[1])
fork_listener.serve(requests, os.getppid(), ["this"])  # prints, once it listens
"""
WORKER = """
import sys
from strategos.components.shards import worker_boot

def work(*arguments):
    print("works itself", flush=True)

worker_boot.work = work
sys.path.append("/of/worker")
worker_boot.main()
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """The path of a server's socket, which is longer than an address."""
    folder = tmp_path_factory.mktemp("x" * 90)
    with python(SERVER, folder / "socket") as process:
        assert "Zen" in process.stdout.readline()
        yield folder / "socket"
        process.kill()


def python(code, *arguments, **how):
    command = [sys.executable, "-u", "-c", code, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **how)


@pytest.fixture
def start(server, tmp_path):
    """Starts a worker that works for some seconds."""

    def start(seconds, socket=server):
        env = {**os.environ, "STRATEGOS_WARM_WORKERS": str(socket), "OF_WORKER": "1"}
        return python(WORKER, "--id=ü", seconds, env=env, cwd=tmp_path)

    return start


def test_fork_has_what_the_worker_has(start, tmp_path):
    """Its arguments, folder, environment, module path and output."""
    with start(0) as worker:
        (found,) = worker.stdout
    pid, *about = json.loads(found)
    assert about == [["--id=ü", "0"], str(tmp_path), "1", "/of/worker"]
    assert pid != worker.pid


@pytest.mark.parametrize("dies", ["fork", "worker"])
def test_fork_and_worker_end_together(start, dies):
    with start(600) as worker:
        fork, *_ = json.loads(worker.stdout.readline())
        os.kill(fork if dies == "fork" else worker.pid, signal.SIGKILL)
        worker.stdout.read()  # ends when both have ended
    assert worker.returncode == (0 if dies == "fork" else -signal.SIGKILL)


def test_worker_without_a_server_works_itself(start, tmp_path):
    with start(0, tmp_path / "none") as worker:
        assert worker.stdout.read() == "works itself\n"
