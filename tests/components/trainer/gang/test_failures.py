"""Gangs that cannot go on, with real TensorFlow: each reports why, and leaves nothing.

The process that exports is started again, like tasks.
"""

from __future__ import annotations

import dataclasses
import os
import subprocess
import time
from pathlib import Path

import pytest

from strategos.components.trainer.launchers import launch
from strategos.components.trainer.operation import Operation

pytestmark = pytest.mark.long

OPERATION = Operation(checkpoint_every="7 steps", stall_timeout=30.0)


@pytest.fixture
def write_faulty(workload):
    """Adds lines to the workload's module `faulty`: `write_faulty(name, lines)`."""
    faulty = Path(workload.folder, "faulty.py").read_text()
    return lambda name, lines: workload.write_module(name, faulty + lines)


@pytest.mark.faults
def test_restarts_used_up_are_a_clear_error_within_a_minute(train):
    operation = dataclasses.replace(OPERATION, max_restarts=1)
    faults = [("worker-0", 3, "kill")] * 2
    outcome = train(*faults, operation=operation)
    assert "Worker-0 was killed by SIGKILL. The gang was restarted 1" in outcome.error
    assert "memory" in outcome.error
    assert outcome.seconds < 60
    outcome.assert_nothing_left()


# To the end of a module: what befalls the process that exports, one after the other.
EXPORT = """
trained = build_model

class Trained(tf.keras.callbacks.Callback):
    def __init__(self, hyperparameters):
        super().__init__()
        self.mark = Path(hyperparameters["marks"], "trained")

    def on_train_end(self, logs=None):
        self.mark.touch()

def callbacks(context):
    return [Trained(context.hyperparameters)]

def build_model(context):
    marks = Path(context.hyperparameters["marks"])
    if name == "host" and (marks / "trained").exists():
        model = Path(context.hyperparameters["model"])
        if not (marks / "killed").exists():  # between the two renames that publish
            (marks / "killed").touch()
            for folder in ("Format-Weights", ".tmp-export/Format-Serving"):
                (model / folder).mkdir(parents=True)
                (model / folder / "weights.of-an-earlier-attempt").touch()
            (model / "trainer.json").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        if not (marks / "hung").exists():
            (marks / "hung").touch()
            time.sleep(1000)
    return trained(context)
"""


@pytest.mark.faults
def test_an_export_that_is_killed_while_it_publishes_or_hangs_is_done_again(
    train, write_faulty, capfd
):
    write_faulty("exporting", EXPORT)
    operation = dataclasses.replace(OPERATION, stall_timeout=10.0, max_restarts=2)
    outcome = train(module="exporting", operation=operation, by=launch)
    log = capfd.readouterr().err
    assert "the export was killed by SIGKILL: restarting the gang (1 of 2)" in log
    assert "the export did no step for 10 s: restarting the gang (2 of 2)" in log
    assert "exporting.py" in log  # in the dump of its stack
    assert (outcome.error, outcome.facts["restarts"]) == ("", 0)
    assert "accuracy" in outcome.facts["evaluation"]
    outcome.assert_nothing_left()
    weights = outcome.folder / "Format-Weights"
    assert not list(weights.glob("*earlier*"))


@pytest.mark.faults
def test_an_export_that_hangs_ends_the_run_when_restarts_are_used_up(
    train, write_faulty
):
    hang = EXPORT.replace('(marks / "killed").exists()', "True").replace(
        '(marks / "hung").exists()', "False"
    )
    write_faulty("stuck", hang)
    operation = dataclasses.replace(OPERATION, stall_timeout=10.0, max_restarts=0)
    outcome = train(module="stuck", operation=operation, by=launch)
    assert outcome.error.startswith("The export did no step for 10 s. ")
    assert "trainer.distribution.stall_timeout" in outcome.error
    assert outcome.seconds < 60
    outcome.assert_nothing_left()


def test_an_exception_in_one_worker_is_reported_with_its_name_and_line(train):
    outcome = train(("worker-0", 5, "fail"))
    assert outcome.error.startswith("worker-0: training fails: ")
    assert "faulty.py:" in outcome.error and "ValueError: only here" in outcome.error
    assert "restarted" not in outcome.error
    outcome.assert_nothing_left()


@pytest.mark.faults
def test_a_killed_host_takes_its_tasks_along(train):
    outcome = train(("worker-0", 5, "kill_host"))
    assert "trainer process was killed (SIGKILL)" in outcome.error
    time.sleep(1)
    outcome.assert_nothing_left()


@pytest.mark.faults
def test_a_worker_that_never_gets_to_its_first_step_is_ended_and_dumped(
    train, write_faulty, capfd
):
    hang = "\nif name == 'worker-0':\n    time.sleep(1000)\n"
    write_faulty("hanging", hang)
    operation = dataclasses.replace(OPERATION, start_timeout=10.0, max_restarts=0)
    outcome = train(module="hanging", operation=operation)
    assert "orker-0 did no step for 10 s" in outcome.error
    assert "trainer.distribution.start_timeout" in outcome.error
    assert "hanging.py" in capfd.readouterr().err  # in the dump of its stack
    assert outcome.seconds < 60


@pytest.mark.faults
@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a file system: needs root")
def test_no_space_for_a_checkpoint_is_reported(train, tmp_path):
    full = tmp_path / "full"
    full.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", str(full)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("file systems cannot be mounted here")
    try:
        outcome = train(checkpoint_dir=str(full / "key"))
    finally:
        subprocess.run(["umount", str(full)], check=True)
    assert "no space left at" in outcome.error
    outcome.assert_nothing_left()
