"""Features that know the label are found through Transform's graph."""

from __future__ import annotations

import pytest
import tensorflow as tf
import tensorflow_transform as tft
from tensorflow_transform.tf_metadata import (
    dataset_metadata,
    metadata_io,
    schema_utils,
)

from strategos.components.targets.label import Label
from strategos.components.trainer.run import export
from strategos.components.transform.analyzers import tft_private
from strategos.components.transformed.graph import TransformGraph

COLUMNS = ("tips", "fare", "miles", "kind")


def preprocessing_fn(inputs):
    return {
        "tips_xf": tf.cast(inputs["tips"] > 0.2 * inputs["fare"], tf.int64),
        "kind_xf": tf.cast(inputs["kind"] > 1, tf.int64),
        "kind": inputs["kind"],
        "share": inputs["tips"] / inputs["fare"],
        "fare_xf": inputs["fare"] - 1,
        "miles_xf": inputs["miles"] * inputs["kind"],
    }


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("graph"))
    spec = dict.fromkeys(COLUMNS, tf.io.FixedLenFeature([], tf.float32))
    specs = dict.fromkeys(COLUMNS, tf.TensorSpec([None], tf.float32))
    tft_private.Traced(preprocessing_fn, specs, folder).save(folder, {})
    metadata = dataset_metadata.DatasetMetadata(
        schema_utils.schema_from_feature_spec(spec)
    )
    raw = f"{folder}/{tft.TFTransformOutput.RAW_METADATA_DIR}"
    metadata_io.write_metadata(metadata, raw)
    return TransformGraph(tft.TFTransformOutput(folder))


@pytest.mark.parametrize(
    ("label", "leaking", "beside"),
    [
        ("tips_xf", ["share"], {"share": {"tips", "fare"}, "fare_xf": {"fare"}}),
        ("kind_xf", ["miles_xf"], {"miles_xf": {"kind"}}),
        ("kind", ["miles_xf"], {"miles_xf": {"kind"}}),
    ],
)
def test_features_of_all_columns_of_a_label_leak(graph, label, leaking, beside):
    features = ["share", "fare_xf", "miles_xf"]
    assert export._leaking(label, graph, features) == leaking
    assert export.beside_label(Label.of(label), graph, features) == beside
    message = export._leak(label, graph, leaking)
    assert f"computes {leaking[0]} from the label `{label}`" in message
    assert ("which is made of `kind`" in message) == (label == "kind_xf")
