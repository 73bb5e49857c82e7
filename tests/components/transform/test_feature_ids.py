"""Ids of vocabulary entries, compared with what the graph of TFT gives for each."""

from __future__ import annotations

import tempfile

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_transform as tft
import tensorflow_transform.beam as tft_beam
from tensorflow_transform.tf_metadata import dataset_metadata, schema_utils

from strategos.components.transformed.graph import ids_of

pytestmark = pytest.mark.long

SPEC = {
    "shop": tf.io.VarLenFeature(tf.string),
    "item": tf.io.FixedLenFeature([], tf.string),
    "words": tf.io.RaggedFeature(tf.string, value_key="words"),
    "n": tf.io.FixedLenFeature([], tf.int64),
    "x": tf.io.FixedLenFeature([], tf.float32),
}
NAMES = ["one", "two", "three", "four", "five"]


def preprocessing_fn(inputs):
    def ids(x, name, **kwargs):
        return tft.compute_and_apply_vocabulary(x, vocab_filename=name, **kwargs)

    shop = tft.sparse_tensor_to_dense_with_shape(inputs["shop"], [None, 1], "")
    words = tf.lookup.KeyValueTensorInitializer(["a", "b"], tf.constant([5, 3]))
    group = tf.lookup.StaticHashTable(words, 9)
    item = ids(inputs["item"], "item", num_oov_buckets=2)
    return {
        "readme": ids(shop, "shop"),
        "item": item,
        "sparse": ids(inputs["shop"], "sparse", num_oov_buckets=1),
        "ragged": ids(inputs["words"], "words"),
        "top": ids(inputs["item"], "top", top_k=2, default_value=7) + 1,
        "numbers": ids(inputs["n"], "n"),
        "one_hot": tf.reshape(tf.one_hot(ids(inputs["item"], "hot"), 6), [-1, 6]),
        "group": tf.cast(group.lookup(inputs["item"]), tf.int64),
        "crossed": item * 10 + ids(inputs["n"], "crossed"),
        "bucket": tft.bucketize(inputs["x"], 3),
        "hashed": tft.hash_strings(inputs["item"], 10),
        "plain": inputs["n"],
        "many_hot": _many_hot(ids, inputs["item"]),
    }


def _many_hot(ids, texts):
    """A vector of the tags in a text, such as a label of several classes."""
    tags = ids(tf.strings.split(texts, "|").to_sparse(), "tags")
    hot = tf.one_hot(tf.sparse.to_dense(tags, default_value=-1), 6)
    return tf.ensure_shape(tf.reduce_max(hot, axis=1), [None, 6])


def _analyzed(rows):
    schema = schema_utils.schema_from_feature_spec(SPEC)
    folder = tempfile.mkdtemp()
    with tft_beam.Context(temp_dir=tempfile.mkdtemp()):
        data = (rows, dataset_metadata.DatasetMetadata(schema))
        _ = (
            data
            | tft_beam.AnalyzeDataset(preprocessing_fn)
            | (tft_beam.WriteTransformFn(folder))
        )
    return tft.TFTransformOutput(folder)


def _rows(names, numbers):
    """The first name is the most frequent one."""
    chosen = [name for i, name in enumerate(reversed(names)) for _ in range(i + 1)]
    return [
        {
            "shop": [name] if i % 3 else [],
            "item": name,
            "words": [name, "w"],
            "n": numbers[i % len(numbers)],
            "x": float(i * len(names)),
        }
        for i, name in enumerate(chosen)
    ]


@pytest.fixture(scope="module")
def output():
    return _analyzed(_rows(NAMES, [3, 1, 1, 8]))


@pytest.fixture(scope="module")
def ids(output):
    return ids_of(output)


def _transformed(output, key, name):
    """The value of a feature for a row in which everything is `key`."""
    text = key if isinstance(key, bytes) else b""
    raw = {
        "shop": tf.sparse.from_dense([[text or b"-"]]),
        "item": tf.constant([text]),
        "words": tf.ragged.constant([[text]]),
        "n": tf.constant([0 if text else key], tf.int64),
        "x": tf.constant([0.0]),
    }
    found = output.transform_features_layer()(raw)[name]
    flat = found if isinstance(found, tf.Tensor) else found.values
    return flat.numpy().reshape(-1)


NAMED = ("readme", "item", "sparse", "ragged", "top", "numbers", "group")


@pytest.mark.parametrize("name", NAMED)
def test_each_entry_has_the_id_that_transform_gives_it(output, ids, name):
    found = ids[name]
    assert len(found.entries)
    for entry, number in zip(found.entries.tolist(), found.ids.tolist(), strict=True):
        assert _transformed(output, entry, name).tolist() == [number]


def test_an_id_of_a_one_hot_vector_is_its_place(output, ids):
    found = ids["one_hot"]
    assert found.is_one_hot and len(found.entries) == len(NAMES)
    for entry, number in zip(found.entries.tolist(), found.ids.tolist(), strict=True):
        vector = _transformed(output, entry, "one_hot")
        np.testing.assert_array_equal(vector, np.eye(6)[number])


@pytest.mark.parametrize(
    ("name", "others"),
    [("readme", [-1]), ("item", [5, 6]), ("sparse", [4]), ("top", [8]), ("group", [9])],
)
def test_keys_without_an_entry_have_ids_too(ids, name, others):
    assert ids[name].others.tolist() == others


@pytest.mark.parametrize("name", ["crossed", "bucket", "hashed", "plain", "many_hot"])
def test_a_feature_of_several_or_no_vocabularies_has_no_entries(ids, name):
    assert ids[name].entries is None
    assert ids[name].looks_up == (name in ("crossed", "many_hot"))


def test_digests_differ_where_and_only_where_values_mean_something_else(output, ids):
    assert {n: x.digest for n, x in ids_of(output).items()} == {
        n: x.digest for n, x in ids.items()
    }
    other = ids_of(_analyzed(_rows(NAMES[::-1], [3, 1, 1, 8])))
    same = {name for name, found in other.items() if found.digest == ids[name].digest}
    assert same == {"group", "hashed", "plain", "numbers", "bucket"}
