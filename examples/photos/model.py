"""A ResNet50 on small pictures, which the model itself decodes and augments."""

from __future__ import annotations

import tensorflow as tf

SIZE = 32
"""Height and width that the network sees; the JPEGs may be of any larger size."""


class Pictures(tf.keras.layers.Layer):
    """Decodes JPEGs and cuts out a square: at random and flipped in training.

    The random numbers depend on the seed, the step and the row alone, so that a resumed
    training, or one on several devices, sees the same pictures.

    Args:
      context: Strategos' training context.
    """

    def __init__(self, context, **kwargs):
        super().__init__(**kwargs)
        self._row_seeds = context.row_seeds

    def call(self, encoded: tf.Tensor, training: bool | None = None) -> tf.Tensor:
        """Maps string [batch, 1] to float32 [batch, SIZE, SIZE, 3], from 0 to 255."""
        encoded = tf.reshape(encoded, [-1])
        if training:
            rows = (encoded, self._row_seeds(encoded))
            cut = tf.map_fn(_augmented, rows, fn_output_signature=tf.uint8)
        else:
            cut = tf.map_fn(_centre, encoded, fn_output_signature=tf.uint8)
        return tf.cast(tf.ensure_shape(cut, [None, SIZE, SIZE, 3]), tf.float32)


def _augmented(row: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
    jpeg, seed = row
    picture = tf.io.decode_jpeg(jpeg, channels=3)
    cut = tf.image.stateless_random_crop(picture, [SIZE, SIZE, 3], seed)
    return tf.image.stateless_random_flip_left_right(cut, seed)


def _centre(jpeg: tf.Tensor) -> tf.Tensor:
    picture = tf.io.decode_jpeg(jpeg, channels=3)
    return tf.image.resize_with_crop_or_pad(picture, SIZE, SIZE)


def build_model(context) -> tf.keras.Model:
    """Returns a compiled classifier of `image`.

    Args:
      context: Strategos' training context. Hyperparameters: `weights`, a local file of
        ResNet50's weights without its top, e.g. that of Keras for ImageNet, or `none`;
        `learning_rate`, of the first phase.
    """
    weights = context.hyperparameters["weights"]
    base = tf.keras.applications.ResNet50(
        include_top=False,
        weights=None if weights == "none" else weights,
        input_shape=(SIZE, SIZE, 3),
        pooling="avg",
    )  # named "resnet50": `base` in pipeline.yaml
    inputs = context.inputs()
    hidden = Pictures(context, name="pictures")(inputs["image"])
    hidden = tf.keras.applications.resnet50.preprocess_input(hidden)
    # BatchNormalization keeps its statistics, also in a phase that trains the base.
    hidden = base(hidden, training=False)
    hidden = tf.keras.layers.LayerNormalization(name="scale")(hidden)
    flower = tf.keras.layers.Dense(1, "sigmoid", name="flower")(hidden)
    model = tf.keras.Model(inputs, flower)
    model.compile(
        optimizer=tf.keras.optimizers.Adam(context.hyperparameters["learning_rate"]),
        loss="binary_crossentropy",
        metrics=["accuracy"],
    )
    return model
