"""Gangs that lose a task at a moment that matters, with real TensorFlow."""

from __future__ import annotations

import re

import pytest

from strategos.components.trainer.operation import Operation

OPERATION = Operation(checkpoint_every="7 steps", stall_timeout=20.0, max_restarts=5)
# Task, step and what happens; and the step at which training goes on.
FAULTS = (
    ("chief-0", 3, "kill"),  # before the first checkpoint: at 0
    ("chief-0", 9, "kill"),  # at 7
    ("chief-0", 9, "kill_in_save"),  # of step 14: at 7
    ("worker-0", 16, "stop"),  # at 14
    ("chief-0", 23, "stop"),  # at 21
)


def test_training_ends_as_if_nothing_had_happened_when_a_worker_is_killed(
    train, undisturbed
):
    train(("worker-0", 16, "kill")).assert_equal_to(undisturbed)


@pytest.mark.faults
def test_training_ends_as_if_nothing_had_happened_when_tasks_are_killed_and_stop(
    train, undisturbed, capfd
):
    outcome = train(*FAULTS, operation=OPERATION)
    outcome.assert_equal_to(undisturbed, restarts=(5,))
    assert (outcome.marks / "in-save").exists()
    log = capfd.readouterr().err
    resumed = re.findall(r"\[chief-0\] .*resuming at step (\d+)", log)
    # The first checkpoint, saved beside training, may come too late for the next kill.
    assert resumed in (["7", "7", "14", "21"], ["7", "14", "21"])
