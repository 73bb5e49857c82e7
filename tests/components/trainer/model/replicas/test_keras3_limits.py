"""Keras 3 on several replicas: equal to one device, or rejected by name."""

from __future__ import annotations

import json

import keras
import pytest

from strategos.components.errors import UserError
from strategos.components.trainer.model.replicas import keras3_limits

# Prints, for each model: the history on one device and on two replicas; what plain
# Keras measures, on one device, of the second's weights after each epoch; the greatest
# difference of weights.
CURVES = """
import dataclasses
import functools
import json
import os
import sys
import numpy as np
import tensorflow as tf
import keras
from strategos.components.trainer.compat import keras3
from strategos.components.trainer.data import distributed, parts
from strategos.components.trainer.distribution import devices
from strategos.components.trainer.loop import fit
from strategos.components.trainer.loop.callbacks import Hooks
from strategos.components.trainer.loop.model_builder import configure_step
from strategos.components.trainer.loop.position import Position
from strategos.components.trainer.compat.callbacks import join
from strategos.components.trainer.spec import Settings

sgd = keras.optimizers.SGD
scaled = keras.optimizers.LossScaleOptimizer
two = tf.distribute.MirroredStrategy(devices.configure("mirrored", "CPU", 2))
random = np.random.default_rng(0)
rows = 128 + 95
features = {
    "x": random.normal(size=(rows, 4)).astype("float32"),
    "id": random.integers(0, 20, size=(rows, 1)),
    "text": random.choice(["a", "b", "c"], size=(rows, 1)),
}
labels = (features["x"][:, :1] + (features["text"] == "a") > 0).astype("float32")
train, evaluation = (
    ({name: values[part] for name, values in features.items()}, labels[part])
    for part in (slice(128), slice(128, rows)))

def feed(block, size, replicas, share):
    block = tf.nest.map_structure(tf.constant, block)
    blocks = tf.data.Dataset.from_tensors((block, tf.constant(0, tf.int64)))
    return parts.Parts(size, replicas, share).of_blocks(blocks)

def built(optimizer, outputs=1, steps=None):
    keras.utils.set_random_seed(1)
    inputs = {
        "x": keras.Input((4,), name="x"),
        "id": keras.Input((1,), name="id", dtype="int64"),
        "text": keras.Input((1,), name="text", dtype="string"),
    }
    words = keras.layers.StringLookup(vocabulary=["a", "b", "c"], output_mode="one_hot")
    parts = [
        inputs["x"],
        keras.layers.Flatten()(keras.layers.Embedding(20, 3)(inputs["id"])),
        words(inputs["text"]),
    ]
    hidden = keras.layers.Dense(8, activation="relu", kernel_regularizer="l2")(
        keras.layers.Concatenate()(parts))
    heads = [
        keras.layers.Dense(1, activation="sigmoid", name=f"head_{number}")(hidden)
        for number in range(outputs)]
    if outputs == 1:
        model = keras.Model(inputs, heads[0])
        model.compile(optimizer(), "binary_crossentropy", metrics=["accuracy", "AUC"])
    else:
        model = keras.Model(inputs, {"a": heads[0], "b": heads[1]})
        model.compile(
            optimizer(), {"a": "binary_crossentropy", "b": None},
            metrics={"a": ["accuracy", "AUC"]})
    configure_step(model, Settings(steps_per_execution=steps))
    return model

class Kept(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.weights = []

    def on_epoch_end(self, epoch, logs=None):
        self.weights.append(self.model.get_weights())

@dataclasses.dataclass
class Context:
    replicas: int
    global_batch_size: int
    rows_per_epoch: int = 128
    epochs: int = 3

    @property
    def steps_per_epoch(self):
        return -(-self.rows_per_epoch // self.global_batch_size)

def curve(strategy, *how, batch=32, every=None):
    kept = Kept()
    with strategy.scope():
        model = built(*how)
        rows = tf.nest.map_structure(lambda x: tf.constant(x[:2]), train)
        keras3.build(model, rows)
        model.optimizer.build(model.trainable_variables)
        context = Context(strategy.num_replicas_in_sync, batch)
        steps = context.steps_per_epoch
        total = steps * context.epochs
        position = Position(steps, total=total, evaluate_every=every)
        hooks = Hooks([join(kept)], model, position, context.epochs)
        divided = functools.partial(distributed.batches, strategy)
        hooks.on_train_begin()
        fit.fit(
            context, model, position, end_epoch=context.epochs, hooks=hooks,
            feed=lambda _: divided(
                lambda **share: feed(train, batch, **share).repeat()),
            evaluation=divided(lambda **share: feed(evaluation, 128, **share).repeat()),
            evaluation_steps=1)
        hooks.on_train_end()
    assert position.step == total and len(kept.weights) == 3
    return model.history.history, kept.weights, model.get_weights()

@functools.cache  # of a number of outputs, whatever the optimizer
def plain_of(outputs):
    return built(sgd, outputs)

def evaluated(weights, optimizer, outputs=1, steps=None):
    plain, found = plain_of(outputs), {}
    data = tf.data.Dataset.from_tensor_slices(evaluation).batch(128)
    for epoch in weights:
        plain.set_weights(epoch)
        values = plain.evaluate(data, verbose=0, return_dict=True)
        for name, value in values.items():
            found.setdefault(f"val_{name}", []).append(float(value))
    return found

found, chosen = {}, json.loads(sys.argv[1])
for name, how in {
    "several steps, evaluated on the way": (lambda: sgd(0.1), 1, 3),
    "uneven, global_clipnorm": (lambda: sgd(0.1, global_clipnorm=0.05),),
    "float16, clipvalue": (lambda: scaled(sgd(0.1, clipvalue=0.01)),),
    "averages": (lambda: keras.optimizers.Adam(0.01, use_ema=True, clipnorm=0.05),),
    "two outputs": (lambda: sgd(0.1, clipnorm=0.05), 2),
}.items():
    if name not in chosen:
        continue
    batch = 49 if name.startswith("uneven") else 32
    every = 5 if name.endswith("on the way") else None  # of the 12 steps
    one = tf.distribute.OneDeviceStrategy("CPU:0")
    alone, _, weights = curve(one, *how, batch=batch, every=every)
    shared, kept, its_weights = curve(two, *how, batch=batch, every=every)
    worst = max(abs(a - b).max() for a, b in zip(weights, its_weights))
    found[name] = [alone, shared, evaluated(kept, *how), float(worst)]
print(json.dumps(found), flush=True)
os._exit(0)
"""

