"""Settings that Keras silently ignores, checked in whole trainings."""

from __future__ import annotations

import importlib
import json
import sys

import numpy as np
import pytest
import tensorflow as tf

from strategos.components import events
from strategos.components.errors import UserError
from strategos.components.trainer.distribution.environment import ClusterSpec
from strategos.components.trainer.model import effects
from strategos.components.trainer.operation import Operation
from strategos.components.trainer.run import session

MODEL = """
import tensorflow as tf

BCE = "binary_crossentropy"

def build_model(context):
    keras = tf.keras
    inputs = context.inputs()
    hidden = keras.layers.Dense(4, "relu", name="hidden")(inputs["distance"])
    hidden = keras.layers.Dropout(0.5, name="drop")(hidden)
    late = keras.layers.Dense(1, "sigmoid", name="late")(hidden)
    far = keras.layers.Dense(1, "sigmoid", name="far")(hidden)
    wide = keras.layers.Dense(3, "sigmoid", name="wide")(hidden)
    raw = keras.layers.Dense(1, name="raw")(hidden)
    model = keras.Model(inputs, {outputs})
    model.compile(keras.optimizers.Adam(0.01), {compiled})
    {after}
    return model

class Late(tf.keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        if epoch == {epoch}:
            model, layer = self.model, self.model.get_layer
            {change}

def callbacks(context):
    return [Late()]
"""


@pytest.fixture
def train(workload, make_spec, tmp_path):
    """Trains a model in this process; returns facts and events."""

    def run(outputs="late", compiled="BCE", after="", change="pass", epoch=1):
        source = MODEL
        parts = {
            "outputs": outputs,
            "compiled": compiled,
            "after": after,
            "change": change,
            "epoch": str(epoch),
        }
        for name, text in parts.items():
            source = source.replace(f"{{{name}}}", text)
        workload.write_module("effects_model", source)
        sys.modules.pop("effects_model", None)
        importlib.invalidate_caches()
        sink = tmp_path / "events.jsonl"
        events.open_sink(str(sink))
        try:
            spec = make_spec(module="effects_model", epochs=2, batch_size=500)
            weights = str(tmp_path / "weights")
            facts = session.train(spec, Operation(), ClusterSpec(), weights)
        finally:
            events.open_sink(None)
        told = [json.loads(line) for line in sink.read_text().splitlines()]
        return facts, [x["message"] for x in told if x["event"] == "warning"]

    return run


HEADS = '{"late": late, "far": far}'


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        (
            {"outputs": HEADS, "compiled": '{"late": BCE, "far": BCE}'},
            r"`build_model`: the outputs `(far|late)` and `(far|late)` have a loss "
            r"each, but an example has one label, `late`",
        ),
        (
            {"outputs": "[late, far]", "compiled": "[BCE, 'mse']"},
            r"the outputs `late` and `far` have a loss each",
        ),
        (
            {"outputs": "[late, wide]", "compiled": "'mse'"},
            r"3 output unit.* label `late` has 1 value",
        ),
        (
            {"outputs": "[late, raw]", "compiled": '{"raw": BCE}'},
            r"gives logits .last activation: linear",
        ),
        (
            {"compiled": "BCE, weighted_metrics=['accuracy', tf.keras.metrics.AUC()]"},
            r"weighted_metrics .accuracy, auc.*no weights.*move them to `metrics`",
        ),
        (
            {"after": "model.get_layer('hidden').trainable = False"},
            r"`trainable` of `hidden` was changed after `compile`",
        ),
        (
            {"change": "layer('hidden').trainable = False"},
            r"callbacks: `hidden.trainable` was changed during training.* no effect",
        ),
    ],
)
def test_settings_that_keras_silently_ignores_are_rejected_by_name(
    train, setting, message
):
    with pytest.raises(UserError, match=message):
        train(**setting)


