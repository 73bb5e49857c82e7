"""Clocks and a run by hand that start at the same time."""

from __future__ import annotations

import os
import signal
import subprocess

import pytest

from strategos.pipeline.root import lock

pytestmark = pytest.mark.faults


@pytest.fixture
def start(small, tmp_path):
    """Starts commands of the workspace; each has its process and its log."""
    started = []

    def start(*words):
        log = tmp_path / f"log-{len(started)}"
        with log.open("w") as file:
            process = subprocess.Popen(
                small.command(*words), stdout=file, stderr=file, env=small.environment()
            )
        started.append(process)
        return process, log

    yield start
    for process in started:
        process.terminate()
        process.wait()


def test_one_of_two_clocks_and_a_run_trains_and_after_its_kill_the_next(small, start):
    words = (str(small.yaml), "--set", "schedule.retry_after=1s")
    root = small.folder / "runs"
    with small.held("Trainer"):
        clock = ("schedule", "start", *words, "--every", "3s")
        started = [start(*clock), start(*clock), start("run", *words)]
        small.wait_for(lambda: "run_id" in (lock.holder(root) or {}), seconds=300)
        holder = lock.holder(root)
        busy = f"run {holder['run_id']} has been running since "

        def waiting():
            return [process for process, log in started if busy in log.read_text()]

        small.wait_for(lambda: len(waiting()) == 2, seconds=300)
        log = root / ".strategos" / "runs" / holder["run_id"] / "events.jsonl"
        small.wait_for(lambda: "epoch 1/" in log.read_text(), seconds=300)
        by_hand, _ = started[-1]
        assert (by_hand in waiting()) == (holder["pid"] != by_hand.pid)
        os.kill(holder["pid"], signal.SIGKILL)
    small.wait_for(lambda: (small.folder / "serving").exists(), seconds=500)
    small.wait_for(lambda: small.last_run()["outcome"] == "blessed", seconds=300)
    listed = small.strategos("runs", str(small.yaml)).stdout
    assert listed.count("interrupted") == 1 and listed.count("blessed") == 1
    assert by_hand.wait(timeout=100) in (2, -signal.SIGKILL)
    assert len(small.serving()) == 1
