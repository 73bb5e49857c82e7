"""The smaller batch at the end of an epoch, under several replicas.

Its N rows are split among R replicas as evenly as possible, n each. Keras averages the
loss over the rows of a replica and then over the replicas; where the n differ, that is
no average over the N rows (off by 3e-3 for 3 + 2 rows). Scaling the loss of a replica
by n * R / N makes it one, so that gradients equal those of one device. Nothing is
padded: metrics see real rows only.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from strategos.components.trainer import keras3
from strategos.components.trainer.context import TrainingContext
from strategos.components.trainer.spec import Settings


def weigh(model: tf.keras.Model, context: TrainingContext) -> None:
    """Lets the loss of each row count alike in the last batch of an epoch.

    Only for a model with Keras's own `train_step` and `compute_loss`.
    """
    rest = context.rows % context.global_batch_size
    if rest % context.replicas == 0:
        return  # each replica has as many rows as any other
    compute_loss = model.compute_loss
    replicas = context.replicas

    def weighed(
        x: Any = None, y: Any = None, y_pred: Any = None, sample_weight: Any = None
    ) -> tf.Tensor:
        loss = compute_loss(x, y, y_pred, sample_weight)
        # Keras has divided the penalties by the replicas: they count once, as they are.
        penalty = tf.add_n(model.losses) / replicas if model.losses else 0.0
        rows = context.rows_of_step(tf.cast(model.optimizer.iterations, tf.int64))
        mine = tf.shape(tf.nest.flatten(y)[0], tf.int64)[0]
        share = mine * replicas / rows
        share = tf.cast(share, loss.dtype)
        return (loss - tf.cast(penalty, loss.dtype)) * share + penalty

    model.compute_loss = weighed


def must_drop(
    model: tf.keras.Model, context: TrainingContext, settings: Settings, strategy: str
) -> str | None:
    """Why a smaller last batch cannot be trained on, or None.

    Args:
      model: The compiled model.
      context: The facts of this run.
      settings: What else decides the result.
      strategy: Name of the strategy.
    """
    if strategy == "tpu":
        return "a TPU takes batches of one size only"
    if context.replicas == 1 or context.rows % context.global_batch_size == 0:
        return None
    if settings.steps_per_execution > 1:
        # Within one execution a collective keeps the shapes of its first step.
        return "there are several steps per execution under several replicas"
    if keras3.is_model(model):
        return "the model is one of Keras 3"
    for name in ("train_step", "compute_loss"):
        if getattr(type(model), name) is not getattr(tf.keras.Model, name):
            return f"the model has a `{name}` of its own"
    if any(isinstance(x, tf.keras.layers.BatchNormalization) for x in _layers(model)):
        return "the model has BatchNormalization, which takes a mean over the batch"
    return None


def _layers(model: tf.keras.Model) -> list[tf.keras.layers.Layer]:
    return [x for x in model.submodules if isinstance(x, tf.keras.layers.Layer)]
