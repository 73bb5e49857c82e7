"""The transformed examples of a split as batches, in an order that is a function.

Examples that fit the cache limit are parsed once and kept in memory; an epoch's order
is then `permutation(seed, epoch)`, so a step is a position in it, and training can
start at any step without reading what came before. Larger splits are streamed: the
files are permuted by (seed, epoch) and a block of rows is shuffled within.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from strategos.components.errors import UserError

CACHE_LIMIT = 1 << 30
"""Bytes of parsed examples of one split that are kept in memory."""

SHUFFLE_ROWS = 65_536
"""Rows of a block that is shuffled where a split does not fit the cache limit."""

_PARSE_ROWS = 4096
_PARALLEL_CALLS = min(os.cpu_count() or 1, 8)
_PARALLEL_FILES = 4

Columns = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Split:
    """The examples of one split.

    Attributes:
      files: Its TFRecord files; `.gz` at the end of a name means GZIP.
      spec: `tf.io` spec of the features and the label.
      label: Name of the label.
      rows: Number of examples.
      columns: All examples by column if they are kept in memory, else None.
    """

    files: tuple[str, ...]
    spec: Mapping[str, Any]
    label: str
    rows: int
    columns: Columns | None

    def steps(self, batch_size: int) -> int:
        """Batches of one pass, the last one perhaps smaller."""
        return -(-self.rows // batch_size)

    def ordered(self, batch_size: int) -> tf.data.Dataset:
        """One pass over the split as it lies, as batches of (features, label)."""
        if self.columns is None:
            batches = self._parsed(_records(self.files).batch(batch_size))
        else:
            order = tf.range(self.rows, dtype=tf.int64)
            batches = self._gathered(order, 0, batch_size)
        return _ready(batches.map(self._pair))

    def shuffled(
        self, batch_size: int, *, seed: int, epochs: int, first_step: int = 0
    ) -> tf.data.Dataset:
        """Passes over the split, each in its own order, as one stream of batches.

        Args:
          batch_size: Rows of a batch; the last one of a pass may be smaller.
          seed: The order of a pass is a function of this and of its number alone.
          epochs: Number of passes.
          first_step: Batch to start at, counted from the start of the first pass.
        """
        first_epoch, offset = divmod(first_step, self.steps(batch_size))

        def one_pass(epoch: tf.Tensor) -> tf.data.Dataset:
            key = tf.stack([tf.constant(seed, tf.int64), epoch])
            skipped = tf.where(epoch == first_epoch, tf.constant(offset, tf.int64), 0)
            if self.columns is None:
                records = _shuffled_records(self.files, key)
                return self._parsed(records.batch(batch_size).skip(skipped))
            rows = tf.range(self.rows, dtype=tf.int64)
            order = tf.random.experimental.stateless_shuffle(rows, key)
            return self._gathered(order, skipped, batch_size)

        passes = tf.data.Dataset.range(first_epoch, epochs)
        return _ready(passes.flat_map(one_pass).map(self._pair))

    def sample(self, rows: int) -> tuple[Columns, tf.Tensor]:
        """The first `rows` examples as one batch of (features, label)."""
        if self.columns is None:
            return next(iter(self.ordered(rows)))
        return self._pair({name: self.columns[name][:rows] for name in self.spec})

    def _gathered(
        self, order: tf.Tensor, first: int | tf.Tensor, batch_size: int
    ) -> tf.data.Dataset:
        def batch(step: tf.Tensor) -> Columns:
            rows = order[step * batch_size : (step + 1) * batch_size]
            return {name: tf.gather(self.columns[name], rows) for name in self.spec}

        steps = tf.data.Dataset.range(first, self.steps(batch_size))
        return steps.map(batch, _PARALLEL_CALLS, deterministic=True)

    def _parsed(self, records: tf.data.Dataset) -> tf.data.Dataset:
        return records.map(_parser(self.spec), _PARALLEL_CALLS, deterministic=True)

    def _pair(self, columns: Columns) -> tuple[Columns, tf.Tensor]:
        features = {name: _dense_or_sparse(value) for name, value in columns.items()}
        return features, features.pop(self.label)


def read(
    files: Sequence[str],
    spec: Mapping[str, Any],
    label: str,
    cache_limit: int = CACHE_LIMIT,
) -> Split:
    """Counts the examples of `files`, and keeps them in memory if they fit.

    Raises:
      UserError: There is no example.
    """
    files = tuple(sorted(files))
    rows, used, parts = 0, 0, []
    for count, part in _parsed_blocks(files, spec):
        rows += count
        used += sum(map(_bytes, part.values()))
        if used <= cache_limit:
            parts.append(part)
        else:
            parts.clear()
    if not rows:
        raise UserError(
            f"There is no example in {', '.join(files) or 'the split'}. "
            "Give the split a larger share in `data.split`, or add data."
        )
    columns = None
    if used <= cache_limit:
        columns = {name: tf.concat([p[name] for p in parts], 0) for name in spec}
    return Split(files, spec, label, rows, columns)


def _parsed_blocks(
    files: tuple[str, ...], spec: Mapping[str, Any]
) -> Iterator[tuple[int, Columns]]:
    if not files:
        return
    parse = _parser(spec)
    blocks = _records(files).batch(_PARSE_ROWS)
    blocks = blocks.map(lambda block: (tf.size(block), parse(block)), _PARALLEL_CALLS)
    for count, columns in _ready(blocks):
        yield int(count), columns


def _parser(spec: Mapping[str, Any]) -> Any:
    """A function from serialized examples to columns of rank 2 or more."""

    def parse(serialized: tf.Tensor) -> Columns:
        columns = tf.io.parse_example(serialized, dict(spec))
        return {name: _at_least_rank_2(value) for name, value in columns.items()}

    return parse


def _at_least_rank_2(value: Any) -> Any:
    if isinstance(value, tf.SparseTensor):  # of varying length: rows can be gathered
        return tf.RaggedTensor.from_sparse(value)
    if isinstance(value, tf.Tensor) and value.shape.rank == 1:
        return value[:, tf.newaxis]
    return value


def _dense_or_sparse(value: Any) -> Any:
    return value.to_sparse() if isinstance(value, tf.RaggedTensor) else value


def _bytes(value: Any) -> int:
    if isinstance(value, tf.RaggedTensor):
        return _bytes(value.flat_values) + 8 * int(value.nrows())
    if value.dtype == tf.string:
        return 24 * int(tf.size(value)) + int(tf.reduce_sum(tf.strings.length(value)))
    return int(tf.size(value)) * value.dtype.size


def _ready(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Prefetches, without autotuning: its thread can hold up the end for seconds."""
    options = tf.data.Options()
    options.autotune.enabled = False
    return dataset.prefetch(2).with_options(options)


def _records(files: Sequence[str]) -> tf.data.Dataset:
    return tf.data.TFRecordDataset(list(files), _compression(files))


def _shuffled_records(files: tuple[str, ...], key: tf.Tensor) -> tf.data.Dataset:
    order = tf.random.experimental.stateless_shuffle(tf.constant(files), key)
    records = tf.data.Dataset.from_tensor_slices(order).interleave(
        lambda file: tf.data.TFRecordDataset(file, _compression(files)),
        cycle_length=_PARALLEL_FILES,
        block_length=16,
        num_parallel_calls=_PARALLEL_CALLS,
        deterministic=True,
    )
    seed = key[0] * 1_000_003 + key[1]
    return records.shuffle(SHUFFLE_ROWS, seed=seed, reshuffle_each_iteration=False)


def _compression(files: Sequence[str]) -> str:
    return "GZIP" if files and files[0].endswith(".gz") else ""
