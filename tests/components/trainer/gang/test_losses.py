"""Gangs that lose a task at any moment, with real TensorFlow."""

from __future__ import annotations

import os
import random

import pytest

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
