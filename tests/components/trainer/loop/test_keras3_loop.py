"""Keras 3 models on several replicas train, stop and resume as on one device."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from strategos.components.trainer.launchers import launch
from strategos.components.trainer.operation import Operation
from strategos.components.trainer.spec import Settings

pytestmark = pytest.mark.long

ONE = {"strategy": "one_device"}
TWO = {
    "mirrored": {"strategy": "mirrored", "devices": 2},
    "multi_worker_mirrored": {"strategy": "multi_worker_mirrored", "workers": 2},
    "central_storage": {"strategy": "central_storage", "devices": 2},
}
GANG = "multi_worker_mirrored"
SERVERS = {"strategy": "parameter_server", "workers": 1, "parameter_servers": 2}

# Sparse gradients, a penalty, moving averages, layers in a list, a clipped sum; 1,000
# rows in batches of 111 leave one row for the last batch: one of two replicas has none.
MODEL = """
import os
import signal
import keras

class Tower(keras.layers.Layer):
    def __init__(self, by_rows):
        super().__init__()
        dense = keras.layers.Dense(16, use_bias=False, kernel_regularizer="l2")
        averages = (keras.layers.LayerNormalization() if by_rows
                    else keras.layers.BatchNormalization(synchronized=True))
        self.blocks = {"one": [dense, averages]}
    def call(self, x, training=None):
        for layer in self.blocks["one"]:
            x = layer(x, training=training)
        return keras.ops.relu(x)

def build_model(context):
    features = context.inputs(keras)
    inputs = {name: features[name] for name in ("carrier", "distance", "hour")}
    vectors = context.embedding("carrier", 3, keras=keras)(inputs["carrier"])
    parts = [keras.layers.Flatten()(vectors), inputs["distance"],
             keras.layers.Rescaling(1 / 24)(inputs["hour"])]
    by_rows = context.hyperparameters.get("by_rows")
    hidden = Tower(by_rows)(keras.layers.Concatenate()(parts))
    hidden = context.dropout(0.2, seed=1, keras=keras)(hidden)
    rate = context.hyperparameters.get("dropout")
    if rate:
        hidden = keras.layers.Dropout(rate)(hidden)
    model = keras.Model(inputs, keras.layers.Dense(1, activation="sigmoid")(hidden))
    adam = keras.optimizers.Adam(1e-2, global_clipnorm=0.05)
    model.compile(adam, "binary_crossentropy",
                  metrics=[keras.metrics.AUC(name="auc"), "mae"])
    return model

class Killed(keras.callbacks.Callback):
    def __init__(self, mark):
        super().__init__()
        self.mark, self.seen = mark, 0
    def on_train_batch_end(self, batch, logs=None):
        self.seen += 1
        if self.seen == 13 and self.mark and not os.path.exists(self.mark):
            open(self.mark, "w").close()
            os.kill(os.getpid(), signal.SIGKILL)

def callbacks(context):
    mark = context.hyperparameters.get("mark")
    return [Killed(mark if context.is_chief else None)]
"""

CALLBACKS = {
    "early_stopping": {"monitor": "val_auc", "patience": 1},
    "reduce_learning_rate": {"monitor": "val_loss", "patience": 0, "factor": 0.5},
    "csv": True,
}


@pytest.fixture(scope="module")
def run(workload, make_spec, train_only):
    """Trains MODEL under a strategy: `run(distribution, mark=…)` → facts, spec."""
    workload.write_module("keras3_curve", MODEL)

    def run(distribution, settings=None, by=train_only, epochs=4, **hyperparameters):
        spec = make_spec(
            module="keras3_curve",
            batch_size=111,
            epochs=epochs,
            distribution=distribution,
            settings=Settings(**(settings or {"callbacks": CALLBACKS})),
            hyperparameters=hyperparameters,
        )
        return by(spec, Operation(checkpoint_every="4 steps")), spec

    return run


@pytest.fixture(scope="module")
def one_device(run):
    return run(ONE)


@pytest.fixture(scope="module")
def killed(run, tmp_path_factory):
    """A run of two replicas whose chief is killed in the second epoch, by strategy."""

    @functools.cache
    def killed(name):
        mark = tmp_path_factory.mktemp("mark") / "killed"
        found = run(
            TWO[name], mark=str(mark), **({"by": launch} if name == GANG else {})
        )
        assert mark.exists()
        return found

    return killed


def _weights(spec):
    reader = tf.train.load_checkpoint(f"{spec.model_dir}/Format-Weights/weights")
    names = reader.get_variable_to_shape_map()
    return {x: reader.get_tensor(x) for x in names if "OBJECT_GRAPH" not in x}


@pytest.mark.parametrize(
    "name",
    ["mirrored", GANG, "central_storage"],
)
def test_two_replicas_killed_and_resumed_train_as_one_device_undisturbed(
    killed, one_device, name
):
    facts, spec = killed(name)
    undisturbed, its_spec = one_device
    assert facts["restarts"] == 1
    assert (facts["strategy"], facts["replicas"]) == (name, 2)
    assert facts["steps"] == undisturbed["steps"]
    for metric, values in undisturbed["history"].items():
        np.testing.assert_allclose(facts["history"][metric], values, atol=1e-5)
    theirs = _weights(its_spec)
    for variable, value in _weights(spec).items():
        np.testing.assert_allclose(value, theirs[variable], atol=1e-5)


@pytest.mark.parametrize(
    ("name", "parts"),
    [("mirrored", 4), (GANG, 3)],
)
def test_batches_computed_in_parts_train_as_whole_ones_on_one_device(run, name, parts):
    settings = {"callbacks": {}}
    whole, its_spec = run(ONE, settings, epochs=2, by_rows=True)
    settings["accumulate_steps"] = parts
    facts, spec = run(TWO[name], settings, epochs=2, by_rows=True)
    assert facts["steps"] == whole["steps"]
    for metric, values in whole["history"].items():
        np.testing.assert_allclose(facts["history"][metric], values, atol=1e-6)
    theirs = _weights(its_spec)
    for variable, value in _weights(spec).items():
        np.testing.assert_allclose(value, theirs[variable], atol=5e-6)


def test_a_worker_with_servers_resumes_and_trains_as_one_device(
    run, one_device, tmp_path
):
    mark = tmp_path / "killed"
    facts, spec = run(SERVERS, mark=str(mark))
    undisturbed, its_spec = one_device
    assert mark.exists() and facts["strategy"] == "parameter_server"
    assert (facts["restarts"], facts["steps"]) == (1, undisturbed["steps"])
    for metric, values in undisturbed["history"].items():
        np.testing.assert_allclose(facts["history"][metric], values, atol=1e-5)
    theirs = _weights(its_spec)
    for variable, value in _weights(spec).items():
        np.testing.assert_allclose(value, theirs[variable], atol=1e-5)


def test_the_export_answers_and_measures_as_the_training(killed):
    facts, spec = killed(GANG)
    for metric, value in facts["evaluation"].items():
        epoch = facts["weights_epoch"] - 1
        measured = facts["history"][f"val_{metric}"][epoch]
        assert value == pytest.approx(measured, abs=1e-5), metric
    assert Path(spec.model_dir, "Format-Serving", "saved_model.pb").is_file()
