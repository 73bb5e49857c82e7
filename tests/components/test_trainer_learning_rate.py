"""The learning rate under a larger batch."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from strategos.components.errors import UserError
from strategos.components.trainer import learning_rate
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


def test_a_plain_rate_stays_one_that_callbacks_can_set():
    model = _compiled(tf.keras.optimizers.SGD(0.5, momentum=0.9))
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
    weight = model.trainable_variables[1]  # the bias: its gradient is the loss's own
    moved = []
    for _ in range(6):
        before = float(weight[0])
        model.train_on_batch(np.zeros((1, 1)), np.asarray([[before + 0.5]]))
        moved.append(float(weight[0]) - before)
    np.testing.assert_allclose(moved, [0.25, 0.5, 0.75, 1.0, 1.0, 1.0], rtol=1e-5)


def test_the_inner_optimizer_of_a_scaled_loss_is_meant():
    inner = tf.keras.optimizers.Adam(0.5)
    model = _compiled(tf.keras.mixed_precision.LossScaleOptimizer(inner))
    learning_rate.scale(model, Settings(scale_learning_rate="linear"), 64, 2)
    assert isinstance(model.optimizer, tf.keras.mixed_precision.LossScaleOptimizer)
    assert float(model.optimizer.inner_optimizer.learning_rate) == 1.0


def test_an_optimizer_without_a_rate_is_refused():
    class Own(tf.keras.optimizers.Optimizer):
        def __init__(self):
            super().__init__("own")

        def get_config(self):
            return {}

    with pytest.raises(UserError, match="Own has no `learning_rate` to scale"):
        model = _compiled(Own())
        learning_rate.scale(model, Settings(warm_up_steps=3), 64, 2)
