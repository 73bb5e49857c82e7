"""Losses on several replicas: means, sums, and what is neither."""

from __future__ import annotations

import functools
import json

import numpy as np
import pytest
import tensorflow as tf

from strategos.components.errors import UserError
from strategos.components.trainer.model.replicas import losses

CHILD = """
import functools, json, sys
import numpy as np
import tensorflow as tf
from strategos.components.trainer.compat import autograph
from strategos.components.trainer.data import dataset, distributed
from strategos.components.trainer.data.split import Split
from strategos.components.trainer.model.replicas import losses, uneven_batches
from strategos.components.trainer.model.context import TrainingContext
from strategos.components.trainer.spec import Settings

autograph.convert_user_code_only()
cpu = tf.config.list_physical_devices("CPU")[0]
two = [tf.config.LogicalDeviceConfiguration()] * 2
tf.config.set_logical_device_configuration(cpu, two)
L = tf.keras.losses

def mean(y, p):
    if tf.reduce_sum(y) > 1e9:  # needs AutoGraph
        return tf.reduce_mean(y)
    return tf.reduce_mean(tf.square(y - p))

def total(y, p):
    return tf.reduce_sum(tf.square(y - p))

def average(y, p):
    return tf.nn.compute_average_loss(tf.square(y - p)[:, 0], global_batch_size=6)

class Object:
    def __call__(self, y, p):
        return mean(y, p)

class Whole(L.Loss):
    def __call__(self, y, p, sample_weight=None):
        return tf.reduce_mean(tf.square(y - p))

class WholeSum(L.Loss):
    def __call__(self, y, p, sample_weight=None):
        return total(y, p) / 6

class Call(L.Loss):
    def call(self, y, p):
        return total(y, p) / 6

class MeanCall(L.Loss):
    def call(self, y, p):
        return mean(y, p)

shared = Call()

def build(context, loss, outputs=1):
    x = tf.keras.Input((3,), name="x")
    hidden = tf.keras.layers.Dense(2, kernel_initializer="ones",
                                   kernel_regularizer="l2")(x)
    made = [tf.keras.layers.Dense(1, kernel_initializer="ones", name=f"o{i}")(hidden)
            for i in range(outputs)]
    model = tf.keras.Model({"x": x}, made if outputs > 1 else made[0])
    # The one replica that others are compared with need not be traced.
    model.compile(tf.keras.optimizers.SGD(0.01), loss,
                  run_eagerly=context.replicas == 1)
    return model

def split(rows):
    x = np.random.default_rng(0).normal(size=(rows, 3)).astype("float32")
    columns = {"x": tf.constant(x), "y": tf.constant(x.sum(1, keepdims=True) + 1)}
    spec = {"x": tf.io.FixedLenFeature([3], tf.float32),
            "y": tf.io.FixedLenFeature([1], tf.float32)}
    packed = dataset.columns.pack(columns, spec)
    return Split((), spec, "y", rows, packed)

def trained(strategy, rows, batch, **parts):
    replicas = strategy.num_replicas_in_sync
    context = TrainingContext({}, "y", {}, None, None, None, rows, 2, replicas, batch,
                              seed=3)
    train, evaluated = split(rows), split(11)
    x, y = train.sample(8)
    with strategy.scope():
        model = build(context, **parts)
        if replicas > 1:
            losses.combine(model, model(x), x, y, "here")
        context = uneven_batches.settle(model, context, Settings(), "mirrored")
        feed = functools.partial(train.shuffled, batch, seed=3, epochs=None,
                                 drop_last=context.drops_last_batch)
        found = model.fit(
            distributed.batches(strategy, feed), epochs=2, verbose=0,
            steps_per_epoch=context.steps_per_epoch,
            validation_data=distributed.batches(
                strategy, functools.partial(evaluated.ordered, batch, epochs=None)),
            validation_steps=evaluated.steps(batch))
    return found.history, [w.tolist() for w in model.get_weights()]

cases = {
    "divided by a number": dict(rows=12, batch=6, loss=average),
    "divided by a number, uneven": dict(rows=11, batch=6, loss=average),
    "a sum": dict(rows=12, batch=6, loss=total),
    "a sum in a Loss": dict(rows=11, batch=6, loss=Call()),
    "one Loss of several models": dict(rows=11, batch=6, loss=shared),
    "one Loss again": dict(rows=11, batch=6, loss=shared),
    "a sum that combines rows itself": dict(rows=11, batch=6, loss=WholeSum()),
    "a partial mean": dict(rows=13, batch=6, loss=functools.partial(mean)),
    "a partial sum": dict(rows=11, batch=6, loss=functools.partial(average)),
    "an object": dict(rows=13, batch=6, loss=Object()),
    "a mean that combines rows itself": dict(rows=13, batch=6, loss=Whole()),
    "a mean under a sum": dict(rows=12, batch=6,
                               loss=MeanCall(reduction="sum")),
    "a sum of Keras": dict(rows=12, batch=6,
                           loss=L.MeanSquaredError(reduction="sum")),
    "two outputs": dict(rows=11, batch=6, loss={"o0": "mse", "o1": average},
                        outputs=2),
}
count, chosen = int(sys.argv[1]), json.loads(sys.argv[2])
strategy = tf.distribute.get_strategy()
if count > 1:
    strategy = tf.distribute.MirroredStrategy([f"CPU:{i}" for i in range(count)])
found = {name: trained(strategy, **cases[name]) for name in chosen}
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def found(script, answers, chosen):
    """Histories and weights by case, for one and two replicas."""
    names = chosen("case")
    if "one Loss again" in names:
        names.insert(0, "one Loss of several models")
    words = json.dumps(names)
    return answers([script(CHILD, str(replicas), words) for replicas in (1, 2)])


CASES = [
    *("divided by a number, uneven", "a sum in a Loss", "a partial mean"),
    "divided by a number",
    "a sum",
    "one Loss again",
    "a sum that combines rows itself",
    "a partial sum",
    "an object",
    "a mean that combines rows itself",
    "a mean under a sum",
    "a sum of Keras",
    "two outputs",
]


@pytest.mark.long
@pytest.mark.parametrize("case", CASES)
def test_a_loss_of_the_users_own_trains_as_on_one_device(found, case):
    (wanted, weights), (history, theirs) = (by_case[case] for by_case in found)
    for name in wanted:
        np.testing.assert_allclose(history[name], wanted[name], rtol=2e-5)
    for ours, one in zip(theirs, weights, strict=True):
        np.testing.assert_allclose(ours, one, rtol=2e-5, atol=1e-6)


def _contrastive(y, p):
    """Compares each row with all others of the batch."""
    distances = tf.square(p - tf.transpose(p))
    return tf.reduce_mean(distances * tf.abs(y - tf.transpose(y)))


def _random(y, p):
    return tf.reduce_mean(tf.square(y - p)) * tf.random.uniform([])


class Adding(tf.keras.layers.Layer):
    def __init__(self, reduce):
        super().__init__()
        self.reduce = reduce

    def call(self, x):
        self.add_loss(self.reduce(tf.square(x)))
        return x


@pytest.fixture
def combine():
    """Combines the losses of a small model: `combine(loss, layer, says)`."""

    def run(loss, layer=None, says=None, keras=tf.keras):
        rows = np.random.default_rng(0).normal(size=(9, 3)).astype(np.float32)
        features, labels = {"x": tf.constant(rows)}, tf.constant(rows[:, :1])
        inputs = keras.Input((3,), name="x")
        hidden = layer(inputs) if layer else inputs
        model = keras.Model({"x": inputs}, keras.layers.Dense(1)(hidden))
        model.compile("sgd", loss)
        if says:
            setattr(model, losses.SAYS, says)
        outputs = model(features)
        return losses.combine(model, outputs, features, labels, "m.py: `build_model`")

    return run


@pytest.mark.parametrize("loss", [_contrastive, _random])
def test_a_loss_that_is_neither_mean_nor_sum_is_rejected_unless_the_model_says(
    combine, loss
):
    with pytest.raises(UserError, match="m.py: .*neither a mean nor a sum.*one_device"):
        combine(loss)
    assert not combine(loss, says="mean")
    assert combine(loss, says="sum")
    with pytest.raises(UserError, match="'average', expected 'mean' or 'sum'"):
        combine(loss, says="average")


def test_a_layer_that_adds_up_rows_is_rejected(combine):
    with pytest.raises(UserError, match="give to `add_loss` is a sum over rows"):
        combine("mse", Adding(lambda x: tf.reduce_sum(x) / 64))
    with pytest.raises(UserError, match="give to `add_loss` is neither"):
        combine("mse", Adding(lambda x: tf.reduce_mean(x @ tf.transpose(x))))
    assert not combine("mse", Adding(tf.reduce_mean))
    assert not combine("mse", Adding(lambda x: tf.reduce_sum(x) * 0 + 1))


def test_a_number_for_a_batch_of_a_keras_3_model_is_rejected(combine):
    import keras

    def squares(y, p):
        return keras.ops.square(y - p)

    def mean(y, p):
        return keras.ops.mean(squares(y, p))

    assert not combine(mean, keras=keras)  # on one replica
    with tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope():
        with pytest.raises(UserError, match="one number for a batch.*one value for"):
            combine(mean, keras=keras)
        assert combine(lambda y, p: keras.ops.sum(squares(y, p)) / 64, keras=keras)
        assert not combine(squares, keras=keras)


def test_random_numbers_of_the_training_are_not_used_up(combine):
    def drawn(loss):
        tf.keras.utils.set_random_seed(1)
        combine(loss, says="mean")
        return float(tf.random.uniform([])), np.random.uniform()

    plain = functools.partial(tf.keras.losses.mean_squared_error)
    assert drawn(_random) == drawn(plain)
