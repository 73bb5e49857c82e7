"""AutoGraph for the user's code only.

Keras is written for graph mode and needs no AutoGraph. TensorFlow's table of packages
to leave alone lists `keras`; `tf_keras` is in that of TensorFlow 2.21, not in that of
2.16. Without that entry `fit` first converts a hundred functions of tf-keras (10 s).
Turning AutoGraph off around `train_step` would be no substitute: it reaches the user's
layers, whose `if` on a tensor then fails.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import tensorflow as tf

_WRITTEN_FOR_GRAPHS = ("tf_keras", "tensorflow_transform", "strategos.components")
_STEPS = ("train_step", "test_step", "compute_loss", "compute_metrics")


def convert_user_code_only() -> None:
    """Enters packages that need no AutoGraph into its table of those to leave alone."""
    from tensorflow.python.autograph.core import config

    known = {str(rule) for rule in config.CONVERSION_RULES}
    rules = map(config.DoNotConvert, _WRITTEN_FOR_GRAPHS)
    new = tuple(rule for rule in rules if str(rule) not in known)
    config.CONVERSION_RULES = new + config.CONVERSION_RULES


def convert_own_steps(model: tf.keras.Model) -> None:
    """Lets a model's own `train_step` and its like be converted.

    Keras, itself left alone, calls them plainly. Layers, losses and metrics it converts
    by the same means as here.
    """
    from strategos.components.trainer.compat.keras3 import package_of

    plain = package_of(model).Model
    for name in _STEPS:
        if getattr(type(model), name) is not getattr(plain, name):
            setattr(model, name, _converted(getattr(model, name)))


def _converted(method: Callable[..., Any]) -> Callable[..., Any]:
    import tensorflow as tf

    autograph = tf.__internal__.autograph

    @functools.wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        converted = autograph.tf_convert(method, autograph.control_status_ctx())
        return converted(*args, **kwargs)

    return call
