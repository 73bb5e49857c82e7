"""A training that was finished when its run died, before ML Metadata had the model."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import numpy as np
import pytest

from strategos.components.trainer.operation import Operation

CHECKPOINTS = "trainer.checkpoint.every=20 steps"
SHORT = "trainer.epochs=3"
TAKEN = "taking the model that an interrupted run had finished"


@pytest.fixture(scope="module")
def undisturbed(digits):
    """The weights of a training that nothing disturbs, of a root of its own."""
    other = digits.folder / "undisturbed"
    digits.run("--to", "Trainer", "--set", f"run.root={other}", "--set", SHORT)
    return weights(other)


def weights(root):
    """The weights of the newest Model under `root`, by name."""
    import tensorflow as tf

    models = (root / "digits" / "Trainer" / "model").iterdir()
    newest = max(models, key=lambda path: int(path.name))
    reader = tf.train.load_checkpoint(f"{newest}/Format-Weights/weights")
    names = reader.get_variable_to_shape_map()
    return {n: reader.get_tensor(n) for n in names if "OBJECT_GRAPH" not in n}


def children(pid):
    """Processes that `pid` has started, theirs too."""
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in task.read_text().split():
            found += [int(child), *children(child)]
    return found


def launching(process, program):
    """The process that will publish what the Trainer makes."""
    if program is None:
        return process.pid
    (found,) = (
        pid
        for pid in children(process.pid)
        if program in Path(f"/proc/{pid}/cmdline").read_text()
    )
    return found


def kill_when_trained(workspace, process, pid):
    """Stops `pid` so that it cannot publish; kills it once the model is whole."""
    checkpoints = workspace.folder / "runs" / "digits" / "Trainer" / "checkpoints"
    workspace.wait_for(lambda: any(checkpoints.glob("*/step-*")), seconds=180)
    os.kill(pid, signal.SIGSTOP)
    workspace.wait_for(lambda: any(checkpoints.glob("*/finished.json")), seconds=180)
    os.kill(pid, signal.SIGKILL)
    workspace.end(process, signal.SIGKILL)
    workspace.wait_until_nothing_is_left()


@pytest.mark.parametrize(
    ("runner", "program"),
    [("local", None), ("beam", "strategos.pipeline.runners.beam_process")],
)
def test_finished_training_of_a_killed_run_is_published_by_the_next(
    digits, undisturbed, runner, program
):
    arguments = ("--to", "Trainer", "--runner", runner)
    arguments += ("--set", CHECKPOINTS, "--set", SHORT)
    process = digits.start(*arguments, "--no-cache", node="Trainer")
    kill_when_trained(digits, process, launching(process, program))
    assert digits.states()["Trainer"] == "interrupted"
    done = digits.run(*arguments)
    assert TAKEN in done.stderr and "epoch" not in done.stderr
    assert digits.states()["Trainer"] == "complete"
    assert digits.last_run()["trainer"]["history"]
    np.testing.assert_equal(weights(digits.folder / "runs"), undisturbed)
    left = digits.folder / "runs" / "digits" / "Trainer" / "checkpoints"
    assert not any(left.glob("*"))
    digits.run(*arguments, "--no-cache")  # there is none to be taken any more
    assert digits.last_run()["trainer"]["examples_per_second"] > 0
    events = max((digits.folder / "runs" / ".strategos" / "runs").iterdir())
    assert TAKEN not in (events / "events.jsonl").read_text()


@pytest.mark.faults
def test_finished_training_is_taken_by_tfx_too(digits, undisturbed):
    root = digits.folder / "by-tfx"
    sets = (f"run.root={root}", SHORT)
    # TFX's own runner does not hand on how to train: it would save every 30 s.
    often = Operation(checkpoint_every="20 steps").to_environment()
    process = subprocess.Popen(
        digits.command_of_tfx(*sets),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=digits.environment() | often,
    )
    checkpoints = root / "digits" / "Trainer" / "checkpoints"
    digits.wait_for(lambda: any(checkpoints.glob("*/step-*")), seconds=300)
    process.send_signal(signal.SIGSTOP)
    digits.wait_for(lambda: any(checkpoints.glob("*/finished.json")), seconds=180)
    digits.end(process, signal.SIGKILL)
    digits.run_by_tfx(*sets)
    models = (root / "digits" / "Trainer" / "model").iterdir()
    killed, taken = sorted(models, key=lambda path: int(path.name))
    # With its times: a training of its own would have others.
    facts = (taken / "trainer.json").read_bytes()
    assert facts == (killed / "trainer.json").read_bytes()
    np.testing.assert_equal(weights(root), undisturbed)
    assert not any(checkpoints.glob("*"))
