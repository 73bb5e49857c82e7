"""TFRecord files as datasets and tensors.

TensorFlow reads local files. Objects are streamed by Arrow (`tfrecords.py`), which
opens every store, waits for a store that is away, and needs no free disk.
"""

from __future__ import annotations

import collections
import functools
import itertools
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import tensorflow as tf

from strategos.components.files import filesystems
from strategos.components.records import tfrecords


def records(files: Sequence[str]) -> tf.data.Dataset:
    """The records of all files, in order, as scalar strings.

    Args:
      files: TFRecord files, as paths or URLs; a name that ends in `.gz` means GZIP.
    """
    dataset = tf.data.TFRecordDataset([])
    for _, some in itertools.groupby(files, _kind):
        names = list(some)
        dataset = dataset.concatenate(of_kind(tf.constant(names), names[0]))
    return dataset


def of_kind(files: tf.Tensor, like: str) -> tf.data.Dataset:
    """The records of files with names that a graph computes, in order.

    Args:
      files: string [n].
      like: A file of the same kind: of the same store and compression.
    """
    if not filesystems.is_remote(like):
        return tf.data.TFRecordDataset(files, compression(like))

    def pieces(files: np.ndarray) -> Iterator[list[bytes]]:
        for file in files:
            yield from tfrecords.read(file.decode())

    spec = tf.TensorSpec([None], tf.string)
    streamed = tf.data.Dataset.from_generator(
        pieces, args=[files], output_signature=spec
    )
    return streamed.unbatch()


def _kind(file: str) -> tuple[str, bool]:
    return compression(file), filesystems.is_remote(file)


def batches(files: Sequence[str], rows: int) -> Iterator[tf.Tensor]:
    """Yields the records of all files, in order, as tensors string [at most `rows`].

    For work on shards: a dataset that was traced once costs a fifth of a new one, and
    reading in the caller's thread leaves the other cores to the other shards.

    Args:
      files: TFRecord files, as paths or URLs; a name that ends in `.gz` means GZIP.
      rows: Most records of a tensor.
    """
    for (kind, is_remote), some in itertools.groupby(files, _kind):
        spec = tf.TensorSpec([None], tf.string)
        with tf.device("CPU:0"):  # a dataset cannot be copied to a GPU
            if is_remote:
                tensors = iter(records(list(some)).batch(rows))
            else:
                stored = _traced(kind, rows)(tf.constant(list(some)))
                tensors = iter(tf.data.experimental.from_variant(stored, spec))
        yield from tensors


@functools.cache
def _traced(kind: str, rows: int) -> Callable[[tf.Tensor], tf.Tensor]:
    options = tf.data.Options()
    options.autotune.enabled = False
    options.experimental_optimization.apply_default_optimizations = False

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)], autograph=False)
    def stored(files: tf.Tensor) -> tf.Tensor:
        dataset = tf.data.TFRecordDataset(files, kind).batch(rows).with_options(options)
        return tf.data.experimental.to_variant(dataset)

    return stored


def ends(files: Sequence[str], rows: int) -> list[bytes]:
    """The first `rows` records, then the last ones; fewer if there are not so many.

    Args:
      files: TFRecord files, as paths or URLs; a name that ends in `.gz` means GZIP.
        The first and the last ones are read.
      rows: Number of records from each end; if the files have less than twice as many,
        some are in the result twice.
    """
    first = list(records(files).take(rows).as_numpy_iterator())
    last: list[bytes] = []
    for file in reversed(files):
        serialized = records([file]).as_numpy_iterator()
        last = [*collections.deque(serialized, rows - len(last)), *last]
        if len(last) == rows:
            break
    return [*first, *last]


def compression(file: str) -> str:
    """The `compression_type` of a TFRecord file by its name: "GZIP" or ""."""
    return "GZIP" if file.endswith(".gz") else ""
