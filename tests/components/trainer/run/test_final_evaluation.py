"""The evaluation in one process after a training on several replicas."""

from __future__ import annotations

import pytest

from strategos.components.errors import UserError
from strategos.components.trainer.launchers import local
from strategos.components.trainer.operation import Operation

pytestmark = pytest.mark.long

MODEL = """
import tensorflow as tf

class Memory(tf.keras.layers.Layer):
    def __init__(self, rows):
        super().__init__()
        self.rows = rows

    def call(self, inputs):
        if tf.distribute.has_strategy():
            return inputs
        beyond = tf.maximum(tf.shape(inputs)[0] - self.rows, 0)
        much = tf.random.uniform([1 << 24, 1 << 24, beyond])
        return inputs + tf.reduce_sum(much)

def build_model(context):
    inputs = context.inputs()
    held = Memory(context.hyperparameters["rows"])(inputs["distance"])
    model = tf.keras.Model(inputs, tf.keras.layers.Dense(1, "sigmoid")(held))
    model.compile("sgd", "binary_crossentropy")
    return model
"""


@pytest.fixture(scope="module")
def train(workload, make_spec):
    """Trains on two replicas; one device has memory for `rows` rows."""
    workload.write_module("large", MODEL)

    def launch(rows):
        spec = make_spec(
            module="large",
            hyperparameters={"rows": rows},
            distribution={"strategy": "mirrored", "devices": 2},
            batch_size=128,
            epochs=1,
        )
        return local.launch(spec, Operation())

    return launch


def test_it_takes_no_more_rows_at_once_than_a_replica_did(train):
    facts = train(64)
    expected = facts["history"]["val_loss"][-1]
    assert facts["evaluation"]["loss"] == pytest.approx(expected, abs=1e-6)


def test_running_out_of_memory_there_is_explained_too(train):
    message = r"batch_size: received 128; out of memory with 64 rows .*\n +Use a small"
    with pytest.raises(UserError, match=message):
        train(1)
