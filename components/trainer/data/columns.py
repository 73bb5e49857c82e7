"""Transformed features as columns, stored so that their rows can be gathered.

| spec | stored as | given to the model as |
|---|---|---|
| FixedLenFeature | `tf.Tensor` of rank 2 or more | the same |
| VarLenFeature | `tf.RaggedTensor` | `tf.SparseTensor` [batch, longest] |
| RaggedFeature | `tf.RaggedTensor` | the same |
| SparseFeature | indices and values, two `tf.RaggedTensor`s | `tf.SparseTensor` |

Numbers of fixed size are packed: side by side in one matrix for each type, so that one
gather replaces one for each feature.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from strategos.components.transformed.specs import Spec, widths

Columns = dict[str, Any]
Packed = tuple[dict[str, tf.Tensor], Columns]
"""Matrices [rows, width] by the names of their types; the features not in them."""


def parse(serialized: tf.Tensor, spec: Spec) -> Columns:
    """Parses serialized tf.Examples into columns.

    Args:
      serialized: string [rows].
      spec: `tf.io` spec of each feature.
    """
    parsed = tf.io.parse_example(serialized, dict(spec))
    return {name: _kept(parsed[name], kind) for name, kind in spec.items()}


def pack(columns: Columns, spec: Spec) -> Packed:
    """Puts the features of fixed size side by side.

    Args:
      columns: Columns as `parse` returns them.
      spec: `tf.io` spec of each feature.
    """
    others, matrices = dict(columns), {}
    for kind, of_kind in widths(spec).items():
        parts = [others.pop(name) for name in of_kind]
        flat = [
            tf.reshape(part, [tf.shape(part)[0], width])
            for part, width in zip(parts, of_kind.values(), strict=True)
        ]
        matrices[kind] = tf.concat(flat, 1)
    return matrices, others


def unpack(packed: Packed, spec: Spec) -> Columns:
    """The columns that were packed.

    Args:
      packed: Result of `pack`, or rows of it.
      spec: `tf.io` spec of each feature.
    """
    matrices, others = packed
    columns_of = dict(others)
    for kind, of_kind in widths(spec).items():
        parts = tf.split(matrices[kind], list(of_kind.values()), 1)
        for name, part in zip(of_kind, parts, strict=True):
            columns_of[name] = _of_shape(part, spec[name].shape)
    return columns_of


def rows(packed: Packed, which: Any) -> Packed:
    """Selects rows of each column.

    Args:
      packed: Columns as `pack` returns them.
      which: Row numbers, int64 [n], or a slice.
    """
    if isinstance(which, slice):
        return tf.nest.map_structure(lambda column: column[which], packed)
    return tf.nest.map_structure(lambda column: tf.gather(column, which), packed)


def concatenate(parts: Sequence[Packed]) -> Packed:
    """Concatenates parts; empties them to free memory.

    Args:
      parts: Packed columns of consecutive rows.
    """

    def joined(batches: Sequence[Columns]) -> Columns:
        return {
            name: tf.nest.map_structure(
                lambda *some: tf.concat(some, 0), *[each.pop(name) for each in batches]
            )
            for name in list(batches[0])
        }

    return joined([part[0] for part in parts]), joined([part[1] for part in parts])


def features(columns: Columns, spec: Spec) -> dict[str, Any]:
    """Converts columns to the tensors that a model gets.

    Args:
      columns: Columns as `parse` returns them.
      spec: `tf.io` spec of each feature.
    """
    return {name: _given(column, spec[name]) for name, column in columns.items()}


def count(packed: Packed) -> int:
    """Number of rows of packed columns."""
    matrices, others = packed
    some, *_ = [*matrices.values(), *list(tf.nest.flatten(others))]
    return int(some.shape[0])


def size(packed: Packed) -> int:
    """Memory that packed columns take, in bytes."""
    return sum(map(_bytes, tf.nest.flatten(packed)))


def _of_shape(part: tf.Tensor, shape: Sequence[int]) -> tf.Tensor:
    """Gives rows of a matrix the shape of a feature."""
    if len(shape) < 2:
        return part
    whole = tf.reshape(part, [tf.shape(part)[0], *shape])
    return tf.ensure_shape(whole, [part.shape[0], *shape])


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
