"""Real clusters of a coordinator, workers and parameter servers on this machine."""

from __future__ import annotations

import dataclasses
import os
import re
import signal
from pathlib import Path

import pytest

from strategos.components.errors import UserError
from strategos.components.trainer import launchers
from strategos.components.trainer.operation import Operation

MODEL = """
import json
import os
import signal
import tensorflow as tf

def children():
    config = json.loads(os.environ.get("TF_CONFIG", "{}"))
    tasks = config.get("cluster", {"host": [1]}).values()
    with open(f"/proc/{os.getppid()}/task/{os.getppid()}/children") as file:
        return [int(pid) for pid in file.read().split()][-sum(map(len, tasks)):]

class Script(tf.keras.callbacks.Callback):
    '''Notes what it is told; signals a task in each epoch but the first.'''

    def __init__(self, plan):
        super().__init__()
        self.plan, self.told = plan, []

    def on_train_begin(self, logs=None):
        with open(self.plan["folder"] + "/pids", "a") as file:
            file.write(" ".join(map(str, children())) + " ")

    def on_train_batch_end(self, batch, logs=None):
        assert isinstance(logs["loss"], float)
        self.told.append(batch)
        number = self.model.epochs_done - 1
        if batch < 4 or not 0 <= number < len(self.plan.get("signals", [])):
            return
        try:
            done = f"{self.plan['folder']}/done-{number}"
            os.close(os.open(done, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return
        task, sign = self.plan["signals"][number]
        os.kill(children()[task], sign)

    def on_epoch_begin(self, epoch, logs=None):
        self.model.epochs_done = epoch

    def on_epoch_end(self, epoch, logs=None):
        print("told", self.told, "and", *sorted(logs), flush=True)
        self.told = []

def callbacks(context):
    return [Script(context.hyperparameters)]

def build_model(context):
    inputs = context.inputs()
    hours = tf.keras.layers.Embedding(24, 64, name="hours")(inputs["hour"])
    parts = [tf.keras.layers.Flatten()(hours), inputs["distance"], inputs["temp"] / 10]
    hidden = tf.keras.layers.Dense(8, "relu")(tf.keras.layers.Concatenate()(parts))
    hidden = context.dropout(0.1)(hidden)
    model = tf.keras.Model(inputs, tf.keras.layers.Dense(1, "sigmoid")(hidden))
    model.compile(
        tf.keras.optimizers.Adam(2e-2), tf.keras.losses.BinaryCrossentropy(),
        metrics=[tf.keras.metrics.AUC(name="auc"), "accuracy"],
        run_eagerly=context.hyperparameters.get("eager"))
    return model
"""

SPLIT = {"kind": "min_size", "min_shard_bytes": 1024, "max_shards": 2}
ONE_WORKER = {
    "strategy": "parameter_server",
    "workers": 1,
    "parameter_servers": 2,
    "parameter_server": {"variable_partitioner": SPLIT},
}
TWO_WORKERS = {"strategy": "parameter_server", "workers": 2, "parameter_servers": 1}
OFTEN = Operation(checkpoint_every="3 steps")
KILL, STOP, TERM = int(signal.SIGKILL), int(signal.SIGSTOP), int(signal.SIGTERM)
EPOCHS = 5
TOLERANCE = 0.05  # of a metric between 0 and 1, for asynchronous workers


@pytest.fixture(scope="module")
def make_spec(workload, spec_of, tmp_path_factory):
    """Makes the spec of this file's model: `make_spec(distribution, **plan)`."""
    workload.write_module("tables", MODEL)

    def make(distribution, **plan):
        folder = str(tmp_path_factory.mktemp("script"))
        return spec_of(
            workload,
            module="tables",
            label="late",
            batch_size=96,
            epochs=EPOCHS,
            distribution=distribution,
            hyperparameters={"folder": folder, **plan},
        )

    return make


@pytest.fixture(scope="module")
def on_one_device(make_spec, train_only):
    """The facts of a training on one device, and the spec."""
    spec = make_spec({"strategy": "one_device"})
    return train_only(spec), spec


def weights_of(spec):
    import tensorflow as tf

    reader = tf.train.load_checkpoint(f"{spec.model_dir}/Format-Weights/weights")
    names = reader.get_variable_to_shape_map()
    return {
        name: reader.get_tensor(name)
        for name in names
        if name.startswith("model/layer")
    }


def assert_same_digits(found, spec, expected, expected_spec):
    for name, values in expected["history"].items():
        assert found["history"][name] == pytest.approx(values, abs=1e-6), name
    weights, others = weights_of(spec), weights_of(expected_spec)
    assert weights.keys() == others.keys()
    for name, value in weights.items():
        assert value == pytest.approx(others[name], abs=1e-6), name


def assert_nobody_is_left(spec):
    pids = Path(spec.hyperparameters["folder"], "pids").read_text().split()
    assert pids
    for pid in pids:
        assert not Path("/proc", pid).exists()


