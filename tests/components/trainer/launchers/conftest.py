"""Launchers that submit jobs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from server import running
from slurm import Slurm

from strategos.components.trainer.launchers import launch
from strategos.components.trainer.launchers.jobs.attempt import Attempts
from strategos.components.trainer.operation import Operation
from strategos.components.trainer.spec import WorkerSpec

EPOCHS = 4  # of `undisturbed`
_LAUNCH = """
import json, sys
from strategos.components import events, worker_process
from strategos.components.errors import UserError
from strategos.components.trainer.launchers import launch
from strategos.components.trainer.operation import Operation
from strategos.components.trainer.spec import WorkerSpec

spec, operation, sink = map(json.loads, sys.argv[1:])
events.open_sink(sink, node="Trainer")
try:
    facts = launch(WorkerSpec.from_json(spec), Operation.from_json(operation))
except UserError as error:
    print(f"ERROR {error}", file=sys.stderr)
    worker_process.leave(1)
print(json.dumps(facts))
worker_process.leave(0)
"""


class Launcher:
    """A process that trains by a launcher that submits jobs.

    Args:
      start: Starts Python: `start(code, *words, stdout=…, stderr=…)`.
      name: Of the launcher.
      job: The settings of its jobs.
    """

    def __init__(self, start, name, job, folder, spec, **operation):
        self.folder, self.log = folder, folder / "launcher.log"
        operation = {
            "launcher": name,
            "checkpoint_every": "5 steps",
            "start_timeout": 1200.0,
            "stall_timeout": 1200.0,  # trainings that wait are no hanging ones
            "job": job,
            **operation,
        }
        self._given = (spec.to_json(), operation, str(folder / "events"))
        self._start = start
        self.process = None

    def start(self):
        words = map(json.dumps, self._given)
        with self.log.open("a") as log:
            self.process = self._start(_LAUNCH, *words, stdout=log, stderr=log)
        return self

    def wait_for(self, look, seconds=400):
        """Waits for `look()`, or for a text in the log, while the launcher lives."""
        until = time.monotonic() + seconds
        while not (look() if callable(look) else look in self.log.read_text()):
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < until, self.log.read_text()
            time.sleep(0.2)

    def kill(self, sig=signal.SIGKILL):
        self.process.send_signal(sig)
        return self.process.wait(60)

    def facts(self):
        assert self.process.wait(500) == 0, self.log.read_text()
        return json.loads(self.log.read_text().splitlines()[-1])

    def error(self):
        assert self.process.wait(500) == 1, self.log.read_text()
        return self.log.read_text().partition("ERROR ")[2]


@pytest.fixture(scope="module")
def slurm(free_ports):
    """A real Slurm with the nodes n1 and n2."""
    with running(Slurm(free_ports(3))) as found:
        yield found


@pytest.fixture(scope="module")
def launcher(slurm, make_launcher):
    """A launcher that is not started yet: `launcher(spec, settings, **operation)`."""

    def start(code, *words, **streams):
        env = {**os.environ, "SLURM_CONF": slurm.address}
        return subprocess.Popen(
            [sys.executable, "-c", code, *words], env=env, **streams
        )

    def make(spec, settings=None, **operation):
        job = {
            "partition": None,
            "account": None,
            "time_limit": None,
            "pending_timeout": 300.0,
            "options": ["--cpus-per-task=1"],
            **(settings or {}),
        }
        return make_launcher(start, "slurm", job, spec, **operation)

    return make


@pytest.fixture(scope="module")
def make_launcher():
    """Makes a `Launcher`: `make_launcher(start, name, job, spec, **operation)`."""
    made = []

    def make(start, name, job, spec, **operation):
        folder = Path(spec.checkpoint_dir).parent  # one log for those of one training
        made.append(Launcher(start, name, job, folder, spec, **operation))
        return made[-1]

    yield make
    for each in made:
        if each.process and each.process.poll() is None:
            each.kill(signal.SIGTERM)


@pytest.fixture(scope="module")
def undisturbed(make_spec):
    """The weights and the loss by epoch of one device."""
    spec = make_spec(distribution={"strategy": "one_device"}, epochs=EPOCHS)
    history = launch(spec, Operation())["history"]
    return weights(spec), history


@pytest.fixture(scope="module")
def assert_trained(undisturbed):
    """Checks that a training came to the same: `assert_trained(spec, facts)`."""
    expected, history = undisturbed

    def check(spec, facts, restarts=0):
        found = weights(spec)
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            np.testing.assert_allclose(found[name], value, atol=1e-5, err_msg=name)
        for metric, values in history.items():
            assert facts["history"][metric] == pytest.approx(values, abs=1e-5)
        assert facts["restarts"] == restarts
        left = {path.name for path in Path(spec.model_dir).iterdir()}
        assert left >= {"Format-Serving", "Format-Weights", "trainer.json"}
        assert not Path(spec.checkpoint_dir, "jobs").exists()

    return check


def weights(spec):
    import tensorflow as tf

    reader = tf.train.load_checkpoint(f"{spec.model_dir}/Format-Weights/weights")
    names = reader.get_variable_to_shape_map()
    return {n: reader.get_tensor(n) for n in sorted(names) if "VARIABLE_VALUE" in n}


@pytest.fixture
def attempts(tmp_path):
    """Makes the attempts of a training: `attempts(**distribution)`."""

    def make(min_workers=None, **distribution):
        spec = WorkerSpec(
            folder="code",
            module="model",
            label="late",
            train_files=(),
            eval_files=(),
            transform_graph="graph",
            schema_file="schema",
            model_dir="model",
            log_dir="log",
            checkpoint_dir=str(tmp_path / "checkpoints" / "key"),
            batch_size=1,
            epochs=1,
            seed=1,
            distribution=distribution,
        )
        return Attempts(spec, Operation(min_workers=min_workers))

    return make
