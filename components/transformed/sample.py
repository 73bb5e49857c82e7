"""A few raw examples beside the transform graph, for the check of each export.

The Trainer compares the answers of the exported model on these rows with the trained
model's answers on the same rows transformed, the first and last rows of the transformed
split that training evaluates on.
"""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from strategos.components.records import read

ROWS = 32
"""Rows from each end of the split; fewer if the split has fewer."""

_FILE = "sample/raw.tfrecord"


def write(graph: str, files: Sequence[str]) -> None:
    """Writes the first and last raw examples of the split that training evaluates on.

    Args:
      graph: Folder of the transform graph.
      files: TFRecord files of the split.
    """
    tf.io.gfile.makedirs(f"{graph}/{_FILE}".rpartition("/")[0])
    with tf.io.TFRecordWriter(f"{graph}/{_FILE}") as writer:
        for record in read.ends(files, ROWS):
            writer.write(record)


def load(graph: str) -> list[bytes]:
    """Reads the serialized examples; none if Transform wrote no sample.

    Args:
      graph: Folder of the transform graph.
    """
    if not tf.io.gfile.exists(f"{graph}/{_FILE}"):
        return []
    return list(tf.data.TFRecordDataset(f"{graph}/{_FILE}").as_numpy_iterator())
