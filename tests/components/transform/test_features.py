"""The output of Transform, compared with TFX's own Transform by value."""

from __future__ import annotations

import math
from collections.abc import Mapping
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest

from strategos.components.user_code import modules

ROWS = 48

SCHEMA = """
feature { name: "row" type: INT presence { min_fraction: 1 } shape {} }
feature { name: "x" type: FLOAT presence { min_fraction: 1 }
          shape { dim { size: 1 } } }
feature { name: "special" type: FLOAT presence { min_fraction: 1 }
          shape { dim { size: 1 } } }
feature { name: "matrix" type: FLOAT presence { min_fraction: 1 }
          shape { dim { size: 2 } dim { size: 3 } } }
feature { name: "n" type: INT presence { min_fraction: 1 }
          shape { dim { size: 1 } } }
feature { name: "big" type: INT presence { min_fraction: 1 }
          shape { dim { size: 1 } } }
feature { name: "key" type: BYTES presence { min_fraction: 1 }
          shape { dim { size: 1 } } }
feature { name: "text" type: BYTES presence { min_fraction: 1 } shape {} }
feature { name: "maybe" type: FLOAT value_count { min: 0 max: 1 } }
feature { name: "maybe_key" type: BYTES value_count { min: 0 max: 1 } }
feature { name: "tokens" type: BYTES }
feature { name: "rag_flat" type: BYTES }
feature { name: "flat" type: INT }
feature { name: "lengths" type: INT }
feature { name: "pairs_flat" type: FLOAT }
feature { name: "at" type: INT int_domain { min: 0 max: 9 } }
feature { name: "of" type: FLOAT }
sparse_feature { name: "wide" is_sorted: true
                 index_feature { name: "at" } value_feature { name: "of" } }
tensor_representation_group { key: "" value {
  tensor_representation { key: "rag" value { ragged_tensor {
    feature_path { step: "rag_flat" } } } }
  tensor_representation { key: "nested" value { ragged_tensor {
    feature_path { step: "flat" } partition { row_length: "lengths" } } } }
  tensor_representation { key: "pairs" value { ragged_tensor {
    feature_path { step: "pairs_flat" } partition { uniform_row_length: 2 } } } }
} }
"""

NUMBERS = """
import tensorflow as tf
import tensorflow_transform as tft

def preprocessing_fn(inputs):
    x, n, key, matrix = (inputs[name] for name in ("x", "n", "key", "matrix"))
    scalar, keys = tf.squeeze(x, 1), tf.squeeze(key, 1)
    flat = tf.reshape(matrix, [-1, 6])
    bounds = tft.quantiles(x, 4, epsilon=0.01)
    counted, count = tft.count_per_key(keys)
    return {
        "row": inputs["row"],
        "z": tft.scale_to_z_score(x),
        "z_matrix": tft.scale_to_z_score(matrix, elementwise=True),
        "z_sparse": tft.scale_to_z_score(inputs["maybe"]),
        "z_ragged": tft.scale_to_z_score(inputs["pairs"]),
        "z_per_key": tft.scale_to_z_score_per_key(scalar, keys),
        "min_max": tft.scale_by_min_max(x, -1.0, 1.0),
        "min_max_per_key": tft.scale_by_min_max_per_key(scalar, keys),
        "zero_one": tft.scale_to_0_1(tf.cast(n, tf.float32)),
        "gaussian": tft.scale_to_gaussian(x),
        "buckets": tft.bucketize(x, 4, epsilon=0.01),
        "buckets_sparse": tft.bucketize(inputs["maybe"], 3, epsilon=0.01),
        "buckets_per_key": tft.bucketize_per_key(scalar, keys, 3, epsilon=0.01),
        "buckets_special": tft.apply_buckets(
            inputs["special"], tf.constant([[-1.0, 0.0, 1.0]])),
        "quantiles": tf.tile(bounds, [tf.shape(x)[0], 1]),
        "interpolated": tft.apply_buckets_with_interpolation(x, bounds),
        "pca": tf.matmul(flat, tft.pca(flat, 2, tf.float32)),
        "covariance": tf.matmul(flat, tft.covariance(flat, tf.float32)),
        "sum": x + tft.sum(x),
        "range": n - tft.min(n) + tft.max(n),
        "size": n + tf.cast(tft.size(n), tf.int64),
        "counts": n + tf.reduce_sum(count) + tf.size(counted, tf.int64),
        "matrix_t": tf.transpose(matrix, [0, 2, 1]),
        "scalar": scalar,
        "empty": tf.zeros_like(matrix)[:, :, :0],
        "special": inputs["special"],
        "special_sparse": tf.sparse.from_dense(inputs["special"]),
        "big": inputs["big"],
        "maybe": inputs["maybe"],
        "density": tft.estimated_probability_density(x, boundaries=4),
    }
"""