@pytest.mark.parametrize(
    ("setting", "warning"),
    [
        ({"outputs": HEADS, "compiled": "BCE"}, "`far` and `late` are all compared"),
        pytest.param(
            {
                "outputs": HEADS,
                "compiled": '{"late": BCE}, metrics={"far": ["AUC"]}',
            },
            "the outputs `late` and `far` are all compared with the one label `late`",
            marks=pytest.mark.long,
        ),
        pytest.param(
            {"outputs": HEADS, "compiled": '{"late": BCE}'},
            None,
            marks=pytest.mark.long,
        ),
        pytest.param(
            {
                "outputs": '{"late": late}',
                "compiled": '{"late": BCE}',
                "change": "model.optimizer.learning_rate = 0.0",
            },
            None,
            marks=pytest.mark.long,
        ),
        pytest.param(
            {
                "compiled": "BCE, metrics=['AUC'], loss_weights=[2.0]",
                "change": "layer('drop').rate = 0.1",
                "epoch": 0,
            },
            None,
            marks=pytest.mark.long,
        ),
        (
            {
                "change": "layer('hidden').trainable = False",
                "compiled": "BCE, run_eagerly=True",
            },
            None,
        ),
    ],
)
def test_settings_with_an_effect_train_with_a_warning_if_misleading(
    train, setting, warning
):
    facts, warnings = train(**setting)
    assert facts["steps"] == 4
    assert len(warnings) == bool(warning)
    assert all(warning in text for text in warnings)


@pytest.fixture
def watched():
    """A compiled model in its first epoch, and what watches it there."""
    inputs = tf.keras.Input((2,))
    hidden = tf.keras.layers.Dropout(0.5, name="drop")(inputs)
    model = tf.keras.Model(inputs, tf.keras.layers.Dense(1)(hidden))
    model.compile(tf.keras.optimizers.Adam(0.01), "mse")
    return model, _watch(model)


def _watch(model):
    watch = effects.Unchanged(model)
    watch.set_model(model)
    watch.on_train_begin()
    watch.on_epoch_begin(0)
    return watch


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ("model.get_layer('drop').rate = 0.1", "drop.rate"),
        ("model.optimizer = tf.keras.optimizers.SGD()", "model.optimizer"),
        ("model.loss = 'mae'", "model.loss"),
        ("model.optimizer.beta_1 = 0.5", "optimizer.beta_1"),
    ],
)
def test_a_change_during_an_epoch_is_rejected_by_name(watched, change, named):
    model, watch = watched
    exec(change, {"tf": tf, "model": model})
    with pytest.raises(UserError, match=f"callbacks: `{named}`.* was changed during"):
        watch.on_epoch_end(0)


def test_a_schedule_without_a_configuration_is_followed():
    class Own(tf.keras.optimizers.schedules.LearningRateSchedule):
        """As in tutorials: without a `get_config`."""

        def __call__(self, step):
            return 0.5 / (tf.cast(step, tf.float32) + 1.0)

    model = tf.keras.Sequential([tf.keras.Input((2,)), tf.keras.layers.Dense(1)])
    model.compile(tf.keras.optimizers.Adam(Own()), "mse")
    watch = _watch(model)
    model.optimizer.beta_1 = 0.5
    with pytest.raises(UserError, match=r"`optimizer.beta_1` was changed"):
        watch.on_epoch_end(0)


def test_frozen_after_compile_keras_trains_on():
    """Keras's silent error behind the rejection; fails once Keras fixes it."""
    model = tf.keras.Sequential([tf.keras.Input((2,)), tf.keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    rows = np.ones((8, 2), np.float32), np.ones((8, 1), np.float32)
    model.fit(*rows, verbose=0)
    model.layers[0].trainable = False
    before = model.get_weights()[0]
    model.fit(*rows, verbose=0)
    assert np.abs(model.get_weights()[0] - before).max() > 0


def test_keras_3_is_watched_alike():
    import keras

    inputs = keras.Input((2,))
    hidden = keras.layers.Dense(4, name="hidden")(inputs)
    model = keras.Model(inputs, keras.layers.Dense(1)(hidden))
    model.compile(keras.optimizers.Adam(0.01), "mse")
    model.get_layer("hidden").trainable = False  # Keras 3 applies it in `fit`
    effects.check_compiled(model, "here")
    watch = _watch(model)
    model.optimizer.learning_rate = 0.5
    watch.on_epoch_end(0)
    model.get_layer("hidden").trainable = True
    with pytest.raises(UserError, match="`hidden.trainable` was changed"):
        watch.on_epoch_end(1)
