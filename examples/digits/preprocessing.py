"""Decodes images to pixels, by TensorFlow Transform."""

from __future__ import annotations

from collections.abc import Mapping

import tensorflow as tf


def preprocessing_fn(inputs: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """scikit-learn's digits: see `decode`."""
    return decode(inputs, size=8)


def decode(inputs: Mapping[str, tf.Tensor], size: int) -> dict[str, tf.Tensor]:
    """Decodes PNGs of `size` x `size` pixels; images of another size raise an error.

    Returns:
      `image`: float32 [batch, size, size, 1], from 0 to 1; `label`: int64 [batch, 1].
    """

    def pixels(png: tf.Tensor) -> tf.Tensor:
        return tf.ensure_shape(tf.io.decode_png(png, channels=1), [size, size, 1])

    encoded = tf.reshape(inputs["image"], [-1])
    images = tf.map_fn(pixels, encoded, fn_output_signature=tf.uint8)
    return {"image": tf.cast(images, tf.float32) / 255, "label": inputs["label"]}
