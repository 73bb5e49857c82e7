"""The record in an export of features to reconstruct, and their error by row."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from strategos.components.exported import ERROR, OUTPUT
from strategos.components.targets.label import Label
from strategos.components.trainer.data.batches import labels
from strategos.components.trainer.model.context import TrainingContext


def widths(context: TrainingContext) -> dict[str, int]:
    """Number of values of each feature to reconstruct, in the order of the output.

    Args:
      context: The facts of the training.

    Returns:
      {} for a model of a label.
    """
    if not context.target.reconstructs:
        return {}
    spec = context.feature_spec
    return {name: math.prod(spec[name].shape) for name in context.target.columns}


def names(context: TrainingContext) -> list[str]:
    """The names of the values of the output: `amount`, `shop[0]`, `shop[1]`.

    Args:
      context: The facts of the training, of features to reconstruct.
    """
    return [
        name if width == 1 else f"{name}[{place}]"
        for name, width in widths(context).items()
        for place in range(width)
    ]


def with_error(
    answer: Mapping[str, tf.Tensor], features: Mapping[str, Any], target: Label
) -> dict[str, tf.Tensor]:
    """Adds to a model's answer how well it reconstructs the features of each row.

    Args:
      answer: The model's outputs, `[rows, …]`, by name.
      features: The transformed features of the rows.
      target: The label.

    Returns:
      The answer, with `reconstruction_error`, float32 `[rows, 1]`: the mean squared
      difference between the output that is judged and the features. Without it for a
      model of a label, one with another output than a reconstruction, such as a score
      of its own, and one with an output of this name.
    """
    outputs = {**answer}
    judged = outputs.get(
        OUTPUT, next(iter(outputs.values())) if len(outputs) == 1 else None
    )
    if not target.reconstructs or judged is None or ERROR in outputs:
        return outputs
    wanted = labels.taken({**features}, target)
    width = wanted.shape[1:].num_elements()
    if not judged.dtype.is_floating or judged.shape[1:].num_elements() != width:
        return outputs
    both = (tf.reshape(each, [-1, width]) for each in (judged, wanted))
    squares = tf.math.squared_difference(*both)
    return {**outputs, ERROR: tf.reduce_mean(squares, axis=1, keepdims=True)}
