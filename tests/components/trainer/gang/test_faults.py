"""Gangs that lose a task at a moment that matters, with real TensorFlow."""

from __future__ import annotations

import dataclasses

import pytest

from strategos.components.trainer.operation import Operation

OPERATION = Operation(checkpoint_every="7 steps", stall_timeout=30.0)
IMPATIENT = dataclasses.replace(OPERATION, stall_timeout=12.0)


FAULTS = {
    "a worker is killed": ("worker-0", 16, "kill"),
    "the chief is killed": ("chief-0", 16, "kill"),
    "the chief is killed before the first checkpoint": ("chief-0", 3, "kill"),
    "the chief is killed during a save": ("chief-0", 16, "kill_in_save"),
    "a worker stops": ("worker-0", 16, "stop"),
    "the chief stops": ("chief-0", 16, "stop"),
}


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(fault, id=name, marks=[pytest.mark.faults] if number else [])
        for number, (name, fault) in enumerate(FAULTS.items())
    ],
)
def test_training_ends_as_if_nothing_had_happened_when(train, undisturbed, fault):
    outcome = train(fault, operation=IMPATIENT if "stop" in fault else OPERATION)
    outcome.assert_equal_to(undisturbed)
    if fault[2] == "kill_in_save":
        assert (outcome.marks / "in-save").exists()
