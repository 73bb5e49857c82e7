"""Examples that do not fit in memory: an order of two levels over TFRecord files.

A pass reads from several places of the files at a time, which its key decides; what
it reads is cut into blocks of bounded size, and each block is permuted. A block and
the order within are functions of the key alone, whatever the number of threads.

Files are taken whole, in the order that the key gives, where there are at least
`CURSORS` of them. Fewer are cut into pieces, so that a block has rows of `CURSORS`
places even if one large file is sorted by time or by label; where the cuts lie differs
from pass to pass. Gzip cannot seek: the pieces of one file cost up to `CURSORS` / 2
further readings of it, without parsing. Give larger splits more files.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from strategos.components.trainer.gang import heartbeat

CURSORS = 8
"""Places of the files that a pass reads from at a time."""

_ORDERED_BATCHES = 8
_CHUNK_ROWS = 64  # that a cursor reads before the next one's turn
_CHUNKS_IN_MEMORY = 64  # at most as many rows as fit the limit so often
_COUNT_ROWS, _COUNT_STRETCHES = 16, 256
_PARALLEL_CALLS = min(os.cpu_count() or 1, CURSORS)
_STRING_BYTES = 40  # of a string in memory, besides its characters
_BLOCKS_IN_MEMORY = 3  # one in use; one being made, as pieces and as a whole

Block = tuple[tf.Tensor, tf.Tensor, tf.Tensor]

no_autograph = tf.autograph.experimental.do_not_convert


@dataclasses.dataclass(frozen=True)
class Records:
    """The serialized examples of a split.

    Attributes:
      files: TFRecord files; `.gz` at the end of the first one's name means GZIP.
      counts: Rows of each file.
      row_bytes: Bytes that a row takes in memory, the mean over some consecutive rows
        where that is highest.
      limit: Bytes that a pass may keep in memory.
    """

    files: tuple[str, ...]
    counts: tuple[int, ...]
    row_bytes: float
    limit: int

    @classmethod
    def count(cls, files: Sequence[str], limit: int) -> Records:
        """Reads `files` once, without parsing, to know how many rows there are."""
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
        """Batches of a block: as many as the limit allows, at least one."""
        return max(
            1, int(self.limit / _BLOCKS_IN_MEMORY / self.row_bytes) // batch_size
        )

    def blocks(
        self, key: tf.Tensor, batch_size: int, first: tf.Tensor, *, tells: bool
    ) -> tf.data.Dataset:
        """One pass in blocks: records [n], their order int64 [n], first batch of them.

        Args:
          key: int64 [2]. What the order of the pass is a function of.
          batch_size: A block has a multiple of it, the last one excepted.
          first: int64. The batch to start at; blocks before its own are read and
            dropped.
          tells: Whether that is told of, as a sign of life before the first step. Only
            where this process reads.
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
            return block, order, own

        skipped = first // batches

        @no_autograph
        def is_left(number: tf.Tensor, _: tf.Tensor) -> tf.Tensor:
            passed = _told if tells else lambda: False
            return tf.cond(number < skipped, passed, lambda: True)

        blocks = chunks.rebatch(batches * batch_size).enumerate()
        return blocks.filter(is_left).map(permuted).prefetch(1)

    def _pieces(self, key: tf.Tensor) -> tf.data.Dataset:
        """Parts of the files in the order of the key.

        A part is (file, first row, rows from there, rows from the file's start): one
        that passes the end goes on at the start.
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
        self, file: tf.Tensor, first: tf.Tensor, rows: tf.Tensor, beyond: tf.Tensor
    ) -> tf.data.Dataset:
        records = tf.data.TFRecordDataset(file, compression(self.files))
        piece = records.skip(first).take(rows).concatenate(records.take(beyond))
        return piece.batch(rows_within(self.limit, self.row_bytes, _CHUNK_ROWS))


def _told() -> tf.Tensor:
    """False, when it has been told that work goes on."""

    def tell() -> np.bool_:
        heartbeat.current().alive()
        return np.False_

    return tf.ensure_shape(tf.numpy_function(tell, [], tf.bool), [])


def rows_within(limit: int, row_bytes: float, most: int) -> int:
    """Rows to handle at a time, so that dozens of such parts fit the limit."""
    return max(1, min(most, int(limit / _CHUNKS_IN_MEMORY / row_bytes)))


def ordered(files: Sequence[str]) -> tf.data.Dataset:
    """The records of `files` as they lie."""
    return tf.data.TFRecordDataset(list(files), compression(files))


def ordered_blocks(files: Sequence[str], batch_size: int) -> tf.data.Dataset:
    """The records of `files` as they lie, in blocks as `Records.blocks` gives them."""

    @no_autograph
    def block(block: tf.Tensor) -> Block:
        return block, tf.range(tf.size(block, tf.int64)), tf.constant(0, tf.int64)

    return ordered(files).batch(_ORDERED_BATCHES * batch_size).map(block)


def compression(files: Sequence[str]) -> str:
    """How TFRecord files are compressed, by the name of the first."""
    return "GZIP" if files and files[0].endswith(".gz") else ""


def _sizes(files: Sequence[str]) -> tf.data.Dataset:
    """Arrays of file's index, rows and bytes, an entry for each few rows."""

    @no_autograph
    def of_file(index: tf.Tensor, file: tf.Tensor) -> tf.data.Dataset:
        @no_autograph
        def size(block: tf.Tensor) -> tuple[tf.Tensor, ...]:
            lengths = tf.cast(tf.strings.length(block), tf.int64)
            return index, tf.size(block, tf.int64), tf.reduce_sum(lengths)

        stretches = tf.data.TFRecordDataset(file, compression(files)).batch(_COUNT_ROWS)
        return stretches.map(size).batch(_COUNT_STRETCHES)

    found = tf.data.Dataset.from_tensor_slices(list(files)).enumerate()
    return found.interleave(
        of_file, cycle_length=CURSORS, num_parallel_calls=_PARALLEL_CALLS
    )
