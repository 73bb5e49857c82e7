"""What tests of a gang ask of its processes, and gangs in which one goes wrong."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from strategos.components.errors import UserError
from strategos.components.trainer.operation import Operation

_GANG = {"strategy": "multi_worker_mirrored", "workers": 2}
_OPERATION = Operation(checkpoint_every="7 steps", stall_timeout=30.0)


def _is_running(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.fixture(scope="session")
def running() -> Callable[[int], bool]:
    """Whether a process runs, by its id: `running(pid)`."""
    return _is_running


@pytest.fixture(scope="session")
def wait_for() -> Callable[..., str]:
    """Waits for another process to write a file: `wait_for(path)`; returns its text."""

    def wait_for(path: Path, seconds: float = 10) -> str:
        until = time.monotonic() + seconds
        while not (path.exists() and path.read_text()):
            assert time.monotonic() < until, f"{path} was not written"
            time.sleep(0.01)
        return path.read_text()

    return wait_for


@dataclasses.dataclass
class Outcome:
    """The result of a training, and its leftovers."""

    facts: dict | None
    error: str
    seconds: float
    folder: Path
    marks: Path

    @property
    def weights(self):
        import tensorflow as tf

        path = f"{self.folder}/Format-Weights/weights"
        reader = tf.train.load_checkpoint(path)
        return {
            key: reader.get_tensor(key)
            for key in reader.get_variable_to_shape_map()
            if "OBJECT_GRAPH" not in key
        }

    @property
    def processes(self):
        pids = [int(path.name[4:]) for path in self.marks.glob("pid-*")]
        assert len(pids) >= 2
        return [pid for pid in pids if _is_running(pid) and pid != os.getpid()]

    def assert_equal_to(self, undisturbed, restarts=(1,), faults=None):
        """Finished after all faults, with the weights of one device undisturbed."""
        import numpy as np

        assert self.error == ""
        assert self.facts["restarts"] in restarts
        faults = max(restarts) if faults is None else faults
        assert len(list(self.marks.glob("happened-*"))) == faults
        assert self.facts["steps"] == undisturbed.facts["steps"]
        theirs = undisturbed.weights
        assert self.weights.keys() == theirs.keys()
        for variable, value in self.weights.items():
            np.testing.assert_allclose(value, theirs[variable], atol=1e-5)
        for metric, values in undisturbed.facts["history"].items():
            np.testing.assert_allclose(self.facts["history"][metric], values, atol=1e-5)
        self.assert_nothing_left()

    def assert_nothing_left(self):
        """No process of it runs, and not even half of a model is there."""
        assert not self.processes
        # Checkpoints stay until the model is published, or for the next run.
        left = {path.name for path in self.folder.iterdir()} - {"log", "checkpoints"}
        if self.facts and "evaluation" in self.facts:
            assert left == {"Format-Serving", "Format-Weights", "trainer.json"}
        else:  # not even half of a model
            assert left == ({"Format-Weights"} if self.facts else set())


@pytest.fixture(scope="module")
def train(make_spec, train_only, tmp_path_factory):
    """Trains a gang with faults: `train(("worker-0", 13, "kill"), …)`."""

    def train(
        *faults,
        distribution=_GANG,
        operation=_OPERATION,
        by=train_only,
        **changes,
    ):
        marks = tmp_path_factory.mktemp("marks")
        spec = make_spec(module="faulty", distribution=distribution, epochs=3)
        given = {"faults": faults, "marks": str(marks)}
        given |= {"checkpoints": spec.checkpoint_dir, "model": spec.model_dir}
        spec = dataclasses.replace(spec, hyperparameters=given, **changes)
        began, facts, error = time.monotonic(), None, ""
        try:
            facts = by(spec, operation)
        except UserError as raised:
            error = str(raised)
        seconds = time.monotonic() - began
        return Outcome(facts, error, seconds, Path(spec.model_dir), marks)

    return train


@pytest.fixture(scope="module")
def undisturbed(train):
    """The training of `train` on one device, without a fault."""
    return train(distribution={"strategy": "one_device"})
