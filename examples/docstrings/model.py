"""A recurrent network over the words of a text."""

from __future__ import annotations

import tensorflow as tf

LIBRARIES = 4


def build_model(context) -> tf.keras.Model:
    """Returns a compiled classifier of `words`.

    Each batch is padded to its longest text; the mask of the padding passes through
    the layers, so that it changes no result.

    Args:
      context: Strategos' training context. Hyperparameters: `units` and
        `learning_rate`.
    """
    layers, units = tf.keras.layers, context.hyperparameters["units"]
    inputs = context.inputs()
    padded = inputs["words"].to_tensor()  # with 0
    ids = context.vocabulary_size("words") + 2
    hidden = layers.Embedding(ids, units, mask_zero=True)(padded)
    hidden = layers.Bidirectional(layers.GRU(units))(hidden)
    library = layers.Dense(LIBRARIES, activation="softmax", name="library")(hidden)
    model = tf.keras.Model(inputs, library)
    model.compile(
        tf.keras.optimizers.Adam(context.hyperparameters["learning_rate"]),
        "sparse_categorical_crossentropy",
        metrics=["accuracy"],
    )
    return model
