"""Label values that `train` lacks, beside the transform graph: for the Trainer."""

from __future__ import annotations

import json
from collections.abc import Mapping

import tensorflow as tf

_FILE = "unseen_labels.json"


def write(graph: str, labels: Mapping[str, str]) -> None:
    """Writes, for each split, a label value that no row of `train` has, if any.

    Args:
      graph: Folder of the transform graph.
      labels: The value with its file and line, by split.
    """
    if labels:
        with tf.io.gfile.GFile(f"{graph}/{_FILE}", "w") as file:
            file.write(json.dumps(labels))


def load(graph: str, split: str) -> str:
    """Reads the value of a split, with its file and line; "" if it has none.

    Args:
      graph: Folder of the transform graph.
      split: Name of the split.
    """
    if not tf.io.gfile.exists(f"{graph}/{_FILE}"):
        return ""
    with tf.io.gfile.GFile(f"{graph}/{_FILE}") as file:
        return json.loads(file.read()).get(split, "")
