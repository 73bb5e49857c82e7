"""How much each row counts in loss and metrics: Keras's `sample_weight`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, TypeAlias

import tensorflow as tf

Batch: TypeAlias = tuple[Any, ...]
"""(features, label), or (features, label, weight) with weight float32 [rows]."""


@dataclasses.dataclass(frozen=True)
class Weights:
    """A weight of each row, the product of a feature and of a factor of its class.

    Attributes:
      feature: The feature with the weights; "" for 1.
      factors: Factor by class, in training; 1 for classes that are not named. The class
        of a one-hot label is its place.
    """

    feature: str = ""
    factors: Mapping[float, float] = dataclasses.field(default_factory=dict)

    def __bool__(self) -> bool:
        """Whether rows have weights."""
        return bool(self.feature or self.factors)

    def batch(self, features: dict[str, Any], label: Any) -> Batch:
        """A batch as a model gets it: the weight is none of its features.

        Args:
          features: Tensors by name, the weight among them.
          label: `[rows, k]`; of several heads by output.
        """
        if not self:
            return features, label
        weight = tf.ones(tf.shape(tf.nest.flatten(label)[0])[:1])
        if self.feature:
            weight = tf.reshape(tf.cast(features.pop(self.feature), tf.float32), [-1])
        if self.factors:
            weight *= self._of_classes(label)
        return features, label, weight

    def _of_classes(self, label: tf.Tensor) -> tf.Tensor:
        classes = tf.cast(class_of(label), tf.float32)
        named = tf.constant(list(self.factors), tf.float32)
        same = tf.equal(classes[:, tf.newaxis], named)
        factors = tf.constant(list(self.factors.values()), tf.float32)
        factor = tf.reduce_sum(tf.where(same, factors, 0.0), 1)
        return tf.where(tf.reduce_any(same, 1), factor, 1.0)


EQUAL = Weights()
"""Each row counts as any other."""


def class_of(label: tf.Tensor) -> tf.Tensor:
    """The class of each row, `[rows]`: the label, or the place in a one-hot label.

    Args:
      label: `[rows, k]`.
    """
    if label.shape[-1] == 1:
        return tf.reshape(label, [-1])
    return tf.argmax(tf.reshape(label, [tf.shape(label)[0], label.shape[-1]]), 1)
