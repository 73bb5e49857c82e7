"""Learning rates as optimizers hold them."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from strategos.components.trainer.compat import keras3


def given(optimizer: Any) -> Any:
    """The learning rate as given: a variable or a schedule; None if missing.

    The public `learning_rate` has the current value of a schedule.
    """
    if hasattr(optimizer, "_learning_rate"):
        return optimizer._learning_rate
    try:
        return optimizer.learning_rate
    except (AttributeError, ValueError):
        return None


def follow(optimizer: Any, schedule: Any) -> None:
    """Makes an optimizer follow a schedule in place of the rate that it was given.

    The setter of tf-keras takes a schedule, but creates the variable of the current
    rate in the first step only, and keeps the variable of the old rate in checkpoints.

    Args:
      optimizer: The optimizer, of either Keras; call this in its strategy's scope.
      schedule: A schedule of the same Keras package.
    """
    if not hasattr(optimizer, "_build_learning_rate"):
        optimizer.learning_rate = schedule
        # Keras 3 has taken a variable out of a list, which TensorFlow would not save.
        tracked = getattr(optimizer, "_variables", None)
        if tracked is not None and hasattr(tracked, "_update_snapshot"):
            tracked._non_append_mutation = tracked._external_modification = False
            tracked._update_snapshot()
        return
    del optimizer._learning_rate
    optimizer._learning_rate = optimizer._build_learning_rate(schedule)


def let_replicas_set_it(model: tf.keras.Model) -> None:
    """Allows a schedule's current rate to be set under CentralStorageStrategy.

    tf-keras keeps the rate in a variable that each replica assigns, without an
    `aggregation`. CentralStorageStrategy rejects that; other strategies do not check.

    Args:
      model: The compiled model.
    """
    optimizer = keras3.unscaled(model.optimizer)
    rate = getattr(optimizer, "_current_learning_rate", None)
    if rate is not None:
        optimizer._current_learning_rate = tf.Variable(
            rate,
            trainable=False,
            name="current_learning_rate",
            aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
        )
