"""Splits texts into words, and gives each an id, by TensorFlow Transform."""

from __future__ import annotations

from collections.abc import Mapping

import tensorflow as tf
import tensorflow_transform as tft

WORDS = "words"
_MOST_WORDS = 200  # of a text


def preprocessing_fn(inputs: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """The words of each text as ids.

    Returns:
      `words`: int64 [batch, (length)], ragged: 1 for rare words, and ids from 2 on; 0
      is left for padding. `label`: int64 [batch, 1].
    """
    text = tf.strings.lower(tf.reshape(inputs["text"], [-1]))
    text = tf.strings.regex_replace(text, "[^a-z0-9]+", " ")
    words = tf.strings.split(text)[:, :_MOST_WORDS]
    ids = tft.compute_and_apply_vocabulary(
        words, frequency_threshold=3, default_value=-1, vocab_filename=WORDS
    )
    return {"words": ids + 2, "label": inputs["label"]}
