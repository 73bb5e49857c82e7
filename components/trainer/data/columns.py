"""Transformed features as columns whose rows can be taken, and as models get them.

| spec | kept as | a model gets |
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
    """The columns of serialized tf.Examples, string [rows]."""
    parsed = tf.io.parse_example(serialized, dict(spec))
    return {name: _kept(parsed[name], kind) for name, kind in spec.items()}


def rows(columns: Columns, which: Any) -> Columns:
    """The rows `which` of each column: their numbers, int64 [n], or a slice."""
    if isinstance(which, slice):
        return tf.nest.map_structure(lambda column: column[which], columns)
    return tf.nest.map_structure(lambda column: tf.gather(column, which), columns)


def concatenate(parts: Sequence[Columns], name: str) -> Any:
    """The column `name` of all `parts` in one; it is taken out of them."""
    found = [part.pop(name) for part in parts]
    return tf.nest.map_structure(lambda *some: tf.concat(some, 0), *found)


def features(columns: Columns, spec: Spec) -> dict[str, Any]:
    """The columns as a model gets them."""
    return {name: _given(column, spec[name]) for name, column in columns.items()}


def size(columns: Columns) -> int:
    """Bytes that the columns take in memory."""
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
