"""The `preprocessing_fn` of onehot.yaml: labels as one-hot vectors."""

from __future__ import annotations

from collections.abc import Mapping

import preprocessing
import tensorflow as tf


def preprocessing_fn(inputs: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """As `preprocessing.preprocessing_fn`, but `label` is float32 [batch, 10]."""
    outputs = preprocessing.preprocessing_fn(inputs)
    labels = tf.reshape(outputs["label"], [-1])
    return {**outputs, "label": tf.one_hot(labels, depth=10)}
