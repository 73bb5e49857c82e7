"""How optimizers create variables, update, hold their learning rate, and end."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
import tf_keras

from strategos.components.trainer.compat import keras3

_COMPILED = "_update_step_xla"
_FINALIZE = "finalize_variable_values"
_AVERAGES = "_model_variables_moving_average"


def compile_dense_updates_only(model: tf.keras.Model) -> None:
    """Keeps XLA from compiling the updates of embedding tables.

    Where TensorFlow finds a GPU, a tf-keras optimizer compiles its update of each
    variable. The update of a table depends on the number of distinct rows in a batch:
    XLA would compile it again for each new number, in up to a third of a second.

    Args:
      model: A compiled model.
    """
    inner = keras3.unscaled(getattr(model, "optimizer", None))
    compiled = getattr(inner, _COMPILED, None)
    if (
        inner is None or compiled is None
    ):  # Keras 3, and the optimizers before Keras 2.11
        return

    def update(gradient: Any, variable: tf.Variable, key: int) -> Any:
        if isinstance(gradient, tf.IndexedSlices):
            return inner._update_step(gradient, variable)
        return compiled(gradient, variable, key)

    setattr(inner, _COMPILED, update)


def finalize(model: tf.keras.Model) -> None:
    """Does an optimizer's work at the end of training: `use_ema` sets the averages.

    A training that resumes after its last step has not created the averages yet.

    Args:
      model: The trained model, in the scope of its strategy.
    """
    optimizer = model.optimizer
    finalizing = getattr(optimizer, _FINALIZE, None)
    if finalizing is None:  # the optimizers before Keras 2.11
        return
    inner = keras3.unscaled(optimizer)
    # Not where they exist: an optimizer of the user's own may create them anew.
    if getattr(inner, "use_ema", False) and not hasattr(inner, _AVERAGES):
        optimizer.build(model.trainable_variables)
    finalizing(model.trainable_variables)


def is_built(optimizer: Any) -> bool:
    """Whether an optimizer of either Keras has made its variables."""
    return bool(getattr(optimizer, "built", getattr(optimizer, "_built", False)))


def build(model: tf.keras.Model, *, own: bool = False) -> None:
    """Creates the optimizer's variables, so that `fit` traces its step once, not twice.

    Keras 3 does so itself before the first step. Variables of tf-keras's Nadam are not
    created: it counts its updates while it is traced and is right only if it is traced
    twice (NaN under Mirrored otherwise). The user's own optimizer or `train_step` may
    do the same, so their variables are created only with `own`.

    Args:
      model: A compiled model with all its variables, in the scope of its strategy.
      own: Whether to create variables for the user's own optimizer or `train_step`.
    """
    optimizer = model.optimizer
    inner = keras3.unscaled(optimizer)
    is_own = keras3.is_overridden(model, "train_step") or not keras3.is_of_keras(inner)
    early = type(inner) is not tf_keras.optimizers.Nadam and (own or not is_own)
    if hasattr(optimizer, "build") and (early or keras3.is_model(model)):
        optimizer.build(model.trainable_variables)


def rate_of(optimizer: Any) -> Any:
    """The learning rate as given: a variable or a schedule; None if missing.

    The public `learning_rate` has the current value of a schedule.
    """
    if hasattr(optimizer, "_learning_rate"):
        return optimizer._learning_rate
    try:
        return optimizer.learning_rate
    except (AttributeError, ValueError):
        return None


def constant_rate(model: tf.keras.Model) -> tf.Variable | None:
    """The variable of a learning rate that callbacks may change; None of a schedule.

    Args:
      model: A compiled model of either Keras.
    """
    rate = rate_of(keras3.unscaled(model.optimizer))
    return keras3.of_tensorflow(rate) if hasattr(rate, "assign") else None


def follow_schedule(optimizer: Any, schedule: Any) -> None:
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


def let_replicas_set_rate(model: tf.keras.Model) -> None:
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
