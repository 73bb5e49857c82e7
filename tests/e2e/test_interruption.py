"""Runs that end before their time, and those that come after them."""

from __future__ import annotations

import contextlib
import shutil
import signal
import sqlite3

import pytest
from ml_metadata.proto.metadata_store_pb2 import Execution

RUNNING = Execution.RUNNING
STATES = "SELECT last_known_state FROM Execution"


@pytest.fixture(scope="module")
def killed(small):
    """A workspace whose run was killed with -9 in the middle of Transform."""
    with small.held("Transform"):
        run = small.start(node="Transform", warm=False)
        refused = small.run(expect=2)
        assert small.end(run, signal.SIGKILL) == -signal.SIGKILL
        small.wait_until_nothing_is_left()
    return small, refused


@pytest.mark.long
@pytest.mark.cold
def test_second_run_is_refused_while_one_is_on(killed):
    _, refused = killed
    assert "has been running since" in refused.stderr


@pytest.mark.long
def test_killed_run_shows_as_interrupted(killed):
    workspace, _ = killed
    assert workspace.last_run()["outcome"] == "interrupted"


@pytest.mark.long
def test_next_run_goes_on_from_what_was_done(killed):
    workspace, _ = killed
    workspace.run()
    states = workspace.states()
    assert states["ExampleGen"] == "cached"
    assert states["Transform"] == "complete"
    assert workspace.last_run()["outcome"] == "blessed"
    assert RUNNING not in set(_states_in_ml_metadata(workspace))


def _states_in_ml_metadata(workspace):
    """The states of all executions, the dead run's among them."""
    database = workspace.folder / "runs" / "metadata.sqlite"
    with contextlib.closing(sqlite3.connect(database)) as connection:
        return [state for (state,) in connection.execute(STATES)]


@pytest.mark.parametrize(
    ("runner", "sig", "warm"),
    [
        ("local", signal.SIGINT, True),  # `killed` is as users have it
        pytest.param("beam", signal.SIGTERM, True, marks=pytest.mark.long),
        pytest.param("local", signal.SIGTERM, True, marks=pytest.mark.faults),
        pytest.param(
            *("beam", signal.SIGINT, False),
            marks=[pytest.mark.faults, pytest.mark.cold],
        ),
    ],
)
def test_interrupted_run_ends_its_processes_and_says_so(small, sig, runner, warm):
    with small.held("Transform"):
        arguments = ("--no-cache", "--runner", runner)
        run = small.start(*arguments, node="ExampleGen", warm=warm)
        assert small.end(run, sig) == 130
        small.wait_until_nothing_is_left()
    assert small.last_run()["outcome"] == "interrupted"
    assert "running" not in small.states().values()


@pytest.mark.long
def test_database_that_was_removed_is_named_and_the_model_that_serves_is_compared(
    killed,
):
    """Two executions of one number would share a folder."""
    workspace, _ = killed
    root = workspace.folder / "runs"
    (root / "metadata.sqlite").unlink()
    refused = workspace.run("--to", "ExampleGen", expect=2)
    assert (
        "has outputs of earlier runs, but ML Metadata has no record" in refused.stderr
    )
    assert f"move {root}/small away" in refused.stderr
    shutil.move(root, root.with_name("old"))
    (version,) = workspace.serving()
    done = workspace.run("--to", "EvaluationGate")
    assert f"no record of {workspace.folder}/serving/small/{version}" in done.stderr
    checks = workspace.last_run()["summary"]["bounds"]
    assert [c["received"] for c in checks if c["bound"] == "may_drop"] != [None]


@pytest.mark.parametrize(
    ("runner", "sig"),
    [
        pytest.param("local", signal.SIGTERM, marks=pytest.mark.faults),
        pytest.param("beam", signal.SIGINT, marks=pytest.mark.faults),
    ],
)
def test_training_saves_where_it_is_before_an_interrupt_ends_it(small, runner, sig):
    """No checkpoint but that one: the next run goes on at the very step."""
    training = (
        *("--runner", runner, "--to", "Trainer", "--set", "trainer.epochs=15"),
        *("--set", f"trainer.seed={int(sig)}", "--set", "trainer.checkpoint.every=1h"),
    )
    with small.held("Trainer"):
        run = small.start(*training, node="Trainer")
        runs = small.folder / "runs" / ".strategos" / "runs"
        events = max(runs.iterdir()) / "events.jsonl"  # of the run that is on
        small.wait_for(lambda: "epoch 2/15" in events.read_text(), seconds=180)
        assert small.end(run, sig) == 130
        small.wait_until_nothing_is_left()
    shown = small.last_run()
    assert (shown["outcome"], shown["failed_node"]) == ("interrupted", "Trainer")
    assert "resuming at step" in small.run(*training).stderr
