"""Optimizers that depend on when their variables are created."""

from __future__ import annotations

import tensorflow as tf

from strategos.components.trainer.compat import keras3


def build(model: tf.keras.Model) -> None:
    """Creates the optimizer's variables, so that `fit` traces its step once, not twice.

    Not those of Nadam, which counts its updates while it is traced and is right only if
    it is traced twice (NaN under Mirrored otherwise), nor those of an optimizer of the
    user's own, which may do the same.

    Args:
      model: A compiled model with all its variables, in the scope of its strategy.
    """
    optimizer = model.optimizer
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    if not hasattr(optimizer, "build") or not keras3.is_of_keras(inner):
        return
    if type(inner) is not tf.keras.optimizers.Nadam:
        optimizer.build(model.trainable_variables)
