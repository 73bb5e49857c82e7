"""Trainings start as forks of a warm process, one per worker of pytest."""

from __future__ import annotations

from pathlib import Path

import pytest

from strategos.components import worker_process
from strategos.components.processes import Grace
from strategos.components.trainer.compat import autograph
from strategos.components.trainer.operation import Operation

TESTS = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def script(warm_tensorflow):
    """Starts code that uses TensorFlow: `script(code, *arguments, **environ)`."""
    return warm_tensorflow.script


@pytest.fixture(scope="session")
def answers(warm_tensorflow):
    """What several such processes print, of which none ends before the others."""
    return warm_tensorflow.answers


@pytest.fixture(autouse=True, scope="module")
def warm_starts(warm_processes) -> None:
    """Hosts of gangs start warm; a file that tests their start overrides this."""


@pytest.fixture(autouse=True, scope="session")
def as_in_workers() -> None:
    """Makes tracing in this process as fast as in processes that train."""
    autograph.convert_user_code_only()


@pytest.fixture(scope="session")
def train_only():
    """Trains as `launch(spec, operation)` does, without evaluation and export.

    With `EXPORT="1"`, only the export's rehearsal beside the training is left out; with
    `EXPORT="measured"`, the SavedModel, too.
    """

    def train(spec, operation=None, **environ):
        operation = operation or Operation()
        return worker_process.run(
            "gang_only",
            {"spec": spec.to_json(), "operation": operation.to_json()},
            name="trainer",
            env={**worker_process.TENSORFLOW, "PYTHONPATH": str(TESTS), **environ},
            grace=Grace.GANG,
        )

    return train
