"""A small network with embeddings of the hashed names."""

from __future__ import annotations

import tensorflow as tf

_EMBEDDINGS = {"carrier_at_origin": (256, 4), "dest": (256, 8), "hour": (24, 6)}


def build_model(context):
    """Returns a compiled model of the features of `preprocessing.py`."""
    inputs = context.inputs()
    parts = [inputs["numeric"]]
    for name, (values, dimensions) in _EMBEDDINGS.items():
        vector = tf.keras.layers.Embedding(values, dimensions, name=f"{name}_vector")
        parts.append(tf.keras.layers.Flatten()(vector(inputs[name])))
    hidden = tf.keras.layers.Concatenate()(parts)
    hidden = tf.keras.layers.Dense(64, activation="relu")(hidden)
    hidden = tf.keras.layers.Dense(32, activation="relu")(hidden)
    late = tf.keras.layers.Dense(1, activation="sigmoid", name="late")(hidden)
    model = tf.keras.Model(inputs, late)
    model.compile(
        optimizer=tf.keras.optimizers.Adam(1e-3),
        loss="binary_crossentropy",
        metrics=[tf.keras.metrics.AUC(name="auc")],
    )
    return model
