"""Predicts how likely a flight is late: embeddings and numbers, then dense layers."""

from __future__ import annotations

import tensorflow as tf
from features import (
    CARRIERS,
    CROSS_BUCKETS,
    DAYS,
    DISTANCE_BUCKETS,
    HOURS,
    ORIGINS,
)


def build_model(context) -> tf.keras.Model:
    """Returns a compiled model of the features of `preprocessing.py`.

    Args:
      context: Strategos' training context. Hyperparameters: `units`, the widths of the
        dense layers, and `learning_rate`, the start of the cosine decay to zero.
    """
    inputs = context.inputs()
    embeddings = {  # feature: (values, dimensions)
        "carrier": (len(CARRIERS) + 1, 4),
        "origin": (len(ORIGINS) + 1, 2),
        "dest": (context.vocabulary_size("dest") + 1, 8),
        "carrier_at_origin": (CROSS_BUCKETS, 4),
        "distance_bucket": (DISTANCE_BUCKETS, 2),
        "hour": (HOURS, 6),
        "day_of_year": (DAYS, 16),
    }
    parts = [inputs["numeric"], inputs["cyclic"]]
    for name, (values, dimensions) in embeddings.items():
        embedding = tf.keras.layers.Embedding(values, dimensions, name=f"{name}_vector")
        parts.append(tf.keras.layers.Flatten()(embedding(inputs[name])))
    hidden = tf.keras.layers.Concatenate()(parts)
    for units in context.hyperparameters["units"]:
        hidden = tf.keras.layers.Dense(units, activation="relu")(hidden)
    late = tf.keras.layers.Dense(1, activation="sigmoid", name="late")(hidden)
    model = tf.keras.Model(inputs, late)
    learning_rate = tf.keras.optimizers.schedules.CosineDecay(
        context.hyperparameters["learning_rate"],
        decay_steps=context.epochs * context.steps_per_epoch,
    )
    model.compile(
        optimizer=tf.keras.optimizers.Adam(learning_rate),
        loss=tf.keras.losses.BinaryCrossentropy(),
        metrics=[tf.keras.metrics.AUC(name="auc")],
    )
    return model
