"""Divides each global batch among the replicas that share it."""

from __future__ import annotations

import dataclasses
from typing import Any

import tensorflow as tf

no_autograph = tf.autograph.experimental.do_not_convert


@dataclasses.dataclass(frozen=True)
class Parts:
    """Assigns the rows of an order to the replicas of a share.

    Attributes:
      batch_size: Rows of a global batch.
      replicas: Number of replicas that share it.
      share: The replicas among them that are fed.
      drop_last: Whether a smaller last batch is left out.
    """

    batch_size: int
    replicas: int
    share: range
    drop_last: bool = False

    def of(self, order: tf.Tensor, first: int | tf.Tensor) -> tf.data.Dataset:
        """The entries of `order` for each batch and replica, from batch `first` on."""
        return self._cut(order, first)

    def of_blocks(self, blocks: tf.data.Dataset) -> tf.data.Dataset:
        """The rows of each batch and replica, from blocks of rows.

        Args:
          blocks: Elements (tensors [rows, …], first batch int64), with the rows in
            their order.
        """

        @no_autograph
        def of(block: Any, first: tf.Tensor) -> tf.data.Dataset:
            if self.batch_size % self.replicas:
                return self._cut(block, first)
            whole = self._whole(block).skip(first * len(self.share))
            if self.drop_last:
                return whole
            cut = rows_of(block) // self.batch_size
            return whole.concatenate(self._cut(block, tf.maximum(first, cut)))

        return blocks.flat_map(of)

    def _whole(self, block: Any) -> tf.data.Dataset:
        """The parts of the batches that are whole, if replicas get equally many rows.

        An element is a slice of a tensor, which costs a tenth of a function's call.
        """
        begin, end = self.share.start, self.share.stop
        size = self.batch_size // self.replicas

        def parts(rows: tf.Tensor) -> tf.Tensor:
            batches = tf.shape(rows, tf.int64)[0] // self.batch_size
            wanted = rows[: batches * self.batch_size]
            if len(self.share) < self.replicas:
                each = [batches, self.replicas, size, *rows.shape[1:]]
                wanted = tf.reshape(wanted, each)[:, begin:end]
            return tf.reshape(
                wanted, [batches * len(self.share), size, *rows.shape[1:]]
            )

        return tf.data.Dataset.from_tensor_slices(tf.nest.map_structure(parts, block))

    def _cut(self, block: Any, first: int | tf.Tensor) -> tf.data.Dataset:
        """The parts of batches from `first` on, of any size."""
        rows, local = rows_of(block), len(self.share)
        steps = rows // self.batch_size
        if not self.drop_last:
            steps = -(-rows // self.batch_size)
        always_even = self.drop_last and not self.batch_size % self.replicas
        length = self.batch_size // self.replicas if always_even else None

        steps = tf.maximum(steps, first)
        numbers = tf.range(first * local, steps * local)
        starts = numbers // local * self.batch_size
        sizes = tf.minimum(rows - starts, self.batch_size)
        replica = self.share.start + numbers % local
        begins = starts + self._begin(sizes, replica)
        ends = starts + self._begin(sizes, replica + 1)

        @no_autograph
        def part(begin: tf.Tensor, end: tf.Tensor) -> Any:
            return tf.nest.map_structure(
                lambda rows: tf.ensure_shape(
                    rows[begin:end], [length, *rows.shape[1:]]
                ),
                block,
            )

        return tf.data.Dataset.from_tensor_slices((begins, ends)).map(part)

    def _begin(self, rows: tf.Tensor, replica: tf.Tensor) -> tf.Tensor:
        """First row of a replica's part of a global batch of `rows` rows."""
        return replica * (rows // self.replicas) + tf.minimum(
            replica, rows % self.replicas
        )


def cut(block: Any, first: int | tf.Tensor, end: int | tf.Tensor) -> Any:
    """The rows from `first` to `end`, which is not included, of a batch.

    Args:
      block: Dense, ragged or sparse tensors `[rows, …]`, flat or nested.
      first: Number of the first row; an integer, or an int64 scalar.
      end: Number of the first row after the last; at most the number of rows.
    """
    return tf.nest.map_structure(lambda value: _rows(value, first, end), block)


def _rows(value: Any, first: int | tf.Tensor, end: int | tf.Tensor) -> Any:
    if not isinstance(value, tf.SparseTensor):
        return value[first:end]
    others = value.dense_shape[1:]
    begin = tf.concat([[tf.cast(first, tf.int64)], tf.zeros_like(others)], 0)
    rows = tf.cast(end, tf.int64) - tf.cast(first, tf.int64)
    return tf.sparse.slice(value, begin, tf.concat([[rows], others], 0))


def rows_of(block: Any) -> tf.Tensor:
    """The rows of tensors `[rows, …]`, flat or nested; int64 scalar."""
    return tf.shape(tf.nest.flatten(block)[0], tf.int64)[0]
