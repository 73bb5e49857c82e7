"""Gangs that lose workers for good, go on without them, and take them in again."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from strategos.components.trainer.operation import Operation

TWO = {"strategy": "multi_worker_mirrored", "workers": 2}
THREE = {"strategy": "multi_worker_mirrored", "workers": 3}
OPERATION = Operation(
    checkpoint_every="7 steps", stall_timeout=30.0, max_restarts=1, min_workers=1
)
# Slow enough for the gang to notice a checkpoint before the next one.
SLOW = """
class Slow(tf.keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        time.sleep(0.15)

at_once = callbacks

def callbacks(context):
    return [*at_once(context), Slow()]
"""
# A task of the whole gang that fails once cannot start again.
GONE = """
built = build_model

def build_model(context):
    failed = (Path(context.hyperparameters["marks"]) / "happened-0").exists()
    if failed and name == "TASK" and context.replicas == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return built(context)
"""
TERMINATED = """
class Terminated(tf.keras.callbacks.Callback):
    def __init__(self, context):
        super().__init__()
        self.seen = 0
        self.smaller = name == "chief-0" and context.replicas == 2

    def on_train_batch_end(self, batch, logs=None):
        self.seen += 1
        if self.seen == 3 and self.smaller:
            os.kill(os.getppid(), signal.SIGTERM)

undisturbed = callbacks

def callbacks(context):
    return [*undisturbed(context), Terminated(context)]
"""


@pytest.fixture
def write(workload):
    """Writes a module of the workload: `write(name, lines after those of faulty)`."""
    faulty = Path(workload.folder, "faulty.py").read_text()
    return lambda name, lines: workload.write_module(name, faulty + lines)


def _said(log: str) -> list[str]:
    """What the log says about lost and returned workers, in order."""
    return re.findall(r"warning: (\S+ (?:is lost|returns).*)", log)


@pytest.mark.faults
def test_a_gang_goes_on_without_a_lost_worker_and_takes_it_in_at_a_checkpoint(
    train, undisturbed, write, capfd
):
    write("back", SLOW)
    twice = [("worker-0", 9, "kill")] * 2
    outcome = train(*twice, module="back", distribution=TWO, operation=OPERATION)
    outcome.assert_equal_to(undisturbed, restarts=(3,), faults=2)
    lost, back = _said(capfd.readouterr().err)
    assert lost == (
        "worker-0 is lost (worker-0 was killed by SIGKILL, again without progress): 1 "
        "of 2 workers go on from the last checkpoint"
    )
    assert re.fullmatch(r"worker-0 returns: 2 of 2 workers go on from step \d+", back)
    assert outcome.facts["workers"] == outcome.facts["replicas"] == 2
    assert outcome.facts["reason"].endswith("; trained by 2, 1 and 2 workers in turn")


@pytest.mark.faults
@pytest.mark.parametrize("task", ["chief-0", "worker-1"])
def test_two_of_three_workers_train_to_the_end(train, undisturbed, write, capfd, task):
    write("gone", SLOW + GONE.replace("TASK", task))
    fault = task, 9, "kill"
    outcome = train(fault, module="gone", distribution=THREE, operation=OPERATION)
    said = _said(capfd.readouterr().err)
    assert said[0].startswith(f"{task} is lost (")
    assert all(text.startswith(task) for text in said)
    # Each try costs two restarts.
    tries = sum("returns" in text for text in said)
    assert tries >= 1 and len(said) == 2 * tries + 1
    outcome.assert_equal_to(undisturbed, restarts=(2 + 2 * tries,), faults=1)
    assert outcome.facts["workers"] == outcome.facts["replicas"] == 2


@pytest.mark.faults
def test_a_smaller_gang_that_is_terminated_resumes_with_all_workers(
    train, undisturbed, write, capfd
):
    gone = GONE.replace("TASK", "worker-1")
    write("terminated", SLOW + gone + TERMINATED)
    fault = "worker-1", 5, "kill"  # before the first checkpoint
    first = train(fault, module="terminated", distribution=THREE, operation=OPERATION)
    assert "SIGTERM" in first.error
    assert "worker-1 is lost" in capfd.readouterr().err
    first.assert_nothing_left()
    second = train(  # without a fault: the machine is repaired
        module="terminated",
        distribution=THREE,
        checkpoint_dir=str(first.folder / "checkpoints"),
    )
    assert re.search(r"resuming at step [3-6]\b", capfd.readouterr().err)
    second.assert_equal_to(undisturbed, restarts=(0,))
