"""Gangs that lose a process, with real TensorFlow: each recovers or reports why."""

from __future__ import annotations

import dataclasses
import os
import random
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from strategos.components.errors import UserError
from strategos.components.trainer.launchers import launch
from strategos.components.trainer.operation import Operation

# The user's module: applies `fault` to one task, once.
MODULE = """
import json, os, signal, threading, time
from pathlib import Path
import tensorflow as tf

task = json.loads(os.environ.get("TF_CONFIG", "{}")).get("task")
name = f"{task['type']}-{task['index']}" if task else "host"

def pid_of(target):
    # All tasks were forked by one process, in this order.
    cluster = json.loads(os.environ["TF_CONFIG"])["cluster"]
    tasks = [f"{kind}-{index}" for kind in ("chief", "worker", "ps")
             for index in range(len(cluster.get(kind, ())))]
    siblings = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(path.read_bytes().rpartition(b")")[2].split()[1])
        except OSError:
            continue
        if parent == os.getppid():
            siblings.append(int(path.parent.name))
    return sorted(siblings)[tasks.index(target)]

def build_model(context):
    marks = Path(context.hyperparameters["marks"])
    for pid in (os.getpid(), os.getppid()):
        (marks / f"pid-{pid}").touch()
    inputs = context.inputs()
    parts = [inputs["distance"], tf.cast(inputs["hour"], tf.float32) / 24]
    hidden = tf.keras.layers.Dense(4, "relu")(tf.keras.layers.Concatenate()(parts))
    hidden = context.dropout(0.2, seed=1)(hidden)
    model = tf.keras.Model(inputs, tf.keras.layers.Dense(1, "sigmoid")(hidden))
    model.compile(tf.keras.optimizers.Adam(1e-2), "binary_crossentropy",
                  metrics=["accuracy"])
    return model

class Fault(tf.keras.callbacks.Callback):
    def __init__(self, hyperparameters):
        super().__init__()
        self.task, self.step, self.do = hyperparameters["fault"]
        self.marker = Path(hyperparameters["marks"], "happened")
        self.checkpoints = Path(hyperparameters["checkpoints"])
        self.always = hyperparameters.get("always", False)
        self.seen = 0

    def on_train_batch_end(self, batch, logs=None):
        self.seen += 1
        if self.seen == self.step and self.task == name:
            if self.always or not self.marker.exists():
                self.marker.touch()
                do, _, target = self.do.partition(" ")
                getattr(self, do)(*filter(None, [target]))

    def kill(self, target=name):
        os.kill(pid_of(target), signal.SIGKILL)

    def kill_later(self, seconds):
        arguments = (os.getpid(), signal.SIGKILL)
        threading.Timer(float(seconds), os.kill, arguments).start()

    def stop(self):
        os.kill(os.getpid(), signal.SIGSTOP)

    def fail(self):
        raise ValueError("only here")

    def kill_host(self):
        os.kill(os.getppid(), signal.SIGKILL)

    def kill_in_save(self):
        threading.Thread(target=self.watch, daemon=True).start()

    def watch(self):
        before = set(self.checkpoints.glob("step-*"))
        while True:
            for folder in set(self.checkpoints.glob("step-*")) - before:
                if not (folder / "state.json").exists():
                    Path(self.marker.parent, "in-save").write_text(folder.name)
                    os.kill(os.getpid(), signal.SIGKILL)
                before.add(folder)
            time.sleep(0.0005)

def callbacks(context):
    return [Fault(context.hyperparameters)]
"""

GANG = {"strategy": "multi_worker_mirrored", "workers": 2}
SERVERS = {"strategy": "parameter_server", "workers": 2, "parameter_servers": 1}
OPERATION = Operation(checkpoint_every="7 steps", stall_timeout=30.0)
IMPATIENT = dataclasses.replace(OPERATION, stall_timeout=12.0)
NOWHERE = ("nobody", 0, "kill")
SEEDS = int(os.environ.get("FAULT_SEEDS", "3"))  # more of them for a soak


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
        return [pid for pid in pids if _is_alive(pid) and pid != os.getpid()]


def _is_alive(pid):
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(b")")[2].split()[0] != b"Z"


@pytest.fixture(scope="module")
def train(workload, make_spec, train_only, tmp_path_factory):
    """Trains a gang with a fault: `train(("worker-0", 13, "kill"))`."""
    workload.write_module("faulty", MODULE)

    def train(
        fault=NOWHERE, distribution=GANG, operation=OPERATION, by=train_only, **changes
    ):
        marks = tmp_path_factory.mktemp("marks")
        spec = make_spec(module="faulty", distribution=distribution, epochs=3)
        given = {"fault": fault, "marks": str(marks)}
        given |= {"checkpoints": spec.checkpoint_dir, "model": spec.model_dir}
        given |= changes.pop("hyperparameters", {})
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
    assert_nothing_left(outcome)