TEXT = """
import tensorflow as tf
import tensorflow_transform as tft

def table():
    return tf.lookup.StaticHashTable(
        tf.lookup.KeyValueTensorInitializer(["a", "b"], tf.constant([7, 8], tf.int64)),
        default_value=-5)

def preprocessing_fn(inputs):
    key, text, tokens, n = (inputs[name] for name in ("key", "text", "tokens", "n"))
    vocabulary = tft.compute_and_apply_vocabulary
    words = tf.strings.split(text).to_sparse()
    ids = vocabulary(words, vocab_filename="words")
    size = tft.experimental.get_vocabulary_size_by_name("words")
    indices, weights = tft.tfidf(ids, size)
    lookup = tft.make_and_track_object(table, name="lookup")
    return {
        "row": inputs["row"],
        "key_id": vocabulary(key, vocab_filename="key"),
        "top": vocabulary(words, top_k=3, default_value=99),
        "frequent": vocabulary(words, frequency_threshold=4, num_oov_buckets=2),
        "of_ints": vocabulary(n, num_oov_buckets=1),
        "weighted": vocabulary(key, weights=inputs["x"]),
        "labelled": vocabulary(
            key, labels=tf.cast(n > 3, tf.int64), min_diff_from_avg=0.0),
        "maybe_key": vocabulary(inputs["maybe_key"]),
        "filled": vocabulary(
            tft.sparse_tensor_to_dense_with_shape(inputs["maybe_key"], [None, 1], "")),
        "fingerprints": vocabulary(key, fingerprint_shuffle=True),
        "tfidf_indices": indices,
        "tfidf_weights": weights,
        "ngrams": tft.ngrams(words, (1, 2), " "),
        "bag": tft.bag_of_words(words, (1, 2), " "),
        "hashed": tft.hash_strings(key, 10),
        "hashed_strongly": tft.hash_strings(words, 10, key=[1, 2]),
        "dense": tft.sparse_tensor_to_dense_with_shape(
            inputs["maybe"], [None, 1], default_value=-1.0),
        "deduplicated": tft.deduplicate_tensor_per_row(tokens),
        "looked_up": lookup.lookup(key),
        "word_count": tft.word_count(words),
    }
"""

SHAPES = """
import tensorflow as tf
import tensorflow_transform as tft

def preprocessing_fn(inputs):
    key, text, wide, rag = (inputs[name] for name in ("key", "text", "wide", "rag"))
    characters = tf.strings.unicode_split(
        tf.strings.split(text), "UTF-8", errors="replace")
    annotated = tf.sparse.reshape(wide, [-1, 10])
    tft.experimental.annotate_sparse_output_shape(annotated, [10])
    return {
        "row": inputs["row"],
        "text": text,
        "tokens": inputs["tokens"],
        "pair": tf.concat([key, text[:, tf.newaxis]], 1),
        "wide": wide,
        "cube": tf.sparse.reshape(wide, [-1, 5, 2]),
        "annotated": annotated,
        "rag": rag,
        "rag_ids": tft.compute_and_apply_vocabulary(rag),
        "nested": inputs["nested"],
        "pairs": inputs["pairs"],
        "characters": characters,
        "character_ids": tft.compute_and_apply_vocabulary(characters),
        "matrix": inputs["matrix"],
        "twice": tf.RaggedTensor.from_row_splits(
            tf.tile(rag.values[:, tf.newaxis], [1, 2]), rag.row_splits),
    }
"""


def _raw(number: int) -> dict[str, list[Any]]:
    """A row of every kind; some without values."""
    keys = [b"a", b"b", "\u00e9t\u00e9 \U0001f600".encode(), b"c"]
    texts = [
        b"good old words",
        b"",
        "na\u00efve caf\u00e9 good".encode(),
        b"good  good\tsecond",
        b"x",
        b"\xff\xfe",
    ]
    specials = [math.nan, math.inf, -math.inf, -0.0, 1e-38, 3.4e38, 0.5]
    bigs = [2**63 - 1, -(2**63), 0, -1, 1]
    several = number % 4
    lengths = [number % 3, 0, 2][: number % 4]
    return {
        "row": [number],
        "x": [math.sin(number) * 10],
        "special": [specials[number % 7]],
        "matrix": [math.cos(number * 6 + i) for i in range(6)],
        "n": [number % 7],
        "big": [bigs[number % 5]],
        "key": [keys[number % 4]],
        "text": [texts[number % 6]],
        "maybe": [] if number % 3 == 0 else [number / 3],
        "maybe_key": [] if number % 5 == 0 else [keys[number % 3]],
        "tokens": [keys[(number + i * i) % 4] for i in range(several)],
        "rag_flat": [texts[(number + i) % 6] for i in range(several)],
        "flat": list(range(number, number + sum(lengths))),
        "lengths": lengths,
        "pairs_flat": [number + i / 4 for i in range(2 * several)],
        "at": [i * 3 for i in range(several)],
        "of": [number + i / 2 for i in range(several)],
    }


