from __future__ import annotations

import contextlib
import json
import os
import time

import pytest

from strategos.components.trainer.gang import heartbeat


def test_steps_are_reported_twice_a_second_and_the_first_at_once():
    read, write = os.pipe()
    now = [0.0]
    last_step = heartbeat.shared_step()
    reporter = heartbeat.Reporter(write, lambda: now[0], last_step)
    reporter.joined()
    for step in range(10):
        reporter.step(step)
        now[0] += 0.1
    reporter.alive()
    lines = os.read(read, 10_000).decode().splitlines()
    stepped = {"stepped": True}
    assert list(map(json.loads, lines)) == [{"joined": True}, stepped, stepped]
    assert last_step[0] == 9
    now[0] += 1
    reporter.alive()
    assert json.loads(os.read(read, 10_000)) == {"alive": True}


def test_outside_of_a_gang_reports_go_nowhere():
    heartbeat.current().joined()
    heartbeat.current().step(1)
    heartbeat.current().alive()


@pytest.mark.long
def test_keep_alive_reports_for_as_long_as_the_process_computes():
    read, write = os.pipe()
    os.set_blocking(read, False)

    def said() -> bytes:
        with contextlib.suppress(BlockingIOError):
            return os.read(read, 1 << 16)
        return b""

    heartbeat.use(heartbeat.Reporter(write))
    try:
        with heartbeat.keep_alive(seconds=0.5):
            until = time.monotonic() + 2
            while time.monotonic() < until:
                pass
            assert b"alive" in said()
            time.sleep(1.5)
            # Threads of earlier tests may compute for a while.
            until = time.monotonic() + 20
            while said():
                assert time.monotonic() < until
                time.sleep(1.5)
    finally:
        heartbeat.use(heartbeat.Reporter())
