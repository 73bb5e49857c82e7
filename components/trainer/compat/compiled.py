"""What a compiled Keras model holds and has no public name for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf


def argument(model: tf.keras.Model, name: str) -> Any:
    """What the user passed to `compile` as `name`; None where Keras has not kept it.

    `get_compile_config` gives it serialized.
    """
    config = getattr(model, "_compile_config", None)
    return config.config.get(name) if config is not None else None


def changed_trainable(model: tf.keras.Model) -> list[str]:
    """The names of layers whose `trainable` differs from that at `compile`.

    tf-keras undoes the change for `fit`; Keras 3 does not, and has none.
    """
    compiled = getattr(model, "_compiled_trainable_state", None) or {}
    return [x.name for x, value in compiled.items() if x.trainable != value]


def layers(model: tf.keras.Model) -> list[tf.keras.layers.Layer]:
    """The model and all layers in it, at any depth; `model.layers` has the first only.

    tf-keras has `submodules` besides, Keras 3 has not.
    """
    return list(model._flatten_layers())


def penalties(model: tf.keras.Model) -> list[tf.Tensor]:
    """The values of the regularizers of a tf-keras model; float scalars.

    `model.losses` has them among the losses that layers add from their inputs.
    """
    made = [loss() for layer in layers(model) for loss in layer._callable_losses]
    return [penalty for penalty in made if penalty is not None]


def replace_losses(model: tf.keras.Model, by: Callable[[Any], Any]) -> None:
    """Replaces each loss that a tf-keras model was compiled with, before its first use.

    Args:
      model: Compiled.
      by: From a loss as it was given (a name, a function, an object) to the new one.
    """
    losses = model.compiled_loss
    losses._losses = tf.nest.map_structure(by, losses._losses)


def replace_metrics(model: tf.keras.Model, by: Callable[[Any], Any]) -> None:
    """Replaces each metric that a tf-keras model was compiled with: see the losses."""
    metrics = model.compiled_metrics
    metrics._metrics = tf.nest.map_structure(by, metrics._metrics)
    weighted = metrics._weighted_metrics
    metrics._weighted_metrics = tf.nest.map_structure(by, weighted)