def _example(row: Mapping[str, list[Any]]) -> bytes:
    import tensorflow as tf

    example = tf.train.Example()
    for name, values in row.items():
        feature = example.features.feature[name]
        kind = {"big": "int64_list", "n": "int64_list"}.get(name)
        if values and kind is None:
            kinds = {bytes: "bytes_list", int: "int64_list", float: "float_list"}
            kind = kinds[type(values[0])]
        if kind:
            getattr(feature, kind).value.extend(values)
    return example.SerializeToString()


def _values(serialized: bytes) -> dict[str, list[Any]]:
    import tensorflow as tf

    example = tf.train.Example.FromString(serialized)
    return {
        name: list(getattr(feature, feature.WhichOneof("kind") or "int64_list").value)
        for name, feature in example.features.feature.items()
    }


def _rows(folder: Path) -> list[dict[str, list[Any]]]:
    """The examples of the train split in `folder`, by their number."""
    import tensorflow as tf

    files = sorted(map(str, folder.glob("Split-train/*.gz")))
    records = tf.data.TFRecordDataset(files, "GZIP")
    return sorted(map(_values, records.as_numpy_iterator()), key=itemgetter("row"))


def _transform_by_tfx(workload, module: str) -> Path:
    """Transforms the same rows with TFX's own Transform; returns the output folder."""
    from tfx.components.transform.executor import Executor
    from tfx.dsl.components.base import base_beam_executor
    from tfx.types import standard_artifacts

    def artifact(kind, name):
        made = kind()
        made.uri = str(workload.root / name)
        return [made]

    raw = artifact(standard_artifacts.Examples, "raw")
    raw[0].split_names = '["train"]'
    modules.activate(workload.folder)
    runner = "apache_beam.runners.portability.fn_api_runner.FnApiRunner"
    context = base_beam_executor.BaseBeamExecutor.Context(
        beam_pipeline_args=[f"--runner={runner}", "--requirements_file=/dev/null"],
        tmp_dir=str(workload.root / "tmp"),
    )
    _complete(workload)
    Executor(context).Do(
        {"examples": raw, "schema": artifact(standard_artifacts.Schema, "schema")},
        {
            "transform_graph": artifact(standard_artifacts.TransformGraph, "by_tfx"),
            "transformed_examples": artifact(standard_artifacts.Examples, "of_tfx"),
        },
        {
            "preprocessing_fn": f"{module}.preprocessing_fn",
            "disable_statistics": 1,
            "force_tf_compat_v1": 0,
        },
    )
    return workload.root / "of_tfx"


def _complete(workload) -> None:
    """Adds the missing representations: TFX 1.16 requires all or none."""
    from google.protobuf import text_format
    from tensorflow_metadata.proto.v0 import schema_pb2
    from tfx_bsl.public import tfxio

    schema = text_format.Parse(SCHEMA, schema_pb2.Schema())
    found = tfxio.TFExampleRecord(
        [workload.schema], schema=schema
    ).TensorRepresentations()
    group = schema.tensor_representation_group[""].tensor_representation
    for name, representation in found.items():
        group[name].CopyFrom(representation)
    Path(workload.schema).write_text(text_format.MessageToString(schema))


@pytest.fixture(scope="module")
def transformed(workload_in, transform, tmp_path_factory):
    """Makes the rows of a module's features, by our Transform and by TFX's."""
    import tensorflow as tf

    def make(source: str):
        workload = workload_in(tmp_path_factory.mktemp("features"))
        (workload.root / "user").mkdir()
        workload.write_module("features", source)
        (workload.root / "schema").mkdir()
        Path(workload.schema).write_text(SCHEMA)
        for split, rows in (("train", ROWS), ("eval", 3)):
            folder = workload.root / "raw" / f"Split-{split}"
            folder.mkdir(parents=True)
            with tf.io.TFRecordWriter(str(folder / "data-0.gz"), "GZIP") as writer:
                for number in range(rows):
                    writer.write(_example(_raw(number)))
        transform(workload, "features", "")
        ours = _rows(workload.root / "transformed")
        return workload, ours, _rows(_transform_by_tfx(workload, "features"))

    return make


@pytest.mark.parametrize(
    "source",
    [
        # A minute each: dozens of analyzers, through Beam twice.
        pytest.param(NUMBERS, id="numbers", marks=pytest.mark.faults),
        pytest.param(TEXT, id="text", marks=pytest.mark.faults),
        pytest.param(SHAPES, id="shapes"),
    ],
)
def test_features_equal_those_of_tfx_row_by_row(transformed, source):
    _, ours, expected = transformed(source)
    assert len(ours) == len(expected) == ROWS
    different = {}
    for row, (found, wanted) in enumerate(zip(ours, expected, strict=True)):
        for name in found.keys() | wanted.keys():
            pair = found.get(name), wanted.get(name)
            if not _equal(*pair):
                different.setdefault(name, (row, *pair))
    assert not different


def _equal(found: list[Any] | None, wanted: list[Any] | None) -> bool:
    import numpy as np

    if not found or not wanted or not isinstance(found[0], float):
        return found == wanted
    return np.allclose(found, wanted, rtol=1e-5, atol=1e-6, equal_nan=True)
