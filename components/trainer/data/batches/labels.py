"""The label or features that a model learns of each row: Keras's `y`."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from strategos.components.targets.label import Label


def taken(columns: dict[str, Any], label: Label) -> Any:
    """Takes the label out of the columns of a batch.

    Args:
      columns: Tensors by name, which lose those of the label. Features to reconstruct
        stay.
      label: The columns; several of them become one tensor, in their order.

    Returns:
      `[rows, k]`; of several columns float32 if not all of them have one dtype. Of
      several heads a tensor by output. Of features to reconstruct float32, `[rows, …]`
      of one feature, and `[rows, values]` of several.
    """
    if label.reconstructs:
        return _flat([tf.cast(columns[name], tf.float32) for name in label.columns])
    if label.outputs:
        return label.by_head(columns, taken)
    parts = [columns.pop(name) for name in label.columns]
    if len(parts) == 1:
        return parts[0]
    if len({part.dtype for part in parts}) > 1:
        parts = [tf.cast(part, tf.float32) for part in parts]
    return tf.concat([tf.reshape(part, [tf.shape(part)[0], 1]) for part in parts], 1)


def _flat(features: list[tf.Tensor]) -> tf.Tensor:
    """One feature as it is; the values of several one after another, `[rows, k]`."""
    if len(features) == 1:
        return features[0]
    rows = tf.shape(features[0])[0]
    widths = [each.shape[1:].num_elements() for each in features]
    pairs = zip(features, widths, strict=True)
    return tf.concat([tf.reshape(each, [rows, width]) for each, width in pairs], 1)
