"""Training through the whole pipeline: cached, gone on with, started anew."""

from __future__ import annotations

import signal

import pytest

STEPS_PER_EPOCH = 46  # of the digits, at the batch of their YAML
EPOCHS = 20  # enough to be ended in the middle of
LONG = ("--to", "Trainer", "--set", f"trainer.epochs={EPOCHS}")
SAVING = ("--set", "trainer.checkpoint.every=20 steps")


@pytest.fixture(scope="module")
def trained(digits):
    """The digits, trained for one epoch."""
    digits.run("--to", "Trainer", "--set", "trainer.epochs=1")
    return digits


def interrupt(workspace, sig, *arguments):
    """Starts a long training and ends it by `sig` once there is a checkpoint."""
    run = workspace.start(*LONG, *SAVING, *arguments, node="Trainer")
    checkpoints = workspace.folder / "runs" / "digits" / "Trainer" / "checkpoints"
    complete = "*/*/state.json"
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


def test_training_that_was_killed_goes_on_in_the_next_run_on_other_devices(trained):
    assert interrupt(trained, signal.SIGKILL) == -signal.SIGKILL
    one_device = ("--set", "trainer.distribution.strategy=one_device")
    assert "resuming at step" in trained.run(*LONG, *one_device).stderr
    facts = trained.last_run()["trainer"]
    assert facts["steps"] == EPOCHS * STEPS_PER_EPOCH
    assert len(facts["history"]["loss"]) == EPOCHS
    left = trained.folder / "runs" / "digits" / "Trainer" / "checkpoints"
    assert not any(left.glob("*"))


@pytest.mark.faults
def test_training_starts_anew_where_that_is_asked_for(trained):
    other = ("--set", "trainer.seed=2")
    assert interrupt(trained, signal.SIGTERM, *other) == 130
    done = trained.run(*LONG, *other, "--from-scratch")
    assert "resuming at step" not in done.stderr
    assert trained.last_run()["trainer"]["steps"] == EPOCHS * STEPS_PER_EPOCH


def test_training_starts_from_the_newest_pushed_model_where_there_is_one(trained):
    latest = ("--set", "trainer.warm_start=latest", "--set", "trainer.epochs=1")
    bounds = ("--set", "evaluator.bounds=null")
    done = trained.run(*latest, *bounds)
    assert "starts from fresh weights" in done.stderr
    first = trained.last_run()["trainer"]
    assert first["warm_start"] == "none"
    trained.run(*latest, *bounds)
    assert set(trained.states().values()) == {"cached"}  # it would start from itself
    trained.run(*latest, *bounds, "--set", "trainer.seed=2")
    second = trained.last_run()["trainer"]
    assert second["warm_start"].endswith("/Format-Weights")
    assert second["history"]["loss"][0] < 0.75 * first["history"]["loss"][0]
    trained.run(*latest, *bounds, "--set", "trainer.seed=2")
    assert set(trained.states().values()) == {"cached"}
