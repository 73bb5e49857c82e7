"""Reads TFRecord files with TensorFlow.

Two other readers exist. Transform's analysis reads with tfx_bsl in Beam workers, into
Arrow. For a stock `run_fn`, `trainer/run/tfx_run_fn.py` counts rows without any
TensorFlow operation.
"""

from __future__ import annotations

import collections
import functools
import itertools
from collections.abc import Callable, Iterator, Sequence

import tensorflow as tf


def records(files: Sequence[str]) -> tf.data.Dataset:
    """The records of all files, in order, as scalar strings.

    Args:
      files: TFRecord files; a name that ends in `.gz` means GZIP.
    """
    groups = itertools.groupby(files, compression)
    datasets = [tf.data.TFRecordDataset(list(some), kind) for kind, some in groups] or [
        tf.data.TFRecordDataset([])
    ]
    found, *others = datasets
    for other in others:
        found = found.concatenate(other)
    return found


def batches(files: Sequence[str], rows: int) -> Iterator[tf.Tensor]:
    """Yields the records of all files, in order, as tensors string [at most `rows`].

    For work on shards: a dataset that was traced once costs a fifth of a new one, and
    reading in the caller's thread leaves the other cores to the other shards.

    Args:
      files: TFRecord files; a name that ends in `.gz` means GZIP.
      rows: Most records of a tensor.
    """
    for kind, some in itertools.groupby(files, compression):
        spec = tf.TensorSpec([None], tf.string)
        with tf.device("CPU:0"):  # a dataset cannot be copied to a GPU
            stored = _traced(kind, rows)(tf.constant(list(some)))
            found = iter(tf.data.experimental.from_variant(stored, spec))
        yield from found


@functools.cache
def _traced(kind: str, rows: int) -> Callable[[tf.Tensor], tf.Tensor]:
    options = tf.data.Options()
    options.autotune.enabled = False
    options.experimental_optimization.apply_default_optimizations = False

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)], autograph=False)
    def stored(files: tf.Tensor) -> tf.Tensor:
        found = tf.data.TFRecordDataset(files, kind).batch(rows).with_options(options)
        return tf.data.experimental.to_variant(found)

    return stored


def ends(files: Sequence[str], rows: int) -> list[bytes]:
    """The first `rows` records, then the last ones; fewer if there are not so many.

    Args:
      files: TFRecord files; a name that ends in `.gz` means GZIP. The first and the
        last ones are read.
      rows: Number of records from each end; if the files have less than twice as many,
        some are in the result twice.
    """
    first = list(records(files).take(rows).as_numpy_iterator())
    last: list[bytes] = []
    for file in reversed(files):
        found = records([file]).as_numpy_iterator()
        last = [*collections.deque(found, rows - len(last)), *last]
        if len(last) == rows:
            break
    return [*first, *last]


def compression(file: str) -> str:
    """The `compression_type` of a TFRecord file by its name: "GZIP" or ""."""
    return "GZIP" if file.endswith(".gz") else ""
