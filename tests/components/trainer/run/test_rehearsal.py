"""What cannot be exported ends the training early."""

from __future__ import annotations

import time

import pytest

from strategos.components.errors import UserError
from strategos.components.trainer.launchers import launch
from strategos.components.trainer.operation import Operation

UNTRACKED = """
import tensorflow as tf
import model

TABLES = []  # which Keras does not track

class OfHour(tf.keras.layers.Layer):
    def call(self, hours):
        if not TABLES:
            with tf.init_scope():
                pairs = [1, 2], [1.0, 2.0]
                values = tf.lookup.KeyValueTensorInitializer(*pairs, tf.int64)
                TABLES.append(tf.lookup.StaticHashTable(values, 0.0))
        return TABLES[0].lookup(hours)

def build_model(context):
    inputs = context.inputs()
    parts = [inputs["distance"], OfHour()(inputs["hour"])]
    output = tf.keras.layers.Dense(1, "sigmoid")(tf.keras.layers.Concatenate()(parts))
    built = tf.keras.Model(inputs, output)
    built.compile("adam", "mse")
    return built
"""


@pytest.fixture(autouse=True, scope="module")
def rehearsed(environment):
    """The processes of this file rehearse, as those of users."""
    environment.setenv("REHEARSED", "1")


@pytest.mark.parametrize(
    ("strategy", "label"),
    [
        ("one_device", "late"),
        pytest.param("multi_worker_mirrored", "late", marks=pytest.mark.long),
        pytest.param(
            "one_device", '{"reconstruct": ["distance"]}', marks=pytest.mark.long
        ),
    ],
)
def test_a_model_that_cannot_be_exported_is_refused_early(
    workload, make_spec, strategy, label
):
    workload.write_module("untracked", UNTRACKED)
    workers = {} if strategy == "one_device" else {"workers": 2}
    distribution = {"strategy": strategy, **workers}
    spec = make_spec(
        module="untracked", epochs=4000, distribution=distribution, label=label
    )
    began = time.monotonic()
    with pytest.raises(
        UserError, match="(?s)^the model cannot be exported: .*untracked"
    ):
        launch(spec, Operation())
    assert time.monotonic() - began < 60


FAILING = """
import os, time

def build_model(context):
    if os.nice(0) < 15:  # the training comes after the rehearsal
        time.sleep(8)
    raise ValueError(f"niceness {os.nice(0)}")
"""


@pytest.mark.long
def test_a_model_that_fails_is_reported_by_the_training_which_knows_more(
    workload, make_spec
):
    workload.write_module("failing", FAILING)
    with pytest.raises(UserError, match=r"failing\.py.*niceness 1?[0-4]$"):
        launch(make_spec(module="failing"), Operation())


@pytest.mark.long
def test_a_weight_made_from_the_label_is_refused_where_the_model_needs_it(
    new_workload, transform, make_spec
):
    made = new_workload()
    made.write_module(
        "weighing",
        """
        import tensorflow as tf

        def preprocessing_fn(inputs):
            late = tf.cast(inputs["late"], tf.float32)
            x = tf.cast(inputs["distance"], tf.float32) / 1e4
            return {"weight": 1 + 3 * late, "x": x, "late": late}
        """,
    )
    made.write_module("weighted", WEIGHTED)
    transform(made, "weighing")
    places = {"folder": made.folder, "transform_graph": made.graph}
    places |= {"schema_file": made.schema, "train_files": made.transformed("train")}
    places |= {"eval_files": made.transformed("eval"), "module": "weighted"}
    spec = make_spec(epochs=4000, hyperparameters={"input": True}, **places)
    with pytest.raises(UserError, match="computes weight from the label `late`"):
        launch(spec, Operation())
    spec = make_spec(epochs=1, hyperparameters={"input": False}, **places)
    assert launch(spec, Operation())["steps"] == 1  # only the loss has the weight


WEIGHTED = """
import tensorflow as tf

class Weighted(tf.keras.Model):
    def train_step(self, data):
        features, labels = data
        with tf.GradientTape() as tape:
            losses = tf.square(labels - self(features, training=True))
            loss = tf.reduce_mean(features["weight"] * losses)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
        return {"loss": loss}

def build_model(context):
    inputs = context.inputs()
    wanted = ["x", "weight"] if context.hyperparameters["input"] else ["x"]
    taken = {name: inputs[name] for name in wanted}
    parts = [tf.cast(each, tf.float32) for each in taken.values()]
    joined = tf.keras.layers.Concatenate()(parts) if parts[1:] else parts[0]
    model = Weighted(taken, tf.keras.layers.Dense(1)(joined))
    model.compile("sgd", "mse")
    return model
"""
