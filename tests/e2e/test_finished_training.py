"""A training that was finished when its run died, before ML Metadata had the model."""

from __future__ import annotations

import os
import signal

import numpy as np
import pytest

from strategos.components.trainer.operation import Operation

CHECKPOINTS = "trainer.checkpoint.every=1 step"
SEED = "trainer.seed=1"
TAKEN = "taking the model that an interrupted run had finished"


def weights(root):
    """The weights of the newest Model under `root`, by name."""
    import tensorflow as tf

    models = (root / "small" / "Trainer" / "model").iterdir()
    newest = max(models, key=lambda path: int(path.name))
    reader = tf.train.load_checkpoint(f"{newest}/Format-Weights/weights")
    names = reader.get_variable_to_shape_map()
    return {n: reader.get_tensor(n) for n in names if "OBJECT_GRAPH" not in n}


def wait_for_checkpoint(workspace, checkpoints):
    workspace.wait_for(lambda: any(checkpoints.glob("*/step-*")), seconds=300)


def kill_when_trained(workspace, checkpoints, process, publishing):
    """Kills a run whose publishing process is stopped, once its model is whole."""
    workspace.wait_for(lambda: any(checkpoints.glob("*/finished.json")), seconds=180)
    for pid in {publishing, process.pid}:
        os.kill(pid, signal.SIGKILL)
    process.wait(60)
    workspace.wait_until_nothing_is_left()


@pytest.fixture(scope="module")
def undisturbed(small):
    """The weights that these trainings have if nothing stops them."""
    small.run("--to", "Trainer", "--set", SEED)
    return weights(small.folder / "runs")


@pytest.mark.faults
@pytest.mark.parametrize(
    ("runner", "program"),
    [("local", None), ("beam", "beam_process")],
)
def test_finished_training_of_a_killed_run_is_published_by_the_next(
    small, undisturbed, runner, program
):
    arguments = ("--to", "Trainer", "--runner", runner, "--set", CHECKPOINTS)
    arguments += ("--set", SEED, "--set", f"trainer.hyperparameters.unused={runner}")
    checkpoints = small.folder / "runs" / "small" / "Trainer" / "checkpoints"
    with small.held("Trainer"):
        process = small.start(*arguments, node="Trainer")
        wait_for_checkpoint(small, checkpoints)
        publishing = small.process(program) if program else process.pid
        os.kill(publishing, signal.SIGSTOP)
    kill_when_trained(small, checkpoints, process, publishing)
    assert small.states()["Trainer"] == "interrupted"
    done = small.run(*arguments)
    assert TAKEN in done.stderr and "epoch" not in done.stderr
    assert small.states()["Trainer"] == "complete"
    assert small.last_run()["trainer"]["history"]
    assert not any(checkpoints.glob("*"))
    np.testing.assert_equal(weights(small.folder / "runs"), undisturbed)


@pytest.mark.faults
def test_finished_training_is_taken_by_tfx_too(small, undisturbed):
    root = small.folder / "by-tfx"
    sets = (f"run.root={root}", SEED)
    # TFX's own runner does not hand on how to train: it would save every 30 s.
    often = Operation(checkpoint_every="1 step").to_environment()
    checkpoints = root / "small" / "Trainer" / "checkpoints"
    with small.held("Trainer"):
        process = small.start_by_tfx(*sets, **often)
        wait_for_checkpoint(small, checkpoints)
        os.kill(process.pid, signal.SIGSTOP)
    kill_when_trained(small, checkpoints, process, process.pid)
    small.run_by_tfx(*sets)
    models = (root / "small" / "Trainer" / "model").iterdir()
    killed, taken = sorted(models, key=lambda path: int(path.name))
    # With its times: a training of its own would have others.
    facts = (taken / "trainer.json").read_bytes()
    assert facts == (killed / "trainer.json").read_bytes()
    np.testing.assert_equal(weights(root), undisturbed)
    assert not any(checkpoints.glob("*"))
