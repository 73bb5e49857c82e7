"""`trainer.optimizer` does what the arguments of the optimizer do, of either Keras."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

from strategos.components.errors import UserError
from strategos.components.trainer.model.optimizer import settings as optimizer_settings

PACKAGES = pytest.mark.parametrize("package", [tf.keras, keras], ids=["2", "3"])
AS_ARGUMENTS = [
    ({"clip": {"norm": 0.05}}, {"clipnorm": 0.05}),
    ({"clip": {"norm": None, "global_norm": 0.1}}, {"global_clipnorm": 0.1}),
    ({"clip": {"value": 0.01}}, {"clipvalue": 0.01}),
    ({"ema": 0.5}, {"use_ema": True, "ema_momentum": 0.5}),
    (
        {"ema": 0.9, "clip": {"value": 0.02}},
        {"use_ema": True, "ema_momentum": 0.9, "clipvalue": 0.02},
    ),
]


def _trained(package, settings=None, arguments=None):
    package.utils.set_random_seed(1)
    model = package.Sequential([package.Input((3,)), package.layers.Dense(2)])
    optimizer = package.optimizers.Adam(0.1, **(arguments or {}))
    model.compile(optimizer, "mse", run_eagerly=True)
    optimizer_settings.configure(model, settings or {})
    generator = np.random.default_rng(0)
    x, y = (generator.normal(size=(12, n)).astype("float32") for n in (3, 2))
    model.fit(x, y, batch_size=4, epochs=2, shuffle=False, verbose=0)
    return model.get_weights()


@PACKAGES
@pytest.mark.parametrize(
    ("settings", "arguments"),
    [
        AS_ARGUMENTS[-1],
        *(pytest.param(*x, marks=pytest.mark.long) for x in AS_ARGUMENTS[:-1]),
    ],
)
def test_settings_train_as_the_arguments_of_the_optimizer(package, settings, arguments):
    found = _trained(package, settings)
    expected = _trained(package, arguments=arguments)
    plain = _trained(package)
    for value, theirs in zip(found, expected, strict=True):
        np.testing.assert_array_equal(value, theirs)
    assert any(np.abs(a - b).max() > 1e-3 for a, b in zip(found, plain, strict=True))


@PACKAGES
@pytest.mark.parametrize(
    ("settings", "arguments", "message"),
    [
        ({"clip": {"norm": 1.0}}, {"clipvalue": 0.5}, r"clip: .*Adam with clipvalue"),
        ({"ema": 0.9}, {"use_ema": True}, r"ema: .*Adam with use_ema=True"),
    ],
)
def test_what_build_model_sets_too_is_rejected(package, settings, arguments, message):
    with pytest.raises(UserError, match=rf"trainer.optimizer.{message}"):
        _trained(package, settings, arguments)


def test_the_optimizers_of_before_keras_2_11_are_rejected():
    model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
    model.compile(tf.keras.optimizers.legacy.SGD(), "mse")
    with pytest.raises(UserError, match="SGD is not an optimizer of `tf.keras.optim"):
        optimizer_settings.configure(model, {"ema": 0.9})
