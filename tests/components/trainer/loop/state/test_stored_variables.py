"""Files have each variable of a model, and give it back: of both Kerases."""

from __future__ import annotations

import json
import socket

import keras
import numpy as np
import pytest
import tensorflow as tf

from strategos.components.errors import UserError
from strategos.components.trainer.loop.checkpoint import checkpoints
from strategos.components.trainer.loop.state import saved_weights, stored_variables
from strategos.components.trainer.loop.warm_start import earlier_weights
from strategos.components.trainer.model.comparison import structure

ROWS = np.random.default_rng(1).normal(size=(8, 4)).astype("float32")
LABELS = ROWS[:, :1]


class Blocks(keras.layers.Layer):
    """Layers in a list and in a dict of lists, with state that no optimizer has."""

    def __init__(self):
        super().__init__()
        normal = keras.layers.BatchNormalization
        self.blocks = [keras.layers.Dense(3), normal()]
        self.by_name = {"head": [keras.layers.Dense(3), normal()]}

    def call(self, x, training=None):
        for layer in [*self.blocks, *self.by_name["head"]]:
            x = layer(x, training=training)
        return x


class Weights(keras.layers.Layer):
    """Weights in a list."""

    def build(self, shape):
        self.factors = [
            self.add_weight(shape=(shape[-1],), name="factor", initializer="normal")
            for _ in range(3)
        ]

    def call(self, x):
        return x * self.factors[0] * self.factors[1] + self.factors[2]


class Subclassed(keras.Model):
    """A subclassed model with its layers in a list."""

    def __init__(self):
        super().__init__()
        self.hs = [keras.layers.Dense(3), keras.layers.Dense(1)]
        self.counters = [tf.Variable(0.0), tf.Variable(0)]

    def call(self, x):
        for layer in self.hs:
            x = layer(x)
        return x


def _recurrent(x):
    cells = [keras.layers.GRUCell(2), keras.layers.LSTMCell(2)]
    return keras.layers.RNN(cells)(keras.layers.Reshape((2, 2))(x))


def _with(layer):
    inputs = keras.Input((4,))
    return keras.Model(inputs, keras.layers.Dense(1)(layer(inputs)))


MODELS = {
    "layers": lambda: _with(Blocks()),
    "weights": lambda: _with(Weights()),
    "cells": lambda: _with(_recurrent),
    "subclassed": Subclassed,
    "dropout": lambda: _with(keras.layers.Dropout(0.5)),
}


@pytest.fixture(
    params=[
        pytest.param(x, marks=() if x in ("layers", "subclassed") else pytest.mark.long)
        for x in MODELS
    ]
)
def make(request):
    """Makes a compiled Keras 3 model, after as many steps as asked for."""

    def made(steps=0):
        model = MODELS[request.param]()
        model.compile(keras.optimizers.Adam(0.1, use_ema=True), "mse")
        model(ROWS)
        model.optimizer.build(model.trainable_variables)
        for _ in range(steps):
            model.train_on_batch(ROWS, LABELS)
        return model

    return made


def _values(variables):
    return [np.array(x) for x in variables]


