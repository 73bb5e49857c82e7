"""Gangs that lose a process, with real TensorFlow: each recovers."""

from __future__ import annotations

import dataclasses
import os
import random

import numpy as np
import pytest

from strategos.components.trainer.operation import Operation

SERVERS = {"strategy": "parameter_server", "workers": 2, "parameter_servers": 1}
OPERATION = Operation(checkpoint_every="7 steps", stall_timeout=30.0)
IMPATIENT = dataclasses.replace(OPERATION, stall_timeout=12.0)
SEEDS = int(os.environ.get("FAULT_SEEDS", "3"))  # more of them for a soak


@pytest.fixture(scope="module")
def undisturbed(train):
    return train(distribution={"strategy": "one_device"})


def assert_equal_to(undisturbed, outcome, restarts=(1,)):
    """Finished after one restart, with the weights of one device undisturbed."""
    assert outcome.error == ""
    assert outcome.facts["restarts"] in restarts
    assert (outcome.marks / "happened").exists()
    assert outcome.facts["steps"] == undisturbed.facts["steps"]
    theirs = undisturbed.weights
    assert outcome.weights.keys() == theirs.keys()
    for variable, value in outcome.weights.items():
        np.testing.assert_allclose(value, theirs[variable], atol=1e-5)
    for metric, values in undisturbed.facts["history"].items():
        np.testing.assert_allclose(outcome.facts["history"][metric], values, atol=1e-5)
    outcome.assert_nothing_left()


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
    assert_equal_to(undisturbed, outcome)
    if fault[2] == "kill_in_save":
        assert (outcome.marks / "in-save").exists()


@pytest.mark.faults
@pytest.mark.parametrize("seed", range(SEEDS))
def test_training_ends_as_if_nothing_had_happened_at_a_random_moment(
    train, undisturbed, seed
):
    chance = random.Random(seed)
    task = chance.choice(["chief-0", "worker-0"])
    outcome = train((task, 2, f"kill_later {chance.uniform(0, 1.2):.3f}"))
    # The fault may come after the end of that task.
    assert_equal_to(undisturbed, outcome, restarts=(0, 1))


@pytest.fixture(scope="module")
def undisturbed_servers(train):
    return train(distribution=SERVERS)


@pytest.mark.faults
@pytest.mark.parametrize("task", ["chief-0", "worker-1", "ps-0"])
def test_training_with_parameter_servers_survives_the_loss_of(
    train, undisturbed_servers, task
):
    outcome = train(("chief-0", 16, f"kill {task}"), SERVERS)
    assert (outcome.error, outcome.facts["restarts"]) == ("", 1)
    accuracy = outcome.facts["history"]["val_accuracy"][-1]
    expected = undisturbed_servers.facts["history"]["val_accuracy"][-1]
    assert accuracy == pytest.approx(expected, abs=0.1)
    outcome.assert_nothing_left()
