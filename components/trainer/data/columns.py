"""Transformed features as columns, stored so that rows of them can be gathered.

| spec | stored as | given to the model as |
|---|---|---|
| FixedLenFeature | `tf.Tensor` of rank 2 or more | the same |
| VarLenFeature | `tf.RaggedTensor` | `tf.SparseTensor` [batch, longest] |
| RaggedFeature | `tf.RaggedTensor` | the same |
| SparseFeature | indices and values, two `tf.RaggedTensor`s | `tf.SparseTensor` |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

Spec = Mapping[str, Any]
Columns = dict[str, Any]


def parse(serialized: tf.Tensor, spec: Spec) -> Columns:
    """Parses serialized tf.Examples into columns.

    Args:
      serialized: string [rows].
      spec: `tf.io` spec of each feature.
    """
    parsed = tf.io.parse_example(serialized, dict(spec))
    return {name: _kept(parsed[name], kind) for name, kind in spec.items()}


def rows(columns: Columns, which: Any) -> Columns:
    """Selects rows of each column.

    Args:
      columns: Columns as `parse` returns them.
      which: Row numbers, int64 [n], or a slice.
    """
    if isinstance(which, slice):
        return tf.nest.map_structure(lambda column: column[which], columns)
    return tf.nest.map_structure(lambda column: tf.gather(column, which), columns)


def concatenate(parts: Sequence[Columns], name: str) -> Any:
    """Concatenates a column of several parts; removes it from them to free memory.

    Args:
      parts: Columns of consecutive rows.
      name: Name of the column.
    """
    found = [part.pop(name) for part in parts]
    return tf.nest.map_structure(lambda *some: tf.concat(some, 0), *found)


def features(columns: Columns, spec: Spec) -> dict[str, Any]:
    """Converts columns to the tensors that a model gets.

    Args:
      columns: Columns as `parse` returns them.
      spec: `tf.io` spec of each feature.
    """
    return {name: _given(column, spec[name]) for name, column in columns.items()}


def size(columns: Columns) -> int:
    """Memory that the columns take, in bytes."""
    return sum(map(_bytes, tf.nest.flatten(columns)))


def _kept(value: Any, kind: Any) -> Any:
    if isinstance(kind, tf.io.SparseFeature):
        lengths = tf.math.bincount(
            tf.cast(value.indices[:, 0], tf.int32),
            minlength=tf.cast(value.dense_shape[0], tf.int32),
            dtype=tf.int64,
        )
        parts = value.indices[:, 1:], value.values
        return tuple(tf.RaggedTensor.from_row_lengths(part, lengths) for part in parts)
    if isinstance(value, tf.SparseTensor):
        return tf.RaggedTensor.from_sparse(value)
    if isinstance(value, tf.Tensor) and value.shape.rank == 1:
        return value[:, tf.newaxis]
    return value


def _given(column: Any, kind: Any) -> Any:
    if isinstance(kind, tf.io.SparseFeature):
        places, values = column
        row = places.value_rowids()[:, tf.newaxis]
        indices = tf.concat([row, places.values], 1)
        sizes = tf.reshape(tf.constant(kind.size, tf.int64), [-1])  # -1: unknown
        none = tf.zeros([1, tf.size(sizes)], tf.int64)
        needed = tf.reduce_max(tf.concat([none, places.values + 1], 0), 0)
        shape = tf.concat([[places.nrows()], tf.where(sizes < 0, needed, sizes)], 0)
        return tf.SparseTensor(indices, values.values, shape)
    if isinstance(kind, tf.io.VarLenFeature):
        return column.to_sparse()
    return column


def _bytes(value: Any) -> int:
    if isinstance(value, tf.RaggedTensor):
        splits = sum(8 * int(split.shape[0]) for split in value.nested_row_splits)
        return _bytes(value.flat_values) + splits
    if value.dtype == tf.string:
        return 24 * int(tf.size(value)) + int(tf.reduce_sum(tf.strings.length(value)))
    return int(tf.size(value)) * value.dtype.size
