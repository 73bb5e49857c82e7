"""TFRecord files, read by TensorFlow.

Two readers are their own. Transform's analysis reads in Beam workers by tfx_bsl, into
Arrow. A stock `run_fn` counts rows without an operation of TensorFlow, see
`trainer/run/tfx_run_fn.py`.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import tensorflow as tf


def records(files: Sequence[str]) -> tf.data.Dataset:
    """The records of `files` in their order: scalar strings.

    Args:
      files: TFRecord files; GZIP where a name ends in `.gz`.
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
    """How the TFRecord file `file` is compressed, in TensorFlow's words."""
    return "GZIP" if file.endswith(".gz") else ""