def _assert_equal(found, wanted):
    for mine, theirs in zip(_values(found), _values(wanted), strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_an_export_reads_the_weights_that_were_trained(tmp_path, make):
    trained, path = make(3), str(tmp_path / "weights")
    saved_weights.write(trained, path)
    exported = make()
    saved_weights.read(exported, path)
    _assert_equal(exported.variables, trained.variables)


def test_a_resumed_model_goes_on_with_equal_digits(tmp_path, make):
    store = checkpoints.Checkpoints(str(tmp_path), keep=1, is_chief=True)
    undisturbed = make(3)
    store.save(3, {"model": undisturbed}, {}, {})
    store.finish()
    resumed = make()
    assert stored_variables.read(resumed, f"{store.find(3).path}/model") == []
    for model in (undisturbed, resumed):
        model.train_on_batch(ROWS, LABELS)
    _assert_equal(resumed.variables, undisturbed.variables)
    _assert_equal(resumed.optimizer.variables, undisturbed.optimizer.variables)


def test_a_warm_start_takes_weights_but_not_random_states(tmp_path, make):
    trained, new, path = make(3), make(), str(tmp_path / "weights")
    weights = {id(x) for x in new.weights}
    states = [x for x in new.variables if id(x) not in weights]
    before = _values(states)
    saved_weights.write(trained, path)
    earlier_weights.read(new, path)
    _assert_equal(new.weights, trained.weights)
    _assert_equal(states, before)


def test_variables_that_users_keep_in_a_list_resume_too(tmp_path):
    models = [Subclassed() for _ in range(2)]
    for model in models:
        model.compile("sgd", "mse")
        model(ROWS)
    models[0].counters[0].assign(0.5)
    models[0].counters[1].assign(7)
    store = checkpoints.Checkpoints(str(tmp_path), keep=1, is_chief=True)
    store.save(1, {"model": models[0]}, {}, {})
    store.finish()
    stored_variables.read(models[1], f"{store.find(1).path}/model")
    assert [float(x) for x in models[1].counters] == [0.5, 7.0]


def _write_as_fecbd19(model, path):
    """Weights as commit fecbd19 wrote them: what TensorFlow finds by attributes."""
    parts = tf.train.TrackableView.children(model)
    kept = {name: x for name, x in parts.items() if name != "optimizer"}
    tf.train.Checkpoint(model=tf.train.Checkpoint(**kept)).write(path)
    with open(f"{path}.json", "w") as file:
        json.dump(saved_weights.shapes(model), file)


@pytest.mark.parametrize("name", ["layers", "weights", "cells", "subclassed"])
def test_an_older_file_without_all_weights_is_rejected(tmp_path, name):
    models = [MODELS[name]() for _ in range(2)]
    for model in models:
        model(ROWS)
    path = str(tmp_path / "weights")
    _write_as_fecbd19(models[0], path)
    with pytest.raises(UserError, match=r"no values for `.*(kernel|factor).*earlier"):
        earlier_weights.read(models[1], path)


def _plain(package):
    inputs = package.Input((4,))
    hidden = package.layers.BatchNormalization()(package.layers.Dense(3)(inputs))
    hidden = package.layers.Dropout(0.5)(hidden)
    model = package.Model(inputs, package.layers.Dense(1)(hidden))
    model.compile("adam", "mse")
    model.optimizer.build(model.trainable_variables)
    return model


@pytest.mark.parametrize("package", [tf.keras, keras])
def test_an_older_file_with_all_weights_starts_a_training(tmp_path, package):
    old, new, path = _plain(package), _plain(package), str(tmp_path / "weights")
    old.train_on_batch(ROWS, LABELS)
    _write_as_fecbd19(old, path)
    earlier_weights.read(new, path)
    _assert_equal(new.weights, old.weights)


def test_an_older_checkpoint_of_tf_keras_resumes(tmp_path):
    old, new, path = _plain(tf.keras), _plain(tf.keras), str(tmp_path / "model")
    old.train_on_batch(ROWS, LABELS)
    tf.train.Checkpoint(part=old).write(path)
    assert stored_variables.read(new, path) == []
    _assert_equal(new.variables, old.variables)
    _assert_equal(new.optimizer.variables, old.optimizer.variables)


def test_an_older_checkpoint_without_random_states_is_named(tmp_path):
    old, new, path = _plain(keras), _plain(keras), str(tmp_path / "model")
    tf.train.Checkpoint(part=old).write(path)
    (missing,) = stored_variables.read(new, path)
    assert "seed_generator" in missing


class Hidden(tf.keras.layers.Layer):
    """A tf-keras layer whose weights no attribute has, of one name besides."""

    def build(self, shape):
        weights = [
            self.add_weight("w", (shape[-1],), initializer="normal") for _ in range(2)
        ]
        self._product = lambda x: x * weights[0] * weights[1]

    def call(self, x):
        return self._product(x)


class Changed(tf.keras.layers.Layer):
    """tf-keras layers in containers that TensorFlow itself does not save."""

    def __init__(self, change):
        super().__init__()
        dense = tf.keras.layers.Dense
        self.blocks = {8: dense(8), 4: dense(4)}
        self.rows = [[dense(3), dense(5)]]
        change(self.rows[0])

    def call(self, x):
        for layer in [*self.blocks.values(), *self.rows[0]]:
            x = layer(x)
        return x


@pytest.mark.long
@pytest.mark.parametrize(
    "change",
    [
        lambda layers: layers.insert(0, tf.keras.layers.Dense(2)),
        lambda layers: layers.pop(0),
        lambda layers: layers.reverse(),
        lambda layers: layers.__setitem__(0, tf.keras.layers.Dense(7)),
    ],
)
def test_layers_in_dicts_with_numbers_and_changed_lists_are_written(tmp_path, change):
    def make():
        inputs = tf.keras.Input((4,))
        outputs = tf.keras.layers.Dense(1)(Changed(change)(inputs))
        model = tf.keras.Model(inputs, outputs)
        model.compile("adam", "mse")
        return model

    trained, new, resumed = make(), make(), make()
    trained.fit(ROWS, LABELS, verbose=0)
    saved_weights.write(trained, f"{tmp_path}/weights")
    saved_weights.read(new, f"{tmp_path}/weights")
    np.testing.assert_array_equal(new.predict(ROWS), trained.predict(ROWS))
    stored_variables.taken(trained).write(f"{tmp_path}/part")
    assert stored_variables.read(resumed, f"{tmp_path}/part", is_chief=True) == []
    for model in (trained, resumed):
        model.fit(ROWS, LABELS, shuffle=False, verbose=0)
    expected = trained.predict(ROWS)
    np.testing.assert_allclose(resumed.predict(ROWS), expected, atol=1e-6)


def test_a_model_with_an_adapted_vocabulary_is_written(tmp_path):
    def make():
        layer = tf.keras.layers.TextVectorization(output_sequence_length=2)
        layer.adapt(["a b", "c"])
        inputs = tf.keras.Input((1,), name="s", dtype=tf.string)
        return tf.keras.Model(inputs, tf.keras.layers.Embedding(5, 2)(layer(inputs)))

    rows = tf.constant([["a b"], ["c c"], ["d"]])
    written, new = make(), make()
    saved_weights.write(written, f"{tmp_path}/weights")
    saved_weights.read(new, f"{tmp_path}/weights")
    np.testing.assert_array_equal(new(rows), written(rows))
    assert structure.difference(structure.of(new), structure.of(written)) == ""


def test_weights_that_no_attribute_has_are_exported_too(tmp_path):
    def made():
        inputs = tf.keras.Input((4,))
        return tf.keras.Model(inputs, Hidden()(inputs))

    trained, exported, path = made(), made(), str(tmp_path / "weights")
    saved_weights.write(trained, path)
    saved_weights.read(exported, path)
    _assert_equal(exported.variables, trained.variables)


TOTALS = """
import json
import os
import sys
import tensorflow as tf
from strategos.components.trainer.distribution import devices
from strategos.components.trainer.loop.checkpoint import checkpoints
from strategos.components.trainer.loop.state import stored_variables
from strategos.components.trainer.model.comparison import structure

kind, folder, index = sys.argv[1], sys.argv[2], int(sys.argv[3])
if kind == "mirrored":
    strategy = tf.distribute.MirroredStrategy(devices.configure(kind, "CPU", 3))
else:
    strategy = tf.distribute.MultiWorkerMirroredStrategy()

def made():
    module = tf.Module()
    module.values = [
        tf.Variable(
            tf.zeros([2], dtype), trainable=False,
            synchronization=tf.VariableSynchronization.ON_READ,
            aggregation=tf.VariableAggregation.SUM)
        for dtype in ("int32", "int64", "float32")]
    return module

def add():
    first = tf.distribute.get_replica_context().replica_id_in_sync_group == 0
    first = tf.cast(first, tf.int32)
    for value in module.values:
        value.assign_add(tf.cast([31 - first, first], value.dtype))

with strategy.scope():
    found = []
    module = made()
    strategy.run(add)
    store = checkpoints.Checkpoints(folder, keep=1, is_chief=not index)
    store.save(1, {"metrics": module}, {}, {})
    store.finish()
    found.append([x.read_value().numpy().tolist() for x in module.values])
    module = made()
    stored_variables.read(
        module, f"{folder}/step-0000000001/metrics", is_chief=not index)
    found.append([x.read_value().numpy().tolist() for x in module.values])
    strategy.run(add)
    found.append([x.read_value().numpy().tolist() for x in module.values])
print(json.dumps(found), flush=True)
sys.stdin.read()
os._exit(0)  # an ordinary exit of several workers can abort
"""


def test_totals_of_three_replicas_keep_their_remainders(tmp_path, answers, script):
    (found,) = answers([script(TOTALS, "mirrored", str(tmp_path), "0")])
    assert found == [[[92, 1]] * 3, [[92, 1]] * 3, [[184, 2]] * 3]


def test_totals_of_two_workers_keep_their_remainders(tmp_path, answers, script):
    sockets = [socket.create_server(("localhost", 0)) for _ in range(2)]
    addresses = [f"localhost:{each.getsockname()[1]}" for each in sockets]
    for each in sockets:
        each.close()
    workers = []
    for index in range(2):
        task = {"type": "worker", "index": index}
        config = json.dumps({"cluster": {"worker": addresses}, "task": task})
        arguments = ("workers", str(tmp_path), str(index))
        workers.append(script(TOTALS, *arguments, TF_CONFIG=config))
    expected = [[[61, 1]] * 3, [[61, 1]] * 3, [[122, 2]] * 3]
    assert answers(workers) == [expected, expected]
