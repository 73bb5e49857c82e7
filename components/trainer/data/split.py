"""The transformed examples of a split as batches, in a reproducible order.

If the examples are kept parsed (`dataset.py` decides it, and where), an epoch's order
is `permutation(seed, epoch)`, so a step is a position in it, and training can start at
any step without reading the rows before. Others are streamed in an order of two levels,
see `records.py`; a start at a later step reads the earlier rows of its epoch, but does
not parse them.

A global batch is a function of (seed, step) for any number of replicas: each replica
gets a consecutive part of it, as even as possible. Each input pipeline gathers or
parses only the parts of its own replicas.

Example, for one device and for any synchronous strategy:
  ```python
  split = dataset.read(files, spec, label)
  feed = functools.partial(split.shuffled, batch_size, seed=seed, epochs=None)
  model.fit(distributed.batches(strategy, feed), steps_per_epoch=split.steps(...), ...)
  ```
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from strategos.components.errors import required
from strategos.components.files import storage
from strategos.components.records import read as read_records
from strategos.components.targets.label import Label
from strategos.components.trainer.data import columns, parsing, records
from strategos.components.trainer.data.batches import labels, length_buckets
from strategos.components.trainer.data.batches.weights import EQUAL, Batch, Weights
from strategos.components.trainer.data.columns import Columns, Packed
from strategos.components.trainer.data.input_wait import InputWait
from strategos.components.trainer.data.parts import Parts
from strategos.components.trainer.data.records import Records, no_autograph
from strategos.components.trainer.data.stored import Stored
from strategos.components.trainer.distribution.batch_checks import check_steps
from strategos.components.wording import counted, data_size

_NO_END = tf.int64.max


@dataclasses.dataclass(frozen=True)
class Split:
    """The examples of one split.

    Attributes:
      files: TFRecord files; `.gz` at the end of a name means GZIP.
      spec: `tf.io` spec of the features and the label.
      label: The label, as `Label.text`.
      rows: Number of examples.
      columns: All examples, packed, if they are kept in memory, else None.
      records: The serialized examples if they are streamed, else None.
      stored: The parsed examples if they are kept in a file, else None.
      bucketed_by: Feature; the rows of a shuffled pass are divided into batches by its
        length. "" for none. Only with `columns`.
      rows_per_pass: Number of rows after which a shuffled pass ends; None for all.
      weights: How much each row counts.
    """

    files: tuple[str, ...]
    spec: Mapping[str, Any]
    label: str
    rows: int
    columns: Packed | None
    records: Records | None = None
    rows_per_pass: int | None = None
    stored: Stored | None = None
    bucketed_by: str = ""
    weights: Weights = EQUAL

    def steps(self, batch_size: int, drop_last: bool = False) -> int:
        """Batches of one pass.

        Args:
          batch_size: Rows of a global batch.
          drop_last: Whether a smaller last batch is dropped.
        """
        rows = self.rows if self.rows_per_pass is None else self.rows_per_pass
        return rows // batch_size if drop_last else -(-rows // batch_size)

    def ordered(
        self,
        batch_size: int,
        *,
        replicas: int = 1,
        share: range = range(1),
        epochs: int | None = 1,
    ) -> tf.data.Dataset:
        """Passes in the order of the files, as batches of (features, label).

        Of several heads, the label is a dict of output to tensor. Of weighted rows a
        batch is (features, label, weight).

        Args:
          batch_size: Rows of a global batch; the last one may be smaller.
          replicas: Number of replicas that share a global batch.
          share: The replicas among them that this dataset feeds, see `shuffled`.
          epochs: Number of passes; None for no end.
        """
        parts = Parts(batch_size, replicas, share)
        if self.stored is not None:
            batches = parts.of_blocks(
                self._unpacked_blocks(self.stored.ordered(batch_size))
            )
        else:
            keys = self._in_order(parts, streams=self.columns is None)
            batches = self._fetched(keys, self.columns)
        return parsing.ready(batches.repeat(epochs), len(share))

    def shuffled(
        self,
        batch_size: int,
        *,
        seed: int,
        epochs: int | None,
        first_step: int = 0,
        replicas: int = 1,
        share: range = range(1),
        drop_last: bool = False,
        wait: InputWait | None = None,
    ) -> tf.data.Dataset:
        """Passes over the split, each in its own order, as one stream of batches.

        Batches as of `ordered`.

        Args:
          batch_size: Rows of a global batch; the last one of a pass may be smaller.
          seed: The order of a pass is a function of the seed and the pass's number
            alone.
          epochs: Number of passes; None for no end, which saves several workers from
            asking each other at each step whether a next batch exists.
          first_step: Batch to start at, counted from the start of the first pass.
          replicas: Number of replicas that share a global batch. If they cannot divide
            it evenly, the first replicas get one row more, e.g. 10 rows over 4
            replicas: 3, 3, 2, 2. In a pass's last batch, some may get an empty batch.
          share: The replicas among them that this dataset feeds. Its elements are their
            batches, in the order of steps and, within a step, of replicas.
          drop_last: Whether a pass ends before a smaller last batch.
          wait: Records when each batch is ready.

        Raises:
          UserError: `drop_last` leaves no batch.
        """
        parts = Parts(batch_size, replicas, share, drop_last)
        order = parts, seed, epochs, first_step
        if self.stored is not None:
            read = self.stored.shuffled
            batches = self._keys(
                *order, lambda *some: self._unpacked_blocks(read(*some))
            )
        else:
            keys = self._keys(*order, _blocks(self.records, here=True))
            batches = self._fetched(keys, self.columns)
        if wait is not None:
            batches = wait.stamp(batches, len(share))
        if epochs is None:
            mark = tf.data.experimental.assert_cardinality(tf.data.INFINITE_CARDINALITY)
            batches = batches.apply(mark)
        return parsing.ready(batches, len(share))

    def remote(
        self,
        batch_size: int,
        *,
        seed: int | None = None,
        epochs: int | None,
        first_step: int = 0,
        pipelines: int = 1,
        pipeline: int | tf.Tensor = 0,
        drop_last: bool = False,
    ) -> tf.data.Dataset:
        """Like `shuffled`, for a function that is traced here and runs elsewhere.

        The dataset captures nothing of this process: the process that runs the function
        reads the files, and parses them once if they fit the cache limit.

        Args:
          batch_size: See `shuffled`, like for all arguments that are not listed here.
          seed: See `shuffled`; None for the order of the files, from their start.
          pipelines: Number of input pipelines that divide the global batches.
          pipeline: Number of this pipeline: it gets every `pipelines`-th batch of the
            stream, from `first_step + pipeline` on.

        Raises:
          UserError: `drop_last` leaves no batch.
        """
        held = self.stored
        is_large = held is not None and held.size > held.limit
        streams = self.records is not None or is_large
        parts = Parts(batch_size, 1, range(1), drop_last)
        if seed is None:
            keys = self._in_order(parts, streams=streams).repeat(epochs)
        else:
            streamed = self._counted() if streams else None
            blocks = _blocks(streamed, here=False)
            keys = self._keys(parts, seed, epochs, first_step, blocks)
        keys = keys.shard(pipelines, tf.cast(pipeline, tf.int64))
        if streams:
            return parsing.ready(self._fetched(keys, None))
        files = tf.constant(self.files)
        whole = read_records.of_kind(files, self.files[0])
        whole = whole.batch(self.rows)
        whole = whole.map(parsing.packer(self.spec))
        fetched = whole.flat_map(lambda *kept: self._fetched(keys, kept))
        return parsing.ready(fetched)

    def sample(self, rows: int) -> tuple[Columns, Any]:
        """The first `rows` examples as one batch of (features, label)."""
        if self.columns is None:
            features, label, *_ = next(iter(self.ordered(rows)))
        else:
            packed = columns.rows(self.columns, slice(rows))
            features, label, *_ = self._unpacked(packed)
        return features, label

    def ends(self, rows: int) -> Columns:
        """The features of the first `rows` examples, then of the last ones.

        Args:
          rows: Number of examples from each end; if the split has less than twice as
            many, some are in the result twice.
        """
        parts = np.arange(self.rows)[:rows], np.arange(self.rows)[-rows:]
        which = np.concatenate(parts)
        if self.columns is not None:
            features, *_ = self._unpacked(columns.rows(self.columns, which))
        elif self.stored is not None:
            features, *_ = self._unpacked((self.stored.rows_at(which), {}))
        else:
            parse = parsing.parser(self.spec)
            features, *_ = self._batch(parse(read_records.ends(self.files, rows)))
        return features

    def labels(self) -> Any:
        """The labels of all examples if they are kept in memory, else None."""
        if self.columns is None:
            return None
        unpacked = columns.unpack(self.columns, self.spec)
        return labels.taken(unpacked, Label.of(self.label))

    def values(self, feature: str) -> tf.Tensor:
        """The values of a dense feature in all rows, `[rows, k]`; may read the files.

        Args:
          feature: Name of the feature, the label, or the weight.
        """
        if self.columns is not None:
            return columns.unpack(self.columns, self.spec)[feature]
        return parsing.column(self.files, self.spec, feature)

    def reads(self, replicas: int = 1, share: range = range(1)) -> str:
        """Describes the rows and files that some replicas read, for a log line.

        Args:
          replicas: Number of replicas that share a global batch.
          share: The replicas among them that are fed.
        """
        length = sum(each.size for each in storage.statuses(self.files))
        files = counted(len(self.files), "file")
        read = f"{self.rows:,} rows from {files} ({data_size(length)})"
        if len(share) < replicas:
            read += ", all of them: any worker may need any row"
        if self.columns is not None:
            return f"{read}; kept in memory"
        if self.stored is not None:
            return f"{read}; parsed once, to a temporary file"
        return f"{read}; streamed in every epoch, parsing only this worker's rows"

    def _counted(self) -> Records:
        """The serialized examples, counted now, not in a function that is traced."""
        if self.records is not None:
            return self.records
        with tf.init_scope():
            return Records.count(self.files, required(self.stored).limit)

    def _in_order(self, parts: Parts, *, streams: bool) -> tf.data.Dataset:
        """The rows of each batch in the order of the files, as of `_keys`.

        Args:
          parts: Divides a batch.
          streams: Whether the rows are serialized examples, and not numbers.
        """
        if streams:
            blocks = records.ordered_blocks(self.files, parts.batch_size)
            return parts.of_blocks(blocks)
        return parts.of(tf.range(self.rows, dtype=tf.int64), 0)

    def _keys(
        self,
        parts: Parts,
        seed: int,
        epochs: int | None,
        start: int,
        blocks: Callable[..., tf.data.Dataset] | None,
    ) -> tf.data.Dataset:
        """The rows of each batch: from blocks of a pass, or their numbers."""
        steps = self.steps(parts.batch_size, parts.drop_last)
        check_steps(steps, self.rows, parts.batch_size)
        first_epoch, offset = divmod(start, steps)
        end = _NO_END if epochs is None else epochs
        passes = tf.data.Dataset.range(first_epoch, end)

        def begin(epoch: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            key = tf.stack([tf.constant(seed, tf.int64), epoch])
            return key, tf.where(epoch == first_epoch, tf.constant(offset, tf.int64), 0)

        @no_autograph
        def order(epoch: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            key, first = begin(epoch)
            rows = tf.range(self.rows, dtype=tf.int64)
            order = tf.random.experimental.stateless_shuffle(rows, key)
            order = order[: self.rows_per_pass]
            if self.bucketed_by:
                held = required(self.columns)
                lengths = length_buckets.lengths(held, self.bucketed_by)
                order = length_buckets.sorted_batches(
                    order, lengths, parts.batch_size, key
                )
            return order, first

        if blocks is None:
            return passes.map(order).prefetch(1).flat_map(no_autograph(parts.of))

        @no_autograph
        def streamed(epoch: tf.Tensor) -> tf.data.Dataset:
            key, first = begin(epoch)
            blocks_of_epoch = parts.of_blocks(blocks(key, parts.batch_size, first))
            return blocks_of_epoch.take((steps - first) * len(parts.share))

        return passes.flat_map(streamed)

    def _fetched(self, keys: tf.data.Dataset, kept: Packed | None) -> tf.data.Dataset:
        parse = parsing.parser(self.spec)

        @no_autograph
        def fetch(keys: tf.Tensor) -> Batch:
            if kept is not None:
                return self._unpacked(columns.rows(kept, keys))
            return self._batch(parse(keys))

        return keys.map(fetch, parsing.PARALLEL_CALLS, deterministic=True)

    def _unpacked_blocks(self, blocks: tf.data.Dataset) -> tf.data.Dataset:
        """Blocks of batches, from blocks of stored matrices."""

        @no_autograph
        def unpacked(matrices: Columns, first: tf.Tensor) -> tuple[Any, tf.Tensor]:
            return self._unpacked((matrices, {})), first

        return blocks.map(unpacked).prefetch(1)

    def _unpacked(self, packed: Packed) -> Batch:
        return self._batch(columns.unpack(packed, self.spec))

    def _batch(self, columns_of: Columns) -> Batch:
        features = columns.features(columns_of, self.spec)
        label = labels.taken(features, Label.of(self.label))
        return self.weights.batch(features, label)


def _blocks(
    streamed: Records | None, *, here: bool
) -> Callable[..., tf.data.Dataset] | None:
    if streamed is None:
        return None
    return functools.partial(streamed.blocks, here=here)
