"""Divides each global batch among the replicas that share it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
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
        return self._each(order, first, lambda entries: entries)

    def of_blocks(self, blocks: tf.data.Dataset) -> tf.data.Dataset:
        """The rows of each batch and replica, from blocks of rows.

        Args:
          blocks: Elements (tensors [rows, …], order int64 [rows], first batch int64).
        """

        @no_autograph
        def of(block: Any, order: tf.Tensor, first: tf.Tensor) -> tf.data.Dataset:
            def gather(rows: tf.Tensor) -> Any:
                return tf.nest.map_structure(lambda each: tf.gather(each, rows), block)

            return self._each(order, first, gather)

        return blocks.flat_map(of)

    def _each(
        self,
        order: tf.Tensor,
        first: int | tf.Tensor,
        taken: Callable[[tf.Tensor], Any],
    ) -> tf.data.Dataset:
        """What `taken` makes of the entries of `order` for each batch and replica."""
        rows, local = tf.size(order, tf.int64), len(self.share)
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
            return taken(tf.ensure_shape(order[begin:end], [length]))

        return tf.data.Dataset.from_tensor_slices((begins, ends)).map(part)

    def _begin(self, rows: tf.Tensor, replica: tf.Tensor) -> tf.Tensor:
        """Where the part of a replica begins in a global batch of `rows` rows."""
        return replica * (rows // self.replicas) + tf.minimum(
            replica, rows % self.replicas
        )
