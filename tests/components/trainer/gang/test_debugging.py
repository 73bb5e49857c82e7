"""Errors of operations name the worker, the step and the line of the user's code."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest
import tensorflow as tf
from tensorflow.python.debug.lib.debug_events_reader import DebugDataReader

from strategos.components.errors import UserError
from strategos.components.trainer.operation import Operation
from strategos.components.trainer.spec import Settings

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


@pytest.mark.long
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
        r"-Inf and \+Inf values \(after step 3\)\. "
        r"All features and labels of step 4 are finite$",
        message,
    ), message


PLAIN = """
import tensorflow as tf

def build_model(context):
    features = context.inputs()
    model = tf.keras.Model(features, tf.keras.layers.Dense(1)(features["distance"]))
    model.compile("sgd", "mse")
    return model
"""


@pytest.fixture
def spoiled(workload, make_spec, tmp_path):
    """A training whose 200th row has a NaN, and where the seed puts that row."""
    (source,) = workload.transformed("train")
    records = list(tf.data.TFRecordDataset(source, compression_type="GZIP"))
    example = tf.train.Example.FromString(records[200].numpy())
    example.features.feature["distance"].float_list.value[:] = [float("nan")]
    records[200] = example.SerializeToString()
    path = str(tmp_path / "spoiled.tfrecord")
    with tf.io.TFRecordWriter(path) as file:
        for record in records:
            file.write(bytes(getattr(record, "numpy", lambda r=record: r)()))
    workload.write_module("plain", PLAIN)
    spec = make_spec(module="plain", train_files=(path,), epochs=1)
    numbers = tf.range(len(records), dtype=tf.int64)
    key = tf.constant([spec.seed, 0], tf.int64)
    order = tf.random.experimental.stateless_shuffle(numbers, key).numpy().tolist()
    step, row = divmod(order.index(200), spec.batch_size)
    return spec, step + 1, row + 1


@pytest.mark.parametrize("check_numerics", [False, True])
def test_the_feature_with_a_nan_is_named_with_its_step_and_row(
    spoiled, train_only, check_numerics
):
    spec, step, row = spoiled
    with pytest.raises(UserError) as raised:
        train_only(spec, Operation(check_numerics=check_numerics))
    assert (
        f"In the rows of step {step}, `distance` has 1 value that is NaN or infinite "
        f"(row {row} of the batch)"
    ) in str(raised.value)


@pytest.mark.parametrize(
    ("distribution", "tasks"),
    [
        pytest.param({"strategy": "one_device"}, ["host"], marks=pytest.mark.long),
        pytest.param(
            {"strategy": "mirrored", "devices": 2}, ["host"], marks=pytest.mark.faults
        ),
        pytest.param(
            {"strategy": "multi_worker_mirrored", "workers": 2},
            ["chief-0", "worker-0"],
            marks=pytest.mark.faults,
        ),
    ],
    ids=lambda value: value.get("strategy") if isinstance(value, dict) else "",
)
def test_the_debugger_of_tensorflow_reads_what_each_task_has_recorded(
    workload, make_spec, train_only, tmp_path, distribution, tasks
):
    workload.write_module("plain", PLAIN)
    settings = {"module": "plain", "distribution": distribution, "epochs": 1}
    plain = train_only(make_spec(**settings))
    recorded = train_only(make_spec(**settings), Operation(dump=str(tmp_path)))
    assert recorded["history"] == plain["history"]
    folders = sorted(tmp_path.iterdir())
    assert [path.name.rsplit("-", 2)[0] for path in folders] == tasks
    for folder in folders:
        with DebugDataReader(str(folder)) as reader:
            reader.update()
            results = reader.graph_execution_traces()
            kinds = {each.op_type for each in results}
        assert {"MatMul", "SquaredDifference"} <= kinds


@pytest.mark.faults
def test_each_worker_has_a_profile_of_its_own(workload, make_spec, train_only):
    workload.write_module("plain", PLAIN)
    spec = make_spec(
        module="plain",
        epochs=1,
        distribution={"strategy": "multi_worker_mirrored", "workers": 2},
        settings=Settings(callbacks={"tensorboard": {"profile": [2, 3]}}),
    )
    train_only(spec)
    pattern = "plugins/profile/*/*.xplane.pb"
    for folder in (Path(spec.log_dir), Path(spec.log_dir, "worker-0")):
        (profile,) = folder.glob(pattern)
        assert b"MatMul" in profile.read_bytes()
    # Its metrics are those of the chief.
    assert {each.name for each in Path(spec.log_dir, "worker-0").iterdir()} == {
        "plugins"
    }
