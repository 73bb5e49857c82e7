"""Reads TFRecord files with TensorFlow.

Two other readers exist. Transform's analysis reads with tfx_bsl in Beam workers, into
Arrow. For a stock `run_fn`, `trainer/run/tfx_run_fn.py` counts rows without any
TensorFlow operation.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

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


def compression(file: str) -> str:
    """The `compression_type` of a TFRecord file by its name: "GZIP" or ""."""
    return "GZIP" if file.endswith(".gz") else ""
