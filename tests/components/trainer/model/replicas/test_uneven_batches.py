"""Batches that the replicas cannot share evenly: weighted, left out, or rejected."""

from __future__ import annotations

import json

import pytest

from strategos.components.errors import UserError

CHILD = """
import functools, json, sys
import numpy as np
import tensorflow as tf
from strategos.components.trainer.compat import autograph
from strategos.components.trainer.data import dataset, distributed
from strategos.components.trainer.data.split import Split
from strategos.components.trainer.model.replicas import uneven_batches
from strategos.components.trainer.model.context import TrainingContext
from strategos.components.trainer.spec import Settings

autograph.convert_user_code_only()
cpu = tf.config.list_physical_devices("CPU")[0]
two = [tf.config.LogicalDeviceConfiguration()] * 2
tf.config.set_logical_device_configuration(cpu, two)
mirrored = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])

class Activity(tf.keras.layers.Layer):
    def __init__(self, context):
        super().__init__()

    def call(self, x):
        self.add_loss(0.1 * tf.reduce_mean(tf.square(x)))
        return x

class Reshaped(tf.keras.layers.Layer):
    def __init__(self, context, shape=(-1, 1)):
        super().__init__()
        self.dropout, self.shape = context.dropout(0.5), shape

    def call(self, x, training=None):
        dropped = self.dropout(tf.reshape(x, self.shape), training=training)
        return tf.reshape(dropped, tf.shape(x))

def mean_of_rows(y, p):
    return tf.reduce_mean(tf.square(y - p))

def build(context, loss, layer=None):
    inputs = {"x": tf.keras.Input((3,), name="x")}
    hidden = tf.keras.layers.Dense(2, kernel_initializer="ones",
                                   kernel_regularizer="l2")(inputs["x"])
    hidden = layer(context)(hidden) if layer else hidden
    output = tf.keras.layers.Dense(1, kernel_initializer="ones")(hidden)
    model = tf.keras.Model(inputs, output)
    # The one replica that others are compared with need not be traced.
    model.compile(tf.keras.optimizers.SGD(0.01), loss, metrics=["mae", mean_of_rows],
                  run_eagerly=context.replicas == 1)
    return model

def split(rows):
    x = np.random.default_rng(0).normal(size=(rows, 3)).astype("float32")
    columns = {"x": tf.constant(x), "y": tf.constant(x.sum(1, keepdims=True) + 1)}
    spec = {"x": tf.io.FixedLenFeature([3], tf.float32),
            "y": tf.io.FixedLenFeature([1], tf.float32)}
    packed = dataset.columns.pack(columns, spec)
    return Split((), spec, "y", rows, packed)

def history(strategy, rows, batch, drop=False, **parts):
    replicas = strategy.num_replicas_in_sync
    context = TrainingContext({}, "y", {}, None, None, None, rows, 2, replicas, batch,
                              3, drops_last_batch=drop)
    train, evaluated = split(rows), split(9)
    with strategy.scope():
        model = build(context, **parts)
        settled = uneven_batches.settle(model, context, Settings(), "mirrored")
        assert settled is context
        context.training_step.follow(model)
        x, y = train.sample(4)  # makes all variables, as the check before training
        strategy.run(lambda: model.test_step((x, y)))
        model.reset_metrics()
        feed = functools.partial(train.shuffled, batch, seed=3, epochs=None,
                                 drop_last=drop)
        size = uneven_batches.evaluation_batch(9, batch, replicas)
        found = model.fit(
            distributed.batches(strategy, feed), epochs=2, verbose=0,
            steps_per_epoch=context.steps_per_epoch,
            validation_data=distributed.batches(
                strategy, functools.partial(evaluated.ordered, size, epochs=None)),
            validation_steps=evaluated.steps(size))
    return found.history

cases = {
    "all uneven, a layer adds a mean": dict(rows=10, batch=5, loss="mse",
                                            layer=Activity),
    "all uneven, last left out": dict(rows=11, batch=5, loss="mse", drop=True),
    "a replica without rows, a mean by the user": dict(rows=9, batch=4,
                                                       loss=mean_of_rows),
    "a replica without rows, a layer adds a mean": dict(rows=9, batch=4, loss="mse",
                                                        layer=Activity),
    "uneven, dropout of two entries of each row": dict(rows=11, batch=4, loss="mse",
                                                       layer=Reshaped),
}
found = {name: [history(strategy, **case)
                for strategy in (tf.distribute.get_strategy(), mirrored)]
         for name, case in cases.items() if name in json.loads(sys.argv[1])}

try:
    turned = functools.partial(Reshaped, shape=(1, -1))
    history(mirrored, rows=8, batch=4, loss="mse", layer=turned)
except tf.errors.InvalidArgumentError as error:
    found["dropout on another axis"] = str(error)
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def histories(script, chosen):
    """By case, the history of one device and that of two replicas."""
    return script(CHILD, json.dumps(chosen("case"))).answer()


@pytest.mark.parametrize(
    "case",
    [
        "a replica without rows, a mean by the user",
        *(
            pytest.param(case, marks=pytest.mark.long)
            for case in (
                "all uneven, a layer adds a mean",
                "all uneven, last left out",
                "a replica without rows, a layer adds a mean",
                "uneven, dropout of two entries of each row",
            )
        ),
    ],
)
def test_each_row_counts_alike_whatever_its_replica(histories, case):
    one, two = histories[case]
    for metric in ("loss", "mae", "val_loss", "val_mae"):
        assert two[metric] == pytest.approx(one[metric], abs=1e-5), metric


def test_a_metric_that_is_a_mean_by_the_user_is_a_number(histories):
    for one, two in filter(lambda pair: len(pair) == 2, histories.values()):
        for name in ("mean_of_rows", "val_mean_of_rows"):
            assert two[name] == pytest.approx(one[name], rel=0.5), name


def test_dropout_on_another_axis_than_the_rows_is_rejected_by_several_replicas(
    histories,
):
    said = histories["dropout on another axis"]
    assert "The first axis of the input of `context.dropout` must be the batch" in said


@pytest.mark.parametrize(
    ("rows", "batch_size", "replicas", "expected"),
    [
        (9, 4, 2, 3),
        (8, 4, 2, 4),
        (10, 4, 2, 4),
        (1000, 111, 2, 110),
        (7, 3, 2, 4),
        (5, 2, 2, 3),
        (9, 4, 1, 4),
        (3, 8, 2, 8),
    ],
)
def test_no_replica_is_without_rows_in_evaluation(rows, batch_size, replicas, expected):
    from strategos.components.trainer.model.replicas import uneven_batches

    found = uneven_batches.evaluation_batch(rows, batch_size, replicas)
    assert found == expected
    assert rows % found == 0 or rows % found >= replicas


def test_fewer_evaluation_rows_than_replicas_are_rejected():
    from strategos.components.trainer.model.replicas import uneven_batches

    with pytest.raises(UserError, match="has 1 row, fewer than the 2 replicas"):
        uneven_batches.evaluation_batch(1, 8, 2)


def _model(kind: str):
    import tensorflow as tf

    class OwnStep(tf.keras.Model):
        def train_step(self, data):
            return super().train_step(data)

    inputs = hidden = tf.keras.Input((3,))
    if kind == "normalized":
        hidden = tf.keras.layers.BatchNormalization()(hidden)
    made = OwnStep if kind == "own step" else tf.keras.Model
    model = made(inputs, tf.keras.layers.Dense(1)(hidden))
    reduction = "sum" if kind == "summed" else "auto"
    loss, steps = tf.keras.losses.MeanSquaredError(reduction), None
    if kind == "several steps":
        steps = 4
    model.compile("sgd", loss, steps_per_execution=steps)
    return model


def _context(rows: int, batch: int, replicas: int = 2, drop: bool = False):
    from strategos.components.trainer.model.context import TrainingContext

    none = (None, None, None)
    return TrainingContext(
        {}, "y", {}, *none, rows, 1, replicas, batch, 3, drops_last_batch=drop
    )


UNWEIGHED = ["own step", "normalized", "summed", "several steps"]


@pytest.mark.parametrize("kind", UNWEIGHED)
@pytest.mark.parametrize("drop", [False, True])
def test_uneven_batches_that_cannot_be_weighted_are_rejected(kind, drop):
    from strategos.components.trainer.model.replicas import uneven_batches
    from strategos.components.trainer.spec import Settings

    message = (
        r"batch_size: received 5; the batch cannot be.*2 replicas.*\n.*multiple of 2"
    )
    with pytest.raises(UserError, match=message):
        uneven_batches.settle(
            _model(kind), _context(10, 5, drop=drop), Settings(), "mirrored"
        )


@pytest.mark.parametrize("kind", UNWEIGHED)
def test_a_last_batch_that_cannot_be_weighed_is_left_out(kind):
    from strategos.components.trainer.model.replicas import uneven_batches
    from strategos.components.trainer.spec import Settings

    model = _model(kind)
    settled = uneven_batches.settle(model, _context(11, 4), Settings(), "mirrored")
    assert settled.steps_per_epoch == 2
    alone = _context(11, 4, replicas=1)
    assert uneven_batches.settle(model, alone, Settings(), "one_device") is alone


def test_each_size_of_a_gang_leaves_the_same_batch_out():
    """A gang that loses workers keeps the steps of an epoch, and so its curve."""
    from strategos.components.trainer.model.replicas import uneven_batches
    from strategos.components.trainer.spec import Settings

    def settled(kind, rows, batch_size, replicas):
        return uneven_batches.settle(
            _model(kind),
            _context(rows, batch_size, replicas),
            Settings(),
            "multi_worker_mirrored",
            sizes=[1, 2, 3],
        )

    for replicas in (1, 2, 3):
        assert settled("own step", 13, 6, replicas).steps_per_epoch == 2
        assert settled("plain", 13, 6, replicas).steps_per_epoch == 3
        assert settled("own step", 12, 6, replicas).steps_per_epoch == 2
        message = r"received 4; .* among 3 replicas, which .*min_workers"
        with pytest.raises(UserError, match=f"{message}.*\n.*multiple of 6, which"):
            settled("own step", 12, 4, replicas)


def test_a_tpu_takes_batches_of_one_shape_only():
    from strategos.components.trainer.model.replicas import uneven_batches
    from strategos.components.trainer.spec import Settings

    model = _model("plain")
    with pytest.raises(
        UserError, match=r"100; the batch cannot.*8 replicas.*a TPU takes"
    ):
        uneven_batches.settle(model, _context(1000, 100, 8), Settings(), "tpu")
    settled = uneven_batches.settle(model, _context(1000, 96, 8), Settings(), "tpu")
    assert settled.drops_last_batch
