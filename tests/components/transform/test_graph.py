"""The parts of Transform's graph that models use, compared with TFT's whole one."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_transform as tft
from hypothesis import given, settings
from hypothesis import strategies as st
from tensorflow_transform.tf_metadata import (
    dataset_metadata,
    metadata_io,
    schema_utils,
)

from strategos.components.transform.analyzers import tft_private
from strategos.components.transformed.graph import TransformGraph

UNUSED = [f"unused_{number}" for number in range(100)]
SPEC = {
    "item": tf.io.FixedLenFeature([], tf.string),
    "other": tf.io.FixedLenFeature([1], tf.string),
    "n": tf.io.FixedLenFeature([], tf.int64),
    "x": tf.io.FixedLenFeature([2], tf.float32),
    "maybe": tf.io.VarLenFeature(tf.float32),
    "words": tf.io.RaggedFeature(
        tf.string, value_key="words", row_splits_dtype=tf.int64
    ),
    **dict.fromkeys(UNUSED, tf.io.FixedLenFeature([], tf.float32)),
}
OUTPUTS = ["bare", "crossed", "dense", "group", "maybe", "scaled", "same", "words"]


def preprocessing_fn(inputs):
    words = tf.lookup.KeyValueTensorInitializer(["a", "b"], tf.constant([5, 3]))
    group = tf.lookup.StaticHashTable(words, 9)
    tf.debugging.assert_greater(inputs["n"], tf.constant(-9, tf.int64), "n too small")
    of_item = tf.cast(group.lookup(inputs["item"]), tf.int64)
    maybe = inputs["maybe"]
    return {
        "bare": inputs["n"],
        "crossed": of_item * 10 + inputs["n"],
        "dense": tft.sparse_tensor_to_dense_with_shape(maybe, [None, 1], 0.5),
        "group": of_item,  # two look-ups of one table, each waits for the other
        "same": tf.cast(group.lookup(inputs["other"]), tf.int64),
        "maybe": maybe,
        "scaled": tf.ensure_shape(inputs["x"] / 3.0, [None, 2]),
        "words": inputs["words"],
    }


@pytest.fixture(scope="module")
def output(tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("graph"))
    schema = schema_utils.schema_from_feature_spec(SPEC)
    specs = {name: _type_spec(spec) for name, spec in SPEC.items()}
    tft_private.Traced(preprocessing_fn, specs, folder).save(folder, {})
    metadata = f"{folder}/{tft.TFTransformOutput.RAW_METADATA_DIR}"
    metadata_io.write_metadata(dataset_metadata.DatasetMetadata(schema), metadata)
    return tft.TFTransformOutput(folder)


@pytest.fixture(scope="module")
def graph(output):
    return TransformGraph(output)


def _type_spec(spec):
    if isinstance(spec, tf.io.FixedLenFeature):
        return tf.TensorSpec([None, *spec.shape], spec.dtype)
    if isinstance(spec, tf.io.RaggedFeature):
        return tf.RaggedTensorSpec([None, None], spec.dtype, 1, spec.row_splits_dtype)
    return tf.SparseTensorSpec([None, None], spec.dtype)


def _raw(rows, seed):
    """Parsed examples with a few values of each column, where it may have none."""
    draw = np.random.default_rng(seed)
    examples = []
    for _ in range(rows):
        example = tf.train.Example()
        feature = example.features.feature
        for name in ("item", "other"):
            feature[name].bytes_list.value.append(draw.choice([b"a", b"b", b"c"]))
        feature["n"].int64_list.value.append(draw.integers(-8, 99))
        feature["x"].float_list.value.extend(draw.normal(size=2))
        feature["maybe"].float_list.value.extend(draw.normal(size=draw.integers(2)))
        feature["words"].bytes_list.value.extend([b"w"] * draw.integers(3))
        for name in UNUSED:
            feature[name].float_list.value.append(0.0)
        examples.append(example.SerializeToString())
    return tf.io.parse_example(examples, SPEC)


@pytest.mark.long
@settings(max_examples=10, deadline=None)
@given(st.sets(st.sampled_from(OUTPUTS), min_size=1), st.integers(1, 5), st.booleans())
def test_some_features_are_what_the_whole_graph_of_tft_gives(
    output, graph, names, rows, whole
):
    raw = _raw(rows, seed=rows)
    if not whole:
        raw = {name: raw[name] for name in graph.raw_features_of(names)}
    layer = output.transform_features_layer()
    expected, found = layer(raw), graph.apply(raw, names)
    assert set(found) == names
    traced = _traced(lambda raw: graph.apply(raw, names), raw).structured_outputs
    described = _traced(layer, raw).structured_outputs
    for name in names:
        for part, other in zip(_flat(found[name]), _flat(expected[name]), strict=True):
            assert part.dtype == other.dtype
            np.testing.assert_array_equal(part, other)
        assert _shapes(traced[name]) == _shapes(described[name])


def _flat(value):
    return tf.nest.flatten(value, expand_composites=True)


def _shapes(value):
    return [str(tensor.shape) for tensor in _flat(value)]


def _traced(function, raw):
    specs = {name: _type_spec(SPEC[name]) for name in raw}
    return tf.function(
        function, input_signature=[specs], autograph=False
    ).get_concrete_function()


def test_columns_that_no_feature_needs_do_not_enter_a_model(graph):
    traced = _traced(lambda raw: graph.transform(raw, ["group", "dense"]), _raw(1, 1))
    library = traced.graph.as_graph_def().library.function
    inputs = {arg.name for each in library for arg in each.signature.input_arg}
    assert library and not [name for name in inputs if "unused" in name]


def test_a_part_of_the_graph_keeps_its_assertions(graph):
    raw = {**_raw(1, 1), "n": tf.constant([-9], tf.int64)}
    with pytest.raises(tf.errors.InvalidArgumentError, match="n too small"):
        graph.apply(raw, ["scaled"])


def test_a_feature_without_its_columns_is_named(graph):
    with pytest.raises(KeyError, match="item"):
        graph.transform({"n": tf.constant([1], tf.int64)}, ["crossed"])
