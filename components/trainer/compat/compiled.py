"""Private attributes of a compiled Keras model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import tensorflow as tf

from strategos.components.trainer.compat import keras3


def argument(model: tf.keras.Model, name: str) -> Any:
    """The user's argument of `compile`; None if Keras has not kept it.

    `get_compile_config` has only its serialized form.

    Args:
      model: A compiled model.
      name: Name of the argument.
    """
    config = getattr(model, "_compile_config", None)
    return config.config.get(name) if config is not None else None


def changed_trainable(model: tf.keras.Model) -> list[str]:
    """Names of the layers whose `trainable` was changed after `compile`.

    tf-keras undoes the change for `fit`; Keras 3 does not, and the list is empty.
    """
    compiled = getattr(model, "_compiled_trainable_state", None) or {}
    return [x.name for x, value in compiled.items() if x.trainable != value]


def own_metrics(model: tf.keras.Model) -> set[str]:
    """Names of the metrics that are of the user's own classes or functions.

    Args:
      model: A compiled model of either Keras, after its first evaluation.
    """
    return {
        metric.name
        for metric in _flat(model.metrics)
        if not keras3.is_of_keras(metric)
        or not keras3.is_function_of_keras(getattr(metric, "_fn", metric))
    }


def _flat(metrics: Iterable[Any]) -> Iterator[Any]:
    """Metrics without the containers that Keras 3 puts them in."""
    for metric in metrics:
        inner = getattr(metric, "metrics", None)
        yield from _flat(inner) if inner else (metric,)


def layers(model: tf.keras.Model) -> list[tf.keras.layers.Layer]:
    """The model and all its layers, at any depth; `model.layers` has the top level.

    tf-keras also has `submodules`, Keras 3 does not.
    """
    return list(model._flatten_layers())


def penalties(model: tf.keras.Model) -> list[tf.Tensor]:
    """The values of the regularizers of a tf-keras model; float scalars.

    `model.losses` has them among the losses that layers add from their inputs.
    """
    made = [loss() for layer in layers(model) for loss in layer._callable_losses]
    return [penalty for penalty in made if penalty is not None]


def replace_losses(model: tf.keras.Model, by: Callable[[Any], Any]) -> None:
    """Replaces each loss of a compiled tf-keras model, before its first use.

    Args:
      model: A compiled model.
      by: Maps a loss as given (a name, a function, an object) to the new one.
    """
    losses = model.compiled_loss
    losses._losses = tf.nest.map_structure(by, losses._losses)


def replace_metrics(model: tf.keras.Model, by: Callable[[Any], Any]) -> None:
    """Replaces each metric of a compiled tf-keras model, before its first use.

    Args:
      model: A compiled model.
      by: Maps a metric as given (a name, a function, an object) to the new one.
    """
    metrics = model.compiled_metrics
    metrics._metrics = tf.nest.map_structure(by, metrics._metrics)
    weighted = metrics._weighted_metrics
    metrics._weighted_metrics = tf.nest.map_structure(by, weighted)
