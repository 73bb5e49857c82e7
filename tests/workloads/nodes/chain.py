"""Runs all components that work on data, as in a run with a root here or on S3.

The data, `data/a.parquet`, have columns of texts, of numbers and of lists.
"""

from __future__ import annotations

import nodes
import tensorflow as tf
import tensorflow_transform as tft
from tensorflow_metadata.proto.v0 import schema_pb2

ROWS = 24_000


def run(base, store=None):
    """Runs the components one after the other; each reads what earlier ones wrote.

    Args:
      base: The folder of all files.
      store: If given, the URL of the folder of data and examples.
    """
    store, described = store or base, schema()
    nodes.write_examples(store, f"{store}/examples", "a.parquet")
    nodes.write_statistics(store, f"{base}/statistics")
    nodes.analyze(store, f"{base}/graph", preprocessing_fn, described)
    nodes.transform(store, f"{store}/rows", f"{base}/graph")
    nodes.prepare_evaluation(base, described)
    nodes.evaluate(base, base, store)


def write_table(path):
    """Writes rows with missing values and lists, some of them empty."""
    import pyarrow as pa
    from pyarrow import parquet

    rows = range(ROWS)
    table = pa.table(
        {
            "key": pa.array([n % 977 for n in rows]),
            "x": pa.array([n / 7 if n % 9 else None for n in rows], pa.float32()),
            "text": pa.array(["ä" * (n % 40) or None for n in rows]),
            "tags": pa.array([[f"t{n % 61}"] * (n % 4) for n in rows]),
        }
    )
    parquet.write_table(table, path, row_group_size=ROWS // nodes.SHARDS)


def schema():
    made = nodes.schema()
    made.feature.add(name="tags", type=schema_pb2.BYTES)
    group = made.tensor_representation_group[""].tensor_representation
    group["tags"].ragged_tensor.feature_path.step.append("tags")
    return made


def preprocessing_fn(inputs):
    tags = inputs["tags"]
    lengths = tf.cast(tags.row_lengths(), tf.float32)
    return {
        "tags": tft.compute_and_apply_vocabulary(tags, vocab_filename="tags"),
        "count": tft.scale_to_z_score(lengths),
        "key": inputs["key"],
    }
