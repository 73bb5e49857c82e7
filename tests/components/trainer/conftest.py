"""Trainings start as forks of one warm process of each of pytest's workers."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session")
def script(warm_tensorflow):
    """Starts code that uses TensorFlow: `script(code, *arguments, **environ)`."""
    return warm_tensorflow.script


@pytest.fixture(autouse=True, scope="module")
def warm_starts(warm_processes) -> None:
    """Hosts of gangs start warm; a file that tests their start overrides this."""
