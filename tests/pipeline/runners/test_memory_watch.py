"""`run.memory`: a run that takes more memory ends, with the figures."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys

import pytest

from strategos.components.errors import UserError
from strategos.pipeline.runners import memory_watch
from strategos.pipeline.runners.executor_client import ExecutorClient
from strategos.pipeline.runners.memory_watch import MemoryWatch, taken_by_family

MB = 10**6
# Takes 200 MB, which two forks share; then takes as much again if asked to.
_SHARED = """
import os, signal, sys, time
held = os.urandom(200_000_000)
for _ in range(2):
    if os.fork() == 0:
        signal.pause()
print("taken", flush=True)
sys.stdin.readline()
more = os.urandom(200_000_000)
signal.pause()
"""


@pytest.fixture(autouse=True)
def often(monkeypatch):
    monkeypatch.setattr(memory_watch, "_LOOK_SECONDS", 0.02)


@pytest.fixture
def sharing():
    """A process and two forks that share 200 MB."""
    process = subprocess.Popen(
        [sys.executable, "-c", _SHARED],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    yield process
    with process, contextlib.suppress(ProcessLookupError):  # a test ended them all
        os.killpg(process.pid, signal.SIGKILL)


def test_shared_memory_counts_once_and_too_much_of_it_ends_the_process(sharing):
    before = sum(taken_by_family().values())
    sharing.stdout.readline()
    limit = before + 300 * MB
    assert sum(taken_by_family().values()) < limit
    watch = MemoryWatch(sharing, limit)
    with pytest.raises(subprocess.TimeoutExpired):
        sharing.wait(0.5)
    sharing.stdin.write("\n")
    sharing.stdin.flush()
    assert sharing.wait(60) == -signal.SIGKILL
    watch.stop()
    assert watch.error.key == "run.memory"
    assert memory_watch.data_size(limit) in watch.error.message
    assert "run.engine.workers" in watch.error.remedy


def test_executor_process_that_takes_too_much_fails_with_the_reason(tmp_path):
    limit = 10 * MB  # which this process takes already
    log, events = tmp_path / "log", tmp_path / "events"
    with (
        ExecutorClient(log, events, limit) as client,
        pytest.raises(UserError, match=r"run\.memory: .* 10 MB are allowed"),
    ):
        client._call(op="none")
