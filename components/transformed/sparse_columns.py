"""Columns without a value in some rows: kept beside the graph, and named in advice."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import tensorflow as tf
import tensorflow_transform as tft

from strategos.components.records import emptiness
from strategos.components.records.emptiness import Emptiness
from strategos.components.transformed.graph import TransformGraph

_SHOWN = 5  # columns
_FILE = "missing.json"


def advice(names: Iterable[str], empty: Mapping[str, Emptiness]) -> str:
    """The remedy for code that fails because a column is sparse.

    Args:
      names: The raw columns that are sparse.
      empty: The columns without a value in some rows.
    """
    reasons = [
        f"`{name}` has {empty[name]}." if name in empty else f"`{name}` is sparse."
        for name in sorted(names)[:_SHOWN]
    ]
    return " ".join(
        [
            *reasons,
            "A column is a tf.SparseTensor if a cell of it is empty, else dense. "
            'With `data.missing: {COLUMN: ""}`, or a number in place of "", it is '
            "dense whatever the data; then `preprocessing_fn` needs no filling.",
        ]
    )


def advice_on(graph: str, features: Iterable[str]) -> str:
    """The remedy for code that fails because transformed features are sparse.

    Args:
      graph: Folder of the transform graph.
      features: Names of the features.
    """
    transform = TransformGraph(tft.TFTransformOutput(graph))
    columns = transform.raw_features_of(features)
    spec = transform.raw_spec
    sparse = [n for n in columns if not isinstance(spec[n], tf.io.FixedLenFeature)]
    return advice(sparse, load(graph))


def write(graph: str, empty: Mapping[str, Emptiness]) -> None:
    """Writes beside the transform graph which columns have no value in some rows.

    Args:
      graph: Folder of the transform graph.
      empty: By column.
    """
    with tf.io.gfile.GFile(f"{graph}/{_FILE}", "w") as file:
        file.write(emptiness.to_json(empty))


def load(graph: str) -> dict[str, Emptiness]:
    """Reads the file of `write`; {} if it is missing.

    Args:
      graph: Folder of the transform graph.
    """
    if not tf.io.gfile.exists(f"{graph}/{_FILE}"):
        return {}
    with tf.io.gfile.GFile(f"{graph}/{_FILE}") as file:
        return emptiness.from_json(file.read())
