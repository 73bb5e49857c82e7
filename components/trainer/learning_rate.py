"""The learning rate under a larger batch: scaled, and reached by a warm-up.

Goyal et al., "Accurate, Large Minibatch SGD" (2017): when the batch is k times as
large, so is the learning rate, reached linearly over the first steps. The square root
of k is what Krizhevsky, "One weird trick" (2014) derives from the variance of the
gradient.
"""

from __future__ import annotations

import math
from typing import Any

import tensorflow as tf

from strategos.components.errors import UserError
from strategos.components.trainer import keras3
from strategos.components.trainer.spec import Settings

_SCALES = {"none": lambda k: 1.0, "linear": lambda k: k, "sqrt": math.sqrt}


class Scaled:
    """A learning rate that rises from 0 to `factor` times its value, then follows it.

    Becomes a schedule of Keras by `_schedule`.

    Args:
      rate: The rate as the model has it: a number or a schedule.
      factor: What it is multiplied by.
      warm_up_steps: Steps in which the factor is reached; 0 for none.
    """

    def __init__(self, rate: Any, factor: float, warm_up_steps: int):
        self._rate = rate
        self._factor = factor
        self._steps = warm_up_steps

    def __call__(self, step: tf.Tensor) -> tf.Tensor:
        """The rate of `step`, counted from 0; float32 scalar."""
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
    """What the model's own learning rate is multiplied by.

    The batch that it was chosen for is `base_batch_size`, or else that of a replica.
    """
    base = settings.base_batch_size or batch_size / replicas
    return _SCALES[settings.scale_learning_rate](batch_size / base)


def scale(
    model: tf.keras.Model, settings: Settings, batch_size: int, replicas: int
) -> None:
    """Gives the optimizer of a compiled model its scaled learning rate.

    Raises:
      UserError: The optimizer has no learning rate to scale.
    """
    times = factor(settings, batch_size, replicas)
    if times == 1 and not settings.warm_up_steps:
        return
    optimizer, keras = model.optimizer, keras3.package_of(model)
    inner = getattr(optimizer, "inner_optimizer", None)  # of a LossScaleOptimizer
    scaled = _scaled(keras, inner or optimizer, times, settings.warm_up_steps)
    if inner:
        scaled = keras.mixed_precision.LossScaleOptimizer(scaled)
    model.optimizer = scaled


def let_replicas_set_it(model: tf.keras.Model) -> None:
    """Lets a schedule's current rate be set under CentralStorageStrategy.

    tf-keras keeps it in a variable that each replica assigns, and does not say whose
    value counts; this strategy then refuses the assignment, the others do not ask.
    """
    optimizer = getattr(model.optimizer, "inner_optimizer", model.optimizer)
    rate = getattr(optimizer, "_current_learning_rate", None)
    if rate is not None:
        optimizer._current_learning_rate = tf.Variable(
            rate,
            trainable=False,
            name="current_learning_rate",
            aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
        )


def _scaled(keras: Any, optimizer: Any, times: float, warm_up_steps: int) -> Any:
    config = getattr(optimizer, "get_config", dict)()
    if "learning_rate" not in config:
        raise UserError(
            f"trainer.scale_learning_rate: {type(optimizer).__name__} has no "
            "`learning_rate` to scale. Take one of `tf.keras.optimizers`, or remove "
            "`scale_learning_rate` and `warm_up_steps`."
        )
    rate = config["learning_rate"]
    if isinstance(rate, dict):
        rate = keras.optimizers.schedules.deserialize(rate)
    if warm_up_steps or callable(rate):
        rate = _schedule(keras)(rate, times, warm_up_steps)
    else:
        rate = float(rate) * times
    return type(optimizer).from_config({**config, "learning_rate": rate})


def _schedule(keras: Any) -> type:
    """`Scaled` as a schedule of the given Keras."""
    base = keras.optimizers.schedules.LearningRateSchedule
    return type("Scaled", (Scaled, base), {"__module__": __name__})