NAMES = [
    *("uneven, global_clipnorm", "several steps, evaluated on the way"),
    *("float16, clipvalue", "averages", "two outputs"),
]


@pytest.fixture(scope="module")
def curves(script, chosen):
    return script(CURVES, json.dumps(chosen("name"))).answer()


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_two_replicas_train_as_one_device_with_text_and_clipped_sums(curves, name):
    alone, shared, _, difference = curves[name]
    assert difference < 1e-6
    for metric, values in alone.items():
        assert shared[metric] == pytest.approx(values, abs=1e-6), metric


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_an_odd_evaluation_batch_is_measured_as_on_one_device(curves, name):
    _, shared, evaluated, _ = curves[name]
    for metric, values in evaluated.items():
        assert shared[metric] == pytest.approx(values, abs=1e-6), metric


def _model(optimizer=None, kind=keras.Model, **compiled):
    inputs = keras.Input((2,))
    model = kind(inputs, keras.layers.Dense(1)(inputs))
    model.compile(optimizer or keras.optimizers.SGD(0.1), "mse", **compiled)
    return model


class OwnTrainStep(keras.Model):
    def train_step(self, data):
        return super().train_step(data)


class OwnTestStep(keras.Model):
    def test_step(self, data):
        return super().test_step(data)


class OwnLoss(keras.Model):
    def compute_loss(self, x=None, y=None, y_pred=None, **others):
        return keras.ops.mean(keras.ops.square(y - y_pred))


class OwnMetrics(keras.Model):
    def compute_metrics(self, x, y, y_pred, sample_weight=None):
        return super().compute_metrics(x, y, y_pred, sample_weight)


def _accumulating():
    return _model(keras.optimizers.SGD(0.1, gradient_accumulation_steps=2))


def _overwriting():
    how = {"use_ema": True, "ema_overwrite_frequency": 3}
    return _model(keras.optimizers.SGD(0.1, **how))


REJECTED = {
    r"optimizer with `gradient_accumulation_steps`": _accumulating,
    r"optimizer with `ema_overwrite_frequency`": _overwriting,
    r"`train_step` of its own: .* divided by the replicas": lambda: _model(
        kind=OwnTrainStep
    ),
    r"`test_step` of its own": lambda: _model(kind=OwnTestStep),
    r"`compute_metrics` of its own: .* one replica": lambda: _model(kind=OwnMetrics),
    r"`compute_loss` of its own: .* a mean counts once for": lambda: _model(
        kind=OwnLoss
    ),
}


def _check(model, distribution=None, replicas=2, **how):
    how = {"strategy": "mirrored", "own_loop": False, **how}
    keras3_limits.check(model, distribution or {}, replicas, "model.py", **how)


@pytest.mark.parametrize("message", REJECTED)
def test_what_fails_on_several_replicas_is_rejected_with_the_remedy(message):
    model = REJECTED[message]()
    with pytest.raises(
        UserError, match=rf"model.py: .*{message}.*one_device.*tf.keras"
    ):
        _check(model)
    _check(model, replicas=1)


def test_a_loop_of_the_users_own_needs_no_step_of_keras():
    _check(_model(kind=OwnTrainStep), own_loop=True)


def _scaling():
    return _model(keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1)))


UNDER_CENTRAL_STORAGE = {
    r"float16.*trainer.mixed_precision: bfloat16": (_scaling, {}),
    r"`run_fn` trains.*metric": (_model, {"own_loop": True}),
}


@pytest.mark.parametrize("message", UNDER_CENTRAL_STORAGE)
def test_what_fails_under_central_storage_is_rejected_there_only(message):
    make, how = UNDER_CENTRAL_STORAGE[message]
    message = rf"{message}.*one_device.*tf.keras"
    with pytest.raises(UserError, match=message) as error:
        _check(make(), strategy="central_storage", **how)
    assert "under central_storage Keras 3" in str(error.value)
    _check(make(), **how)


SPLIT = {"parameter_server": {"variable_partitioner": {"kind": "min_size"}}}
UNDER_PARAMETER_SERVERS = {
    r"`train_step` of its own: .* lock": (lambda: _model(kind=OwnTrainStep), {}),
    r"split among the servers": (_model, {"distribution": SPLIT}),
    r"`gradient_accumulation_steps`: .* fails": (_accumulating, {}),
    r"`ema_overwrite_frequency`: .* fails": (_overwriting, {}),
}


@pytest.mark.parametrize("message", UNDER_PARAMETER_SERVERS)
def test_what_workers_of_parameter_servers_cannot_do_is_rejected(message):
    make, how = UNDER_PARAMETER_SERVERS[message]
    with pytest.raises(UserError, match=message) as error:
        _check(make(), replicas=1, strategy="parameter_server", **how)
    assert "under parameter_server Keras 3" in str(error.value)
    _check(make(), replicas=1, strategy="one_device", **how)
