"""What an epoch that is resumed in the middle measures, and what is kept of it."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from strategos.components.trainer.launchers import launch
from strategos.components.trainer.loop import fit
from strategos.components.trainer.loop.callbacks import Hooks
from strategos.components.trainer.loop.position import Position
from strategos.components.trainer.operation import Operation
from strategos.components.trainer.spec import Settings

pytestmark = pytest.mark.long

ONE_DEVICE = {"strategy": "one_device"}
TWO_REPLICAS = {"strategy": "mirrored", "devices": 2}


@pytest.fixture
def run(workload, spec_of, train_only):
    """Trains late arrivals: `run(distribution, module=…, marker=…)` → facts, spec."""

    def run(
        distribution, module, batch_size, epochs, settings, by=train_only, marker=None
    ):
        spec = spec_of(
            workload,
            module=module,
            label="late",
            batch_size=batch_size,
            epochs=epochs,
            distribution=distribution,
            settings=Settings(**settings),
            hyperparameters={"marker": marker},
        )
        return by(spec, Operation()), spec

    return run


def weights_of(spec):
    reader = tf.train.load_checkpoint(f"{spec.model_dir}/Format-Weights/weights")
    names = reader.get_variable_to_shape_map()
    return {x: reader.get_tensor(x) for x in names if "OBJECT_GRAPH" not in x}


OWN_STEP = """
import os, signal
from pathlib import Path
import tensorflow as tf

class OwnStep(tf.keras.Model):
    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            p = self(x, training=True)
            loss = self.compute_loss(x, y, p)
        self.optimizer.minimize(loss, self.trainable_variables, tape=tape)
        more = {"mean": tf.reduce_mean(p)}
        return {**self.compute_metrics(x, y, p, None), **more}

class TerminatedOnce(tf.keras.callbacks.Callback):
    def __init__(self, marker):
        super().__init__()
        self.marker = marker

    def on_train_batch_end(self, batch, logs=None):
        if self.marker and not Path(self.marker).exists():
            Path(self.marker).touch()
            os.kill(os.getpid(), signal.SIGTERM)

def callbacks(context):
    return [TerminatedOnce(context.hyperparameters.get("marker"))]

def build_model(context):
    inputs = context.inputs()
    x = tf.keras.layers.Dense(8, "relu")(inputs["distance"])
    model = OwnStep({"distance": inputs["distance"]},
                    tf.keras.layers.Dense(1, "sigmoid")(x))
    model.compile("adam", "binary_crossentropy", metrics=["accuracy"])
    return model
"""


def test_resumed_in_its_last_execution_an_epoch_is_measured_on_all_its_rows(
    run, workload, tmp_path
):
    """Metrics of an own step are built in its first execution after the resume."""
    workload.write_module("own_step", OWN_STEP)
    how = {"module": "own_step", "batch_size": 100, "epochs": 2}
    how["settings"] = {"steps_per_execution": 5}
    undisturbed, _ = run(ONE_DEVICE, **how)
    marker = str(tmp_path / "stopped")
    facts, _ = run(ONE_DEVICE, marker=marker, **how)
    assert facts["restarts"] == 1
    for name, values in undisturbed["history"].items():
        assert facts["history"][name] == pytest.approx(values, abs=1e-6), name


KERAS3 = """
import os, signal
from pathlib import Path
import keras

def build_model(context):
    inputs = context.inputs(keras)
    x = keras.layers.Dense(8, "relu")(inputs["distance"])
    x = keras.layers.BatchNormalization(momentum=0.8)(x)
    model = keras.Model(
        {"distance": inputs["distance"]}, keras.layers.Dense(1, "sigmoid")(x))
    model.compile(keras.optimizers.Adam(1e-2), "binary_crossentropy")
    return model

class TerminatedOnce(keras.callbacks.Callback):
    def __init__(self, marker):
        super().__init__()
        self.marker, self.seen = marker and Path(marker), 0

    def on_train_batch_end(self, batch, logs=None):
        self.seen += 1
        if self.marker and self.seen == 13 and not self.marker.exists():
            self.marker.touch()
            os.kill(os.getpid(), signal.SIGTERM)

