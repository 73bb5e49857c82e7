"""The evaluation of a model on parameter servers, by all its workers."""

from __future__ import annotations

import re

import pytest

from strategos.components.trainer import launchers
from strategos.components.trainer.operation import Operation
from strategos.components.trainer.spec import CACHE_LIMIT, Settings

EPOCHS = 3
BATCH = 48
# `Told` prints on the worker that answers. Workers that added to `Own` at once would
# lose rows.
MODEL = """
import tensorflow as tf
import {package} as keras

class Told(keras.layers.Layer):
    def call(self, x, training=None):
        if not training:
            tf.print("answers", tf.shape(x)[0])
        return x

class Own(keras.metrics.Metric):
    def __init__(self, name="own", **others):
        super().__init__(name=name, **others)
        self.total = self.add_weight(name="total", initializer="zeros")
        self.rows = self.add_weight(name="rows", initializer="zeros")

    def update_state(self, y_true, y_pred, sample_weight=None):
        off = tf.abs(tf.cast(y_true, tf.float32) - y_pred)
        self.total.assign(self.total + tf.reduce_sum(off))
        self.rows.assign(self.rows + tf.cast(tf.shape(off)[0], tf.float32))

    def result(self):
        return self.total / self.rows

def build_model(context):
    features = context.inputs(*{arguments})
    inputs = {name: features[name] for name in ("carrier", "distance", "temp")}
    known = keras.layers.IntegerLookup(vocabulary=[1, 2, 3])(inputs["carrier"])
    known = keras.layers.Flatten()(keras.layers.Embedding(4, 2)(known))
    parts = [known, inputs["distance"], inputs["temp"]]
    hidden = Told()(keras.layers.Concatenate()(parts))
    hidden = keras.layers.Dense(8, "relu", kernel_regularizer="l2")(hidden)
    model = keras.Model(inputs, keras.layers.Dense(1, "sigmoid")(hidden))
    model.compile(
        keras.optimizers.Adam(1e-2), "binary_crossentropy",
        metrics=["accuracy", keras.metrics.AUC(name="auc"), Own()])
    return model
"""


@pytest.mark.parametrize(
    ("package", "workers", "cache_limit"),
    [
        ("tf_keras", 2, CACHE_LIMIT),
        pytest.param("tf_keras", 3, CACHE_LIMIT, marks=pytest.mark.long),
        pytest.param("tf_keras", 2, 2_000, marks=pytest.mark.long),  # rows are streamed
        pytest.param("keras", 2, CACHE_LIMIT, marks=pytest.mark.long),
    ],
)
def test_each_worker_answers_its_share_and_the_metrics_are_those_of_all_rows(
    workload, make_spec, capfd, package, workers, cache_limit
):
    from strategos.components.records.read import records

    arguments = "[keras]" if package == "keras" else "[]"
    text = MODEL.replace("{package}", package).replace("{arguments}", arguments)
    workload.write_module(f"shared_{package}", text)
    spec = make_spec(
        module=f"shared_{package}",
        batch_size=BATCH,
        epochs=EPOCHS,
        distribution={"strategy": "parameter_server", "workers": workers},
        settings=Settings(cache_limit=cache_limit),
    )
    found = launchers.launch(spec, Operation())
    assert found["evaluation"].keys() == {"loss", "accuracy", "auc", "own"}
    for name, value in found["evaluation"].items():  # by Keras, of the exported weights
        measured = found["history"][f"val_{name}"][-1]
        assert value == pytest.approx(measured, abs=1e-6), name
    told = re.findall(r"\[worker-(\d)\] answers (\d+)", capfd.readouterr().err)
    shares = [0] * workers
    for worker, rows in told:
        shares[int(worker)] += int(rows)
    assert sum(shares) == EPOCHS * sum(1 for _ in records(spec.eval_files))
    assert max(shares) - min(shares) <= BATCH


# Its `test_step` returns other values than the metrics.
OWN_STEP = """
import tensorflow as tf

class Own(tf.keras.Model):
    def test_step(self, data):
        features, label = data
        off = tf.abs(tf.cast(label, tf.float32) - self(features, training=False))
        self.gap.update_state(off)
        return {"gap": self.gap.result(), "rows": self.gap.count}

def build_model(context):
    inputs = context.inputs()
    outputs = tf.keras.layers.Dense(1, "sigmoid")(inputs["distance"])
    model = Own(inputs, outputs)
    model.gap = tf.keras.metrics.Mean("gap")
    model.compile("adam", "binary_crossentropy", metrics=["accuracy"])
    return model
"""

# A layer's metric, which Keras 3 reads and then writes, counts rows as it answers.
IN_LAYER = """
import keras

class Counted(keras.layers.Layer):
    def __init__(self):
        super().__init__()
        self.seen = keras.metrics.Sum(name="seen")

    def call(self, x):
        self.seen.update_state(keras.ops.ones_like(x))
        return x

def build_model(context):
    inputs = {"distance": context.inputs(keras)["distance"]}
    outputs = keras.layers.Dense(1, "sigmoid")(Counted()(inputs["distance"]))
    model = keras.Model(inputs, outputs)
    model.compile("adam", "binary_crossentropy")
    return model
"""


OWN_METRICS = """
import keras

class Own(keras.Model):
    def compute_metrics(self, x, y, y_pred, sample_weight=None):
        values = super().compute_metrics(x, y, y_pred, sample_weight)
        return {**values, "twice": 2 * values["loss"]}

def build_model(context):
    inputs = {"distance": context.inputs(keras)["distance"]}
    model = Own(inputs, keras.layers.Dense(1, "sigmoid")(inputs["distance"]))
    model.compile("adam", "binary_crossentropy")
    return model
"""


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "text", "metric"),
    [
        ("own_step", OWN_STEP, "gap"),
        ("in_layer", IN_LAYER, "seen"),
        ("own_metrics", OWN_METRICS, "twice"),
    ],
)
def test_values_of_own_steps_and_of_layers_are_those_of_all_rows(
    workload, make_spec, name, text, metric
):
    workload.write_module(name, text)
    spec = make_spec(
        module=name,
        batch_size=16,
        epochs=EPOCHS,
        distribution={"strategy": "parameter_server", "workers": 2},
    )
    found = launchers.launch(spec, Operation())
    value = found["evaluation"][metric]
    assert found["history"][f"val_{metric}"][-1] == pytest.approx(value, abs=1e-6)
    assert len(found["history"][metric]) == EPOCHS  # of training
