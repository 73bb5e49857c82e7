"""The learning rate with a larger batch."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from strategos.components.errors import UserError
from strategos.components.trainer.model import learning_rate
from strategos.components.trainer.spec import Settings


def _compiled(optimizer):
    model = tf.keras.Sequential([tf.keras.Input((1,)), tf.keras.layers.Dense(1)])
    model.compile(optimizer, "mse")
    return model


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, 1),
        ({"scale_learning_rate": "linear"}, 4),
        ({"scale_learning_rate": "sqrt"}, 2),
        ({"scale_learning_rate": "linear", "base_batch_size": 32}, 16),
    ],
)
def test_the_factor_is_that_of_the_batch(settings, expected):
    assert learning_rate.factor(Settings(**settings), 512, 4) == expected


@pytest.mark.parametrize("made_by", [tf.keras.optimizers, tf.keras.optimizers.legacy])
def test_a_plain_rate_stays_one_that_callbacks_can_set(made_by):
    model = _compiled(made_by.SGD(0.5, momentum=0.9))
    settings = Settings(scale_learning_rate="linear")
    learning_rate.scale(model, settings, 64, 2)
    assert float(model.optimizer.learning_rate) == 1.0
    assert model.optimizer.momentum == 0.9
    model.optimizer.learning_rate = 0.1


@pytest.mark.parametrize(
    "rate", [0.5, tf.keras.optimizers.schedules.ExponentialDecay(0.5, 1, 1.0)]
)
def test_a_warm_up_rises_from_nothing_to_the_scaled_rate(rate):
    model = _compiled(tf.keras.optimizers.SGD(rate))
    settings = Settings(scale_learning_rate="linear", warm_up_steps=4)
    learning_rate.scale(model, settings, 64, 2)
    weight = model.trainable_variables[1]  # the bias: its gradient is that of the loss
    moved = []
    for _ in range(6):
        before = float(weight[0])
        model.train_on_batch(np.zeros((1, 1)), np.asarray([[before + 0.5]]))
        moved.append(float(weight[0]) - before)
    np.testing.assert_allclose(moved, [0.25, 0.5, 0.75, 1.0, 1.0, 1.0], rtol=1e-5)


@pytest.mark.parametrize("steps", [0, 3])
def test_the_inner_optimizer_of_a_scaled_loss_is_meant(steps):
    inner = tf.keras.optimizers.Adam(0.5)
    loss_scale = tf.keras.mixed_precision.LossScaleOptimizer
    model = _compiled(loss_scale(inner, dynamic=False, initial_scale=128))
    settings = Settings(scale_learning_rate="linear", warm_up_steps=steps)
    learning_rate.scale(model, settings, 64, 2)
    assert isinstance(model.optimizer, loss_scale)
    assert not model.optimizer.dynamic and model.optimizer.initial_scale == 128
    model.train_on_batch(np.zeros((4, 1)), np.ones((4, 1)))
    rate = float(model.optimizer.inner_optimizer.learning_rate)
    assert rate == pytest.approx(1.0 if not steps else 1 / 3)


class Halving(tf.keras.optimizers.SGD):
    """Has an argument and a state that `get_config` lacks."""

    def __init__(self, rate, half=1.0):
        super().__init__(rate)
        self.half = half

    def update_step(self, gradient, variable):
        super().update_step(gradient * self.half, variable)


def _decayed(**excluded):
    optimizer = tf.keras.optimizers.AdamW(0.01, weight_decay=0.5)
    optimizer.exclude_from_weight_decay(**excluded)
    return optimizer


OWN = {
    "excluded by name": lambda: _decayed(var_names=["kernel"]),
    "an argument without a config": lambda: Halving(0.1, half=0.5),
    "averages": lambda: tf.keras.optimizers.Adam(
        0.01, use_ema=True, ema_momentum=0.5, ema_overwrite_frequency=2
    ),
}


@pytest.mark.parametrize("mixed", [False, pytest.param(True, marks=pytest.mark.long)])
@pytest.mark.parametrize("make", OWN.values(), ids=OWN)
def test_a_warm_up_keeps_the_optimizer_that_was_given(make, mixed):
    def trained(settings):
        tf.keras.utils.set_random_seed(1)
        optimizer = make()
        given = optimizer
        if mixed:
            optimizer = tf.keras.mixed_precision.LossScaleOptimizer(given)
        model = _compiled(optimizer)
        learning_rate.scale(model, settings, 64, 2)
        assert getattr(model.optimizer, "inner_optimizer", model.optimizer) is given
        for _ in range(5):
            model.train_on_batch(np.ones((4, 1)), np.zeros((4, 1)))
        return np.concatenate([weight.ravel() for weight in model.get_weights()])

    # A warm-up of one step reaches the whole rate at once.
    ours = trained(Settings(warm_up_steps=1))
    np.testing.assert_array_equal(ours, trained(Settings()))


def test_a_warm_up_leaves_one_rate_in_checkpoints(tmp_path):
    model = _compiled(tf.keras.optimizers.Adam(0.5))
    learning_rate.scale(model, Settings(warm_up_steps=4), 64, 2)
    model.train_on_batch(np.ones((4, 1)), np.zeros((4, 1)))
    path = tf.train.Checkpoint(model=model).write(str(tmp_path / "model"))
    rates = {
        name.partition("/.A")[0]
        for name, _ in tf.train.list_variables(path)
        if "learning_rate" in name
    }
    assert rates == {"model/optimizer/_current_learning_rate"}
    assert float(model.optimizer.learning_rate) == pytest.approx(0.125)


class Own(tf.keras.optimizers.schedules.LearningRateSchedule):
    """A schedule as in tutorials: without a `get_config`."""

    def __call__(self, step):
        return 0.5 / (tf.cast(step, tf.float32) + 1.0)


@pytest.mark.parametrize("kind", ["tf.keras", "legacy", "keras"])
def test_a_schedule_of_the_users_own_is_scaled(kind):
    if kind == "keras":
        import keras

        class Of3(Own, keras.optimizers.schedules.LearningRateSchedule):
            pass

        model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
        model.compile(keras.optimizers.SGD(Of3()), "mse")
    else:
        made_by = tf.keras.optimizers
        made_by = made_by.legacy if kind == "legacy" else made_by
        model = _compiled(made_by.SGD(Own()))
    settings = Settings(scale_learning_rate="linear")
    learning_rate.scale(model, settings, 64, 2)
    bias = model.trainable_variables[1]
    before = float(bias.numpy()[0])
    model.train_on_batch(np.zeros((1, 1)), np.asarray([[before + 0.5]]))
    assert float(bias.numpy()[0]) - before == pytest.approx(1.0)


def test_a_schedule_cannot_be_reduced_by_a_callback():
    model = _compiled(tf.keras.optimizers.SGD(Own()))
    callbacks = {"reduce_learning_rate": {"monitor": "loss"}}
    with pytest.raises(
        UserError, match=r"follows a schedule \(Own\).*\n.*Give the opt"
    ):
        learning_rate.scale(model, Settings(callbacks=callbacks), 64, 2)
    plain = _compiled(tf.keras.optimizers.SGD(0.1))
    learning_rate.scale(plain, Settings(callbacks=callbacks), 64, 2)


def test_an_optimizer_without_a_rate_is_rejected():
    class Own(tf.keras.optimizers.Optimizer):
        def __init__(self):
            super().__init__("own")

        def get_config(self):
            return {}

    with pytest.raises(UserError, match="Own has no `learning_rate` to scale"):
        model = _compiled(Own())
        learning_rate.scale(model, Settings(warm_up_steps=3), 64, 2)
