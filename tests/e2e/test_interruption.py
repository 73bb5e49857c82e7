"""Runs that end before their time, and those that come after them."""

from __future__ import annotations

import signal
import time

import pytest


def wait_for(condition, seconds=120.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(0.1)


def started(workspace, node):
    """Whether the newest run has begun with `node`."""
    folders = sorted((workspace.folder / "runs" / ".strategos" / "runs").glob("*"))
    if not folders:
        return False
    text = (folders[-1] / "events.jsonl").read_text()
    return '"node_started", ' in text and any(
        '"node_started"' in line and f'"{node}"' in line for line in text.splitlines()
    )


@pytest.fixture(scope="module")
def killed(flights):
    """A workspace whose run was killed with -9 in the middle of Transform."""
    run = flights.start()
    wait_for(lambda: started(flights, "Transform"))
    refused = flights.run(expect=2)
    assert flights.end(run, signal.SIGKILL) == -signal.SIGKILL
    wait_for(lambda: not flights.left_processes(), seconds=10)
    return flights, refused


def test_second_run_is_refused_while_one_is_on(killed):
    _, refused = killed
    assert "is on here since" in refused.stderr


def test_killed_run_shows_as_interrupted(killed):
    workspace, _ = killed
    assert workspace.last_run()["outcome"] == "interrupted"


def test_next_run_goes_on_from_what_was_done(killed):
    workspace, _ = killed
    workspace.run()
    states = workspace.states()
    assert states["ExampleGen"] == "cached"
    assert states["Transform"] == "complete"
    assert workspace.last_run()["outcome"] == "blessed"


@pytest.mark.parametrize("sig", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("runner", ["local", "beam"])
def test_interrupted_run_ends_its_processes_and_says_so(killed, sig, runner):
    workspace, _ = killed
    run = workspace.start("--no-cache", "--runner", runner)
    wait_for(lambda: started(workspace, "ExampleGen"))
    assert workspace.end(run, sig) == 130
    wait_for(lambda: not workspace.left_processes(), seconds=10)
    assert workspace.last_run()["outcome"] == "interrupted"
    assert "running" not in workspace.states().values()
