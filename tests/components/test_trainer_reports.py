from __future__ import annotations

import json
import os

from strategos.components.trainer import reports


def test_steps_are_reported_twice_a_second_and_the_first_at_once():
    read, write = os.pipe()
    now = [0.0]
    reporter = reports.Reporter(write, clock=lambda: now[0])
    reporter.joined()
    for step in range(10):
        reporter.step(step)
        now[0] += 0.1
    reporter.alive()
    lines = os.read(read, 10_000).decode().splitlines()
    assert list(map(json.loads, lines)) == [{"joined": True}, {"step": 0}, {"step": 5}]
    now[0] += 1
    reporter.alive()
    assert json.loads(os.read(read, 10_000)) == {"alive": True}


def test_outside_of_a_gang_reports_go_nowhere():
    reports.current().joined()
    reports.current().step(1)
    reports.current().alive()
