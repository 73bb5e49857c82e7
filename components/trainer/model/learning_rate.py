"""Scales the learning rate for a larger batch, with a warm-up.

Goyal et al., "Accurate, Large Minibatch SGD" (2017): for a batch that is k times as
large, multiply the learning rate by k, reached linearly over the first steps.
Krizhevsky, "One weird trick" (2014) derives the square root of k from the variance of
the gradient.
"""

from __future__ import annotations

import math
from typing import Any

import tensorflow as tf

from strategos.components.errors import UserError
from strategos.components.trainer.compat import keras3, optimizers
from strategos.components.trainer.spec import Settings

_SCALES = {"none": lambda k: 1.0, "linear": lambda k: k, "sqrt": math.sqrt}


class Scaled:
    """A learning rate times `factor`, reached linearly over the warm-up steps.

    `_schedule` makes it a Keras schedule.

    Args:
      rate: The model's own rate: a number or a schedule.
      factor: Multiplier of the rate.
      warm_up_steps: Steps until the factor is reached, e.g. 1/4 of it in the first step
        of 4; 0 for no warm-up.
    """

    def __init__(self, rate: Any, factor: float, warm_up_steps: int):
        self._rate = rate
        self._factor = factor
        self._steps = warm_up_steps

    def __call__(self, step: tf.Tensor) -> tf.Tensor:
        """The learning rate of a step, float32 scalar.

        Args:
          step: Step counted from 0, integer scalar.
        """
        rate = self._rate(step) if callable(self._rate) else self._rate
        if not self._steps:
            return rate * self._factor
        risen = tf.minimum(tf.cast(step + 1, tf.float32) / self._steps, 1.0)
        return rate * self._factor * risen

    def get_config(self) -> dict[str, Any]:
        """The arguments of `__init__`."""
        return {
            "rate": self._rate,
            "factor": self._factor,
            "warm_up_steps": self._steps,
        }


def factor(settings: Settings, batch_size: int, replicas: int) -> float:
    """The factor for the model's own learning rate.

    The rate belongs to a batch of `base_batch_size` rows, by default one replica's
    batch. For example, linear scaling on 4 replicas gives 4 by default.

    Args:
      settings: The settings of the run.
      batch_size: Rows of a global batch.
      replicas: Copies of the model that share the batch.
    """
    base = settings.base_batch_size or batch_size / replicas
    return _SCALES[settings.scale_learning_rate](batch_size / base)


def scale(
    model: tf.keras.Model, settings: Settings, batch_size: int, replicas: int
) -> None:
    """Sets the scaled learning rate in the optimizer of a compiled model.

    Args:
      model: The compiled model.
      settings: The settings of the run.
      batch_size: Rows of a global batch.
      replicas: Copies of the model that share the batch.

    Raises:
      UserError: The optimizer has no learning rate to scale; or it follows a schedule,
        but the callback `reduce_learning_rate` is set.
    """
    inner = keras3.unscaled(model.optimizer)
    if settings.callbacks.get("reduce_learning_rate"):
        _check_reducible(inner)
    times, steps = factor(settings, batch_size, replicas), settings.warm_up_steps
    if times == 1 and not steps:
        return
    rate, keras = optimizers.rate_of(inner), keras3.package_of(model)
    if rate is None:
        raise UserError(
            f"{type(inner).__name__} has no `learning_rate` to scale",
            key="trainer.scale_learning_rate",
            remedy="Take an optimizer of `tf.keras.optimizers`, or remove "
            "`scale_learning_rate` and `warm_up_steps`.",
        )
    if callable(rate):
        optimizers.follow_schedule(inner, _schedule(keras)(rate, times, steps))
    elif not steps:
        inner.learning_rate = _number(rate) * times
    else:
        optimizers.follow_schedule(inner, _schedule(keras)(_number(rate), times, steps))


def _number(rate: Any) -> float:
    return float(rate.numpy() if hasattr(rate, "numpy") else rate)


def _check_reducible(optimizer: Any) -> None:
    rate = optimizers.rate_of(optimizer)
    if callable(rate):
        raise UserError(
            "the optimizer that `build_model` makes follows a schedule "
            f"({type(rate).__name__}), which sets the rate at each step: nothing "
            "would be reduced",
            key="trainer.callbacks.reduce_learning_rate",
            remedy="Give the optimizer a number, or remove the callback.",
        )


def _schedule(keras: Any) -> type:
    """`Scaled` as a schedule of the given Keras package."""
    base = keras.optimizers.schedules.LearningRateSchedule
    return type("Scaled", (Scaled, base), {"__module__": __name__})
