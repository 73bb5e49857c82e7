"""The `preprocessing_fn` of mnist.yaml: larger images."""

from __future__ import annotations

from collections.abc import Mapping

import tensorflow as tf
from preprocessing import decode


def preprocessing_fn(inputs: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """MNIST's images: see `preprocessing.decode`."""
    return decode(inputs, size=28)
