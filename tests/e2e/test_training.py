"""Training through the whole pipeline: cached, resumed, started anew."""

from __future__ import annotations

import signal

import pytest

pytestmark = pytest.mark.long

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


READS = """

scale = pathlib.Path(__file__).with_name(".".join(["scale", "dat"])).read_text()
"""


@pytest.mark.faults
def test_killed_training_starts_anew_if_a_file_that_it_used_has_changed(small):
    model, scale = small.folder / "model.py", small.folder / "scale.dat"
    scale.write_text("1")
    model.write_text(model.read_text() + READS)
    assert interrupt(small, signal.SIGKILL) == -signal.SIGKILL
    scale.write_text("2")
    done = small.run(*LONG)
    assert "resuming at step" not in done.stderr
    assert "Trainer runs again, because what its code uses has changed: scale.dat" in (
        " ".join(done.stderr.split())
    )


DRAWN = """
import numpy as np
import tensorflow as tf

def build_model(context):
    x = tf.keras.Input((1,), name="x")
    drawn = np.random.default_rng().normal(size=(1, 32)).astype("float32")
    features = tf.sin(tf.matmul(x, drawn))
    model = tf.keras.Model([x], tf.keras.layers.Dense(1, "sigmoid")(features))
    model.compile("adam", "binary_crossentropy")
    return model
"""


def test_a_model_that_the_export_builds_with_other_constants_is_not_pushed(
    make_small, tmp_path
):
    small = make_small(tmp_path)
    (small.folder / "model.py").write_text(DRAWN)
    done = small.run(expect=1)
    assert "does not answer as the trained model" in done.stderr
    assert "np.random.default_rng()" in done.stdout
    assert not (small.folder / "serving").exists()
    assert small.last_run()["failed_node"] == "Trainer"