def assert_nothing_left(outcome):
    assert not outcome.processes
    # Checkpoints stay until the model is published, or for the next run.
    left = {path.name for path in outcome.folder.iterdir()} - {"log", "checkpoints"}
    if outcome.facts and "evaluation" in outcome.facts:
        assert left == {"Format-Serving", "Format-Weights", "trainer.json"}
    else:  # not even half of a model
        assert left == ({"Format-Weights"} if outcome.facts else set())


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
    assert_nothing_left(outcome)


@pytest.mark.faults
def test_restarts_used_up_are_a_clear_error_within_a_minute(train):
    operation = dataclasses.replace(OPERATION, max_restarts=1)
    always = {"always": True}
    outcome = train(
        ("worker-0", 3, "kill"), operation=operation, hyperparameters=always
    )
    assert "Worker-0 was killed by SIGKILL. The gang was restarted 1" in outcome.error
    assert "memory" in outcome.error
    assert outcome.seconds < 60
    assert_nothing_left(outcome)


# To the end of the module: what befalls the process that exports, one after the other.
EXPORT = """
trained = build_model

def build_model(context):
    if name == "host":
        marks = Path(context.hyperparameters["marks"])
        model = Path(context.hyperparameters["model"])
        if not (marks / "killed").exists():  # between the two renames that publish
            (marks / "killed").touch()
            for folder in ("Format-Weights", ".tmp-export/Format-Serving"):
                (model / folder).mkdir(parents=True)
                (model / folder / "weights.of-an-earlier-attempt").touch()
            (model / "trainer.json").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        if not (marks / "hung").exists():
            (marks / "hung").touch()
            time.sleep(1000)
    return trained(context)
"""


@pytest.mark.faults
def test_an_export_that_is_killed_while_it_publishes_or_hangs_is_done_again(
    train, workload, capfd
):
    workload.write_module("exporting", MODULE + EXPORT)
    operation = dataclasses.replace(OPERATION, stall_timeout=10.0, max_restarts=2)
    outcome = train(module="exporting", operation=operation, by=launch)
    log = capfd.readouterr().err
    assert "the export was killed by SIGKILL: restarting the gang (1 of 2)" in log
    assert "the export did no step for 10 s: restarting the gang (2 of 2)" in log
    assert "exporting.py" in log  # in the dump of its stack
    assert (outcome.error, outcome.facts["restarts"]) == ("", 0)
    assert "accuracy" in outcome.facts["evaluation"]
    assert_nothing_left(outcome)
    weights = outcome.folder / "Format-Weights"
    assert not list(weights.glob("*earlier*"))


@pytest.mark.faults
def test_an_export_that_hangs_ends_the_run_when_restarts_are_used_up(train, workload):
    hang = EXPORT.replace('(marks / "killed").exists()', "True").replace(
        '(marks / "hung").exists()', "False"
    )
    workload.write_module("stuck", MODULE + hang)
    operation = dataclasses.replace(OPERATION, stall_timeout=10.0, max_restarts=0)
    outcome = train(module="stuck", operation=operation, by=launch)
    assert outcome.error.startswith("The export did no step for 10 s. ")
    assert "trainer.distribution.stall_timeout" in outcome.error
    assert outcome.seconds < 60
    assert_nothing_left(outcome)


def test_an_exception_in_one_worker_is_reported_with_its_name_and_line(train):
    outcome = train(("worker-0", 5, "fail"))
    assert outcome.error.startswith("worker-0: training fails: ")
    assert "faulty.py:" in outcome.error and "ValueError: only here" in outcome.error
    assert "restarted" not in outcome.error
    assert_nothing_left(outcome)


@pytest.mark.faults
def test_a_killed_host_takes_its_tasks_along(train):
    outcome = train(("worker-0", 5, "kill_host"))
    assert "trainer process was killed (SIGKILL)" in outcome.error
    time.sleep(1)
    assert_nothing_left(outcome)


@pytest.mark.faults
def test_a_worker_that_never_gets_to_its_first_step_is_ended_and_dumped(
    train, workload, capfd
):
    hang = "\nif name == 'worker-0':\n    time.sleep(1000)\n"
    workload.write_module("hanging", MODULE + hang)
    operation = dataclasses.replace(OPERATION, start_timeout=10.0, max_restarts=0)
    outcome = train(module="hanging", operation=operation)
    assert "orker-0 did no step for 10 s" in outcome.error
    assert "trainer.distribution.start_timeout" in outcome.error
    assert "hanging.py" in capfd.readouterr().err  # in the dump of its stack
    assert outcome.seconds < 60


@pytest.mark.faults
@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a file system: needs root")
def test_no_space_for_a_checkpoint_is_reported(train, tmp_path):
    full = tmp_path / "full"
    full.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", str(full)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("file systems cannot be mounted here")
    try:
        outcome = train(checkpoint_dir=str(full / "key"))
    finally:
        subprocess.run(["umount", str(full)], check=True)
    assert "no space left at" in outcome.error
    assert_nothing_left(outcome)
