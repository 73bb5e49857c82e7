"""Training through the whole pipeline: cached, resumed, started anew."""

from __future__ import annotations

import signal

import pytest

EPOCHS = 20
LONG = ("--to", "Trainer", "--set", f"trainer.epochs={EPOCHS}")
SAVING = ("--set", "trainer.checkpoint.every=2 steps")


@pytest.fixture(scope="module")
def trained(small):
    """The small workload, trained for one epoch."""
    small.run("--to", "Trainer", "--set", "trainer.epochs=1")
    return small


@pytest.fixture(scope="module")
def steps(trained):
    """Steps of an epoch."""
    return trained.last_run()["trainer"]["steps"]


def interrupt(workspace, sig, *arguments):
    """Starts a long training and ends it by `sig` once there is a checkpoint."""
    checkpoints = workspace.folder / "runs" / "small" / "Trainer" / "checkpoints"
    complete = "*/*/state.json"
    with workspace.held("Trainer"):
        run = workspace.start(*LONG, *SAVING, *arguments, node="Trainer")
        workspace.wait_for(lambda: any(checkpoints.glob(complete)), seconds=180)
        code = workspace.end(run, sig)
        workspace.wait_until_nothing_is_left()
    return code


def test_how_training_is_run_leaves_it_cached(trained):
    settings = (
        "trainer.checkpoint={every: 1 step, keep: 1}",
        "trainer.distribution.stall_timeout=1m",
        "trainer.distribution.max_restarts=0",
    )
    sets = [word for setting in settings for word in ("--set", setting)]
    trained.run("--to", "Trainer", "--set", "trainer.epochs=1", *sets)
    assert set(trained.states().values()) == {"cached"}


def test_training_that_was_killed_goes_on_in_the_next_run_on_other_devices(
    trained, steps
):
    assert interrupt(trained, signal.SIGKILL) == -signal.SIGKILL
    one_device = ("--set", "trainer.distribution.strategy=one_device")
    assert "resuming at step" in trained.run(*LONG, *one_device).stderr
    facts = trained.last_run()["trainer"]
    assert facts["steps"] == EPOCHS * steps
    assert len(facts["history"]["loss"]) == EPOCHS
    left = trained.folder / "runs" / "small" / "Trainer" / "checkpoints"
    assert not any(left.glob("*"))


@pytest.mark.faults
def test_training_starts_anew_where_that_is_asked_for(small):
    other = ("--set", "trainer.seed=2")
    assert interrupt(small, signal.SIGTERM, *other) == 130
    done = small.run(*LONG, *other, "--from-scratch")
    assert "resuming at step" not in done.stderr
    assert len(small.last_run()["trainer"]["history"]["loss"]) == EPOCHS
