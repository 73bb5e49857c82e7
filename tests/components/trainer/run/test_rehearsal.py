"""What cannot be exported ends the training in its first steps."""

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

class Late(tf.keras.layers.Layer):
    def call(self, hours):
        if not TABLES:
            with tf.init_scope():
                pairs = [1, 2], [1.0, 2.0]
                values = tf.lookup.KeyValueTensorInitializer(*pairs, tf.int64)
                TABLES.append(tf.lookup.StaticHashTable(values, 0.0))
        return TABLES[0].lookup(hours)

def build_model(context):
    inputs = context.inputs()
    parts = [inputs["distance"], Late()(inputs["hour"])]
    output = tf.keras.layers.Dense(1, "sigmoid")(tf.keras.layers.Concatenate()(parts))
    built = tf.keras.Model(inputs, output)
    built.compile("adam", "binary_crossentropy")
    return built
"""


@pytest.mark.parametrize("strategy", ["one_device", "multi_worker_mirrored"])
def test_a_model_that_cannot_be_exported_is_refused_in_the_first_steps(
    workload, make_spec, strategy
):
    workload.write_module("untracked", UNTRACKED)
    workers = {} if strategy == "one_device" else {"workers": 2}
    distribution = {"strategy": strategy, **workers}
    spec = make_spec(module="untracked", epochs=4000, distribution=distribution)
    began = time.monotonic()
    with pytest.raises(
        UserError, match="(?s)^the model cannot be exported: .*untracked"
    ):
        launch(spec, Operation())
    assert time.monotonic() - began < 60
