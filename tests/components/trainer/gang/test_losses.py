"""Gangs that lose a task at any moment, or a parameter server, with real TensorFlow."""

from __future__ import annotations

import os
import random

import pytest

SERVERS = {"strategy": "parameter_server", "workers": 2, "parameter_servers": 1}
SEEDS = int(os.environ.get("FAULT_SEEDS", "3"))  # more of them for a soak


@pytest.mark.faults
@pytest.mark.parametrize("seed", range(SEEDS))
def test_training_ends_as_if_nothing_had_happened_at_a_random_moment(
    train, undisturbed, seed
):
    chance = random.Random(seed)
    task = chance.choice(["chief-0", "worker-0"])
    outcome = train((task, 2, f"kill_later {chance.uniform(0, 1.2):.3f}"))
    # The fault may come after the end of that task.
    outcome.assert_equal_to(undisturbed, restarts=(0, 1))


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
