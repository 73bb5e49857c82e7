"""Examples that do not fit in memory: an order of two levels over TFRecord files.

A pass reads from several places of the files at a time, chosen by its key; the records
are cut into blocks of bounded size, and each block is permuted. A block and its order
are functions of the key alone, for any number of threads.

With at least `CURSORS` files, each file is read whole, in an order given by the key.
Fewer files are cut into pieces, so that a block has rows of `CURSORS` places even if
one large file is sorted by time or by label; the cuts differ from pass to pass. Gzip
cannot seek: the pieces of one file cost up to `CURSORS` / 2 further reads of it,
without parsing. Give larger splits more files.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from strategos.components.records import read
from strategos.components.trainer.gang import heartbeat

CURSORS = 8
"""Number of places in the files that a pass reads from at a time."""

_ORDERED_BATCHES = 8
_CHUNK_ROWS = 64  # read by a cursor before the next cursor's turn
_CHUNKS_IN_MEMORY = 64  # that fit the limit together
_COUNT_ROWS, _COUNT_STRETCHES = 16, 256
_PARALLEL_CALLS = min(os.cpu_count() or 1, CURSORS)
_STRING_BYTES = 40  # overhead of a string in memory
_BLOCKS_IN_MEMORY = 3  # one in use; one being built, as pieces and as a whole

Block = tuple[tf.Tensor, tf.Tensor]

no_autograph = tf.autograph.experimental.do_not_convert


@dataclasses.dataclass(frozen=True)
class Records:
    """The serialized examples of a split.

    Attributes:
      files: TFRecord files; `.gz` at the end of the first one's name means GZIP.
      counts: Rows of each file.
      row_bytes: Memory that a row takes, in bytes: the highest mean over a few
        consecutive rows.
      limit: Bytes that a pass may keep in memory.
    """

    files: tuple[str, ...]
    counts: tuple[int, ...]
    row_bytes: float
    limit: int

    @classmethod
    def count(cls, files: Sequence[str], limit: int) -> Records:
        """Reads `files` once, without parsing, to count their rows.

        Args:
          files: TFRecord files.
          limit: Bytes that a pass may keep in memory.
        """
        counts, heaviest = np.zeros(len(files), np.int64), 0.0
        for file, rows, size in _sizes(files).as_numpy_iterator():
            np.add.at(counts, file, rows)
            heaviest = max(heaviest, (size / rows).max() + _STRING_BYTES)
            heartbeat.current().alive()
        return cls(tuple(files), tuple(counts.tolist()), float(heaviest), limit)

    @property
    def rows(self) -> int:
        """Rows of all files."""
        return sum(self.counts)

    def block_batches(self, batch_size: int) -> int:
        """Batches of a block: as many as the limit allows, at least one.

        Args:
          batch_size: Rows of a global batch.
        """
        return max(
            1, int(self.limit / _BLOCKS_IN_MEMORY / self.row_bytes) // batch_size
        )

    def blocks(
        self, key: tf.Tensor, batch_size: int, first: tf.Tensor, *, here: bool
    ) -> tf.data.Dataset:
        """One pass in blocks: records string [n], in its order; first batch int64.

        Args:
          key: int64 [2]; determines the order of the pass.
          batch_size: Rows of a global batch; each block but the last has a multiple.
          first: int64. The batch to start at; earlier blocks are read and dropped.
          here: Whether this process reads. If so, it reports dropped blocks as a
            heartbeat before the first step.
        """
        batches = self.block_batches(batch_size)
        chunks = self._pieces(key).interleave(
            no_autograph(self._chunks),
            cycle_length=CURSORS,
            block_length=1,
            num_parallel_calls=_PARALLEL_CALLS,
            deterministic=True,
        )

        @no_autograph
        def permuted(number: tf.Tensor, block: tf.Tensor) -> Block:
            inner = tf.random.experimental.stateless_fold_in(key, number + 1)
            places = tf.range(tf.size(block, tf.int64))
            order = tf.random.experimental.stateless_shuffle(places, inner)
            own = tf.where(number == first // batches, first % batches, 0)
            return tf.gather(block, order), own

        skipped = first // batches

        @no_autograph
        def is_left(number: tf.Tensor, _: tf.Tensor) -> tf.Tensor:
            passed = _reported if here else lambda: False
            return tf.cond(number < skipped, passed, lambda: True)

        blocks = chunks.rebatch(batches * batch_size).enumerate()
        return blocks.filter(is_left).map(permuted).prefetch(1)

    def _pieces(self, key: tf.Tensor) -> tf.data.Dataset:
        """Parts of the files in the order of the key.

        A part is (file, first row, rows from there, rows from the file's start): a part
        that passes the end of its file continues at the file's start.
        """
        key = tf.random.experimental.stateless_fold_in(key, tf.constant(0, tf.int64))
        pieces = -(-CURSORS // len(self.files))  # of each file
        counts = tf.constant(self.counts, tf.int64)[:, tf.newaxis]
        bounds = counts * tf.range(pieces + 1, dtype=tf.int64) // pieces
        shift = tf.zeros_like(counts)
        if pieces > 1:
            part = tf.random.stateless_uniform(counts.shape, key, dtype=tf.float64)
            shift = tf.cast(part * tf.cast(bounds[:, 1:2], tf.float64), tf.int64)
        firsts, rows = bounds[:, :-1] + shift, bounds[:, 1:] - bounds[:, :-1]
        beyond = tf.maximum(firsts + rows - counts, 0)
        names = tf.repeat(tf.constant(self.files), pieces)
        order = tf.random.experimental.stateless_shuffle(tf.range(tf.size(names)), key)
        parts = [tf.reshape(part, [-1]) for part in (firsts, rows - beyond, beyond)]
        parts = [tf.gather(part, order) for part in (names, *parts)]
        return tf.data.Dataset.from_tensor_slices(tuple(parts))

    def _chunks(
        self,
        file: tf.Tensor,
        first: tf.Tensor,
        rows: tf.Tensor,
        beyond: tf.Tensor,
    ) -> tf.data.Dataset:
        whole = read.of_kind(file[tf.newaxis], self.files[0])
        piece = whole.skip(first).take(rows).concatenate(whole.take(beyond))
        return piece.batch(rows_within(self.limit, self.row_bytes, _CHUNK_ROWS))


def _reported() -> tf.Tensor:
    """Sends a heartbeat; returns False."""

    def report() -> np.bool_:
        heartbeat.current().alive()
        return np.False_

    return tf.ensure_shape(tf.numpy_function(report, [], tf.bool), [])


def rows_within(limit: int, row_bytes: float, most: int) -> int:
    """Rows to process at a time, so that dozens of such chunks fit the limit.

    Args:
      limit: Bytes.
      row_bytes: Bytes of a row in memory.
      most: Upper bound of the result.
    """
    return max(1, min(most, int(limit / _CHUNKS_IN_MEMORY / row_bytes)))


def ordered(files: Sequence[str]) -> tf.data.Dataset:
    """The records of `files`, in their order."""
    return read.records(files)


def ordered_blocks(files: Sequence[str], batch_size: int) -> tf.data.Dataset:
    """The records of `files` in their order, in blocks as of `Records.blocks`.

    Args:
      files: TFRecord files.
      batch_size: Rows of a global batch.
    """

    @no_autograph
    def block(block: tf.Tensor) -> Block:
        return block, tf.constant(0, tf.int64)

    rows = read.records(files)
    return rows.batch(_ORDERED_BATCHES * batch_size).map(block)


def _sizes(files: Sequence[str]) -> tf.data.Dataset:
    """File index, rows and bytes, one entry for each few rows."""

    @no_autograph
    def of_file(index: tf.Tensor, file: tf.Tensor) -> tf.data.Dataset:
        @no_autograph
        def size(block: tf.Tensor) -> tuple[tf.Tensor, ...]:
            lengths = tf.cast(tf.strings.length(block), tf.int64)
            return index, tf.size(block, tf.int64), tf.reduce_sum(lengths)

        whole = read.of_kind(file[tf.newaxis], files[0])
        return whole.batch(_COUNT_ROWS).map(size).batch(_COUNT_STRETCHES)

    indexed = tf.data.Dataset.from_tensor_slices(list(files)).enumerate()
    return indexed.interleave(
        of_file, cycle_length=CURSORS, num_parallel_calls=_PARALLEL_CALLS
    )
