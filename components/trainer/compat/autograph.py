"""Applies AutoGraph to the user's code only.

Keras is written for graph mode and needs no AutoGraph, except for one layer.
TensorFlow's table of packages that are not converted lists `keras`; `tf_keras` is
listed in TensorFlow 2.21, but not in 2.16. Without that entry `fit` first converts a
hundred functions of tf-keras (10 s). Turning AutoGraph off around `train_step` would
also turn it off for the user's layers, where an `if` on a tensor then fails.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from strategos.components.slow_imports import tf

_WRITTEN_FOR_GRAPHS = ("tf_keras", "tensorflow_transform", "strategos.components")
# Of this layer `normalize_weights` has an `if` on a tensor.
_WRITTEN_FOR_AUTOGRAPH = "tf_keras.src.layers.normalization.spectral_normalization"
_STEPS = ("train_step", "test_step", "compute_loss", "compute_metrics")


def convert_user_code_only() -> None:
    """Adds packages that need no AutoGraph to TensorFlow's table of exceptions."""
    from tensorflow.python.autograph.core import config

    known = {str(rule) for rule in config.CONVERSION_RULES}
    rules = map(config.DoNotConvert, _WRITTEN_FOR_GRAPHS)
    new = tuple(rule for rule in rules if str(rule) not in known)
    if new:
        new = (config.Convert(_WRITTEN_FOR_AUTOGRAPH), *new)
    config.CONVERSION_RULES = new + config.CONVERSION_RULES


def convert_methods(model: tf.keras.Model) -> None:
    """Converts the methods of a model that need AutoGraph.

    These are the model's own steps, e.g. `train_step` or `compute_loss`, which Keras
    calls without converting them, and `normalize_weights` of tf-keras's
    SpectralNormalization. Keras converts the user's layers, losses and metrics itself.

    Args:
      model: The compiled model; its methods are replaced.
    """
    import tf_keras

    from strategos.components.trainer.compat import compiled, keras3

    for name in _STEPS:
        if keras3.is_overridden(model, name):
            setattr(model, name, converted(getattr(model, name)))
    for layer in compiled.layers(model):
        if isinstance(layer, tf_keras.layers.SpectralNormalization):
            layer.normalize_weights = converted(layer.normalize_weights)


def converted(method: Callable[..., Any]) -> Callable[..., Any]:
    """A function of the user's that AutoGraph converts where a trace calls it.

    Args:
      method: The function, also one bound to an object.
    """
    autograph = tf.__internal__.autograph

    @functools.wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        converted = autograph.tf_convert(method, autograph.control_status_ctx())
        return converted(*args, **kwargs)

    return call
