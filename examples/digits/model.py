"""A small convolutional network or a perceptron; all images must have one size."""

from __future__ import annotations

import tensorflow as tf

DIGITS = 10


def build_model(context) -> tf.keras.Model:
    """Returns a compiled classifier of `image`.

    The loss depends on the label: a class number, or a one-hot vector.

    Args:
      context: Strategos' training context. Hyperparameters: `network` (`cnn` or `mlp`)
        and `learning_rate`, the start of the cosine decay to zero.

    Raises:
      ValueError: `network` is unknown.
    """
    inputs = context.inputs()
    network = context.hyperparameters["network"]
    if network not in NETWORKS:
        raise ValueError(f"`network` is {network!r}, expected {' or '.join(NETWORKS)}")
    hidden = inputs["image"]
    for layer in NETWORKS[network]():
        hidden = layer(hidden)
    digits = tf.keras.layers.Dense(DIGITS, activation="softmax", name="digit")(hidden)
    model = tf.keras.Model(inputs, digits)
    learning_rate = tf.keras.optimizers.schedules.CosineDecay(
        context.hyperparameters["learning_rate"],
        decay_steps=context.epochs * context.steps_per_epoch,
    )
    one_hot = context.label_spec.shape == [DIGITS]
    model.compile(
        optimizer=tf.keras.optimizers.Adam(learning_rate),
        loss="categorical_crossentropy"
        if one_hot
        else "sparse_categorical_crossentropy",
        metrics=["accuracy"],
    )
    return model


def cnn() -> list[tf.keras.layers.Layer]:
    """Two convolutions, each followed by pooling, and a dense layer."""
    layers = tf.keras.layers
    return [
        layers.Conv2D(32, 3, padding="same", activation="relu"),
        layers.MaxPooling2D(),
        layers.Conv2D(64, 3, padding="same", activation="relu"),
        layers.MaxPooling2D(),
        layers.Flatten(),
        layers.Dense(64, activation="relu"),
    ]


def mlp() -> list[tf.keras.layers.Layer]:
    """Two dense layers over the pixels."""
    layers = tf.keras.layers
    return [
        layers.Flatten(),
        layers.Dense(256, activation="relu"),
        layers.Dense(128, activation="relu"),
    ]


NETWORKS = {"cnn": cnn, "mlp": mlp}