@pytest.mark.long
def test_one_worker_gives_the_digits_of_one_device_with_tables_on_two_servers(
    make_spec, on_one_device, capfd
):
    """Also if the coordinator is killed in the second epoch."""
    spec = make_spec(ONE_WORKER, signals=[(0, KILL)])
    found = launchers.launch(spec, OFTEN)
    assert_same_digits(found, spec, *on_one_device)
    for name, value in found["evaluation"].items():  # of the whole model, exported
        assert value == pytest.approx(found["history"][f"val_{name}"][-1], abs=1e-6)
    shapes = {value.shape for value in weights_of(spec).values()}
    assert (24, 64) in shapes  # whole again
    assert (found["strategy"], found["workers"]) == ("parameter_server", 1)
    assert (found["restarts"], found["steps"]) == (1, EPOCHS * 11)
    log = capfd.readouterr().err
    assert "[chief-0] INFO:root:hours/embeddings is split: 12 rows on ps-0, 12" in log
    assert f"told {list(range(11))} and accuracy auc loss val_accuracy" in log
    assert_nobody_is_left(spec)


@pytest.mark.long
def test_several_steps_per_execution_end_with_the_epoch(
    make_spec, train_only, on_one_device
):
    spec = make_spec(ONE_WORKER)
    settings = dataclasses.replace(spec.settings, steps_per_execution=4)
    spec = dataclasses.replace(spec, settings=settings)
    assert_same_digits(train_only(spec), spec, *on_one_device)


def test_two_workers_reach_the_accuracy_of_one_device_and_are_evaluated_exactly(
    make_spec, on_one_device
):
    spec = make_spec(TWO_WORKERS)
    spec = dataclasses.replace(
        spec,
        settings=dataclasses.replace(
            spec.settings,
            callbacks={"early_stopping": {"monitor": "val_auc", "patience": EPOCHS}},
        ),
    )
    found = launchers.launch(spec, Operation())
    assert found["restarts"] == 0
    expected, _ = on_one_device
    best = max(found["history"]["val_auc"])
    assert best == pytest.approx(max(expected["history"]["val_auc"]), abs=TOLERANCE)
    # Early stopping saw the metric and restored exactly the best weights.
    assert found["evaluation"]["auc"] == pytest.approx(best, abs=1e-6)


@pytest.mark.long
def test_a_model_that_is_run_eagerly_is_rejected(make_spec, train_only):
    with pytest.raises(UserError, match="run_eagerly=True, but the workers"):
        train_only(make_spec(ONE_WORKER, eager=True))


@pytest.mark.faults
def test_killed_and_frozen_tasks_are_replaced(
    make_spec, train_only, on_one_device, capfd
):
    worker, frozen, server = (1, KILL), (2, STOP), (3, KILL)
    spec = make_spec(TWO_WORKERS, signals=[worker, server, frozen, (0, KILL)])
    operation = dataclasses.replace(OFTEN, stall_timeout=20.0, max_restarts=4)
    found = train_only(spec, operation)
    assert found["restarts"] == 4
    expected, _ = on_one_device
    assert found["steps"] == expected["steps"]
    for name in ("val_auc", "val_accuracy"):
        value = pytest.approx(expected["history"][name][-1], abs=TOLERANCE)
        assert found["history"][name][-1] == value
    assert_nobody_is_left(spec)
    log = capfd.readouterr().err
    named = re.findall(r"\[trainer\] (\S+) .*: restarting the gang", log)
    assert {"worker-0", "ps-0", "chief-0"} <= set(named)


@pytest.mark.faults
def test_a_checkpoint_of_parameter_servers_resumes_on_one_device(
    make_spec, train_only, on_one_device
):
    spec = make_spec(ONE_WORKER, signals=[(0, KILL)])
    with pytest.raises(Exception, match="hief-0 was killed by SIGKILL"):
        train_only(spec, dataclasses.replace(OFTEN, max_restarts=0))
    assert_nobody_is_left(spec)
    assert os.listdir(spec.checkpoint_dir)
    alone = dataclasses.replace(spec, distribution={"strategy": "one_device"})
    found = train_only(alone, OFTEN)
    assert_same_digits(found, alone, *on_one_device)


@pytest.mark.faults
def test_preempted_tasks_have_a_checkpoint_saved_first(
    make_spec, train_only, on_one_device, capfd
):
    tasks = range(3)  # the coordinator, the worker, a server
    spec = make_spec(ONE_WORKER, signals=[(task, TERM) for task in tasks])
    rarely = Operation(checkpoint_every="1h", max_restarts=0)
    found = train_only(spec, rarely)
    assert found["restarts"] == 3  # and they do not count
    assert_same_digits(found, spec, *on_one_device)
    log = capfd.readouterr().err
    assert len(re.findall(r"\[chief-0\] .*resuming at step", log)) == 3
    assert_nobody_is_left(spec)
