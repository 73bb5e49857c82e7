"""Errors of operations name the worker, the step and the line of the user's code."""

from __future__ import annotations

import dataclasses
import re

import pytest

from strategos.components.errors import UserError
from strategos.components.trainer.operation import Operation

MODULE = """
import json
import os
from pathlib import Path

import tensorflow as tf

task = json.loads(os.environ.get("TF_CONFIG", "{}")).get("task", {}).get("type")

def build_model(context):
    Path(context.hyperparameters["marks"], f"{task}-{os.getpid()}").touch()
    optimizer = tf.keras.optimizers.SGD()

    class Checked(tf.keras.layers.Layer):
        def call(self, x):
            steps = optimizer.iterations
            if task == "worker":
                tf.debugging.assert_less(steps, tf.constant(3, tf.int64), "too far")
            if task is None:
                return x / (3.0 - tf.cast(steps, tf.float32))
            return tf.identity(x)

    inputs = context.inputs()
    checked = Checked(name="checked")(inputs["distance"])
    model = tf.keras.Model(inputs, tf.keras.layers.Dense(1)(checked))
    model.compile(optimizer, "mse")
    return model
"""


@pytest.fixture
def failed(workload, make_spec, train_only, tmp_path):
    """The error of a training, and the processes that built the model."""

    def train(strategy, **operation):
        workload.write_module("debugged", MODULE)
        spec = make_spec(module="debugged", distribution=strategy)
        spec = dataclasses.replace(spec, hyperparameters={"marks": str(tmp_path)})
        with pytest.raises(UserError) as raised:
            train_only(spec, Operation(**operation))
        return str(raised.value), sorted(each.name for each in tmp_path.iterdir())

    return train


def test_an_assertion_in_one_worker_ends_the_gang_without_a_restart(failed):
    message, built = failed({"strategy": "multi_worker_mirrored", "workers": 2})
    assert message.startswith("worker-0: training fails: ")
    assert re.search(r"debugged\.py:18: InvalidArgumentError: .*too far", message)
    assert message.endswith("(after step 3)")
    assert [name.partition("-")[0] for name in built] == ["chief", "worker"]


def test_a_value_that_is_not_finite_is_named_by_operation_layer_line_and_step(failed):
    message, _ = failed({"strategy": "one_device"}, check_numerics=True)
    assert re.search(
        r"debugged\.py:20: the operation RealDiv in `model/checked` gives "
        r"-Inf and \+Inf values \(after step 3\)$",
        message,
    ), message