def callbacks(context):
    return [TerminatedOnce(context.hyperparameters.get("marker"))]
"""


def test_keras3_evaluates_and_keeps_the_mean_of_all_replicas_moving_averages(
    run, workload, tmp_path
):
    workload.write_module("keras3_averages", KERAS3)
    how = {"module": "keras3_averages", "batch_size": 110, "epochs": 3}
    how["settings"] = {"last_batch": "drop"}
    undisturbed, its_spec = run(TWO_REPLICAS, by=launch, **how)
    last = undisturbed["history"]["val_loss"][-1]
    assert undisturbed["evaluation"]["loss"] == pytest.approx(last, rel=1e-5)
    facts, spec = run(TWO_REPLICAS, marker=str(tmp_path / "done"), **how)
    assert facts["restarts"] == 1
    theirs = weights_of(its_spec)
    for variable, value in weights_of(spec).items():
        np.testing.assert_allclose(value, theirs[variable], atol=1e-6)


SCHEDULED = """
import os, signal
from pathlib import Path
import {package} as keras

def build_model(context):
    inputs = context.inputs(keras)
    outputs = keras.layers.Dense(1, "sigmoid")(inputs["distance"])
    model = keras.Model({{"distance": inputs["distance"]}}, outputs)
    model.compile(keras.optimizers.SGD(0.5), "binary_crossentropy")
    return model

class Begins(keras.callbacks.Callback):
    def on_train_begin(self, logs=None):
        self.model.optimizer.learning_rate = 0.25

class TerminatedOnce(keras.callbacks.Callback):
    def __init__(self, marker):
        super().__init__()
        self.marker, self.seen = marker and Path(marker), 0

    def on_train_batch_end(self, batch, logs=None):
        self.seen += 1
        if self.marker and self.seen == 13 and not self.marker.exists():
            self.marker.touch()
            os.kill(os.getpid(), signal.SIGTERM)

def callbacks(context):
    scheduler = keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate / 2)
    return [Begins(), scheduler, TerminatedOnce(context.hyperparameters["marker"])]
"""


@pytest.mark.parametrize("package", ["tf_keras", "keras"])
def test_callbacks_change_the_learning_rate_once_in_an_epoch_that_is_resumed(
    run, workload, tmp_path, package
):
    workload.write_module(f"scheduled_{package}", SCHEDULED.format(package=package))
    how = {"module": f"scheduled_{package}", "batch_size": 110, "epochs": 3}
    undisturbed, _ = run(ONE_DEVICE, settings={}, **how)
    facts, _ = run(ONE_DEVICE, settings={}, marker=str(tmp_path / "done"), **how)
    assert facts["restarts"] == 1
    for name, values in undisturbed["history"].items():
        assert facts["history"][name] == pytest.approx(values, abs=1e-6), name


def test_summaries_go_on_at_the_step_of_the_checkpoint(tmp_path):
    model = tf.keras.Sequential([tf.keras.Input((1,)), tf.keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    how = {"update_freq": 1, "write_graph": False, "write_steps_per_second": True}
    board = tf.keras.callbacks.TensorBoard(tmp_path, **how)
    position = Position(5, step=7, total=10)
    hooks = Hooks([board], model, position, 2)
    batches = tf.data.Dataset.from_tensors((tf.ones([4, 1]), tf.ones([4, 1]))).repeat()
    hooks.on_train_begin()
    fit.fit(
        None,
        model,
        position,
        end_epoch=2,
        feed=lambda step: batches,
        evaluation=batches,
        evaluation_steps=1,
        hooks=hooks,
    )
    hooks.on_train_end()
    (file,) = tmp_path.glob("train/events*")
    events = tf.compat.v1.train.summary_iterator(str(file))
    found = [(y.tag, x.step) for x in events for y in x.summary.value]
    steps = [step for tag, step in found if tag == "batch_loss"]
    assert steps == [8, 9, 10]
