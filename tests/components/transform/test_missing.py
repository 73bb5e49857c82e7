"""`data.missing`: columns that are dense whatever the data."""

from __future__ import annotations

import numpy as np
import pytest

from strategos.components.errors import UserError
from strategos.components.records.emptiness import Emptiness

MODULE = """
import tensorflow as tf

def preprocessing_fn(inputs):
    assert isinstance(inputs["temp"], tf.Tensor), "not dense"
    assert isinstance(inputs["hour"], tf.Tensor), "not dense"
    return {"temp": inputs["temp"] * 2, "hour": inputs["hour"], "late": inputs["late"]}
"""


def test_a_filled_column_is_dense_with_and_without_empty_cells(new_workload, transform):
    import tensorflow as tf
    import tensorflow_transform as tft

    workload = new_workload(train=40, evaluation=100)
    workload.write_module("filled", MODULE)
    transform(workload, "filled", missing={"temp": -7, "hour": -1})  # `hour`: all full
    output = tft.TFTransformOutput(workload.graph)
    spec = output.raw_feature_spec()
    assert isinstance(spec["hour"], tf.io.VarLenFeature)
    assert isinstance(spec["late"], tf.io.FixedLenFeature)
    records = tf.data.TFRecordDataset(workload.raw("eval"), "GZIP").batch(100)
    raw = tf.io.parse_example(next(iter(records)), spec)
    temp = tft.sparse_tensor_to_dense_with_shape(raw["temp"], [None, 1], -7.0)
    assert temp.numpy().min() == -7
    found = output.transform_features_layer()(raw)
    np.testing.assert_array_equal(found["temp"], temp * 2)
    rows = tf.data.TFRecordDataset(workload.transformed("eval"), "GZIP").batch(100)
    written = tf.io.parse_example(next(iter(rows)), output.transformed_feature_spec())
    np.testing.assert_array_equal(written["temp"], temp * 2)


def test_the_exported_schema_says_that_a_filled_column_may_be_missing(
    new_workload, transform
):
    from strategos.components.schema_file import read_schema
    from strategos.components.transformed import graph

    workload = new_workload(train=5, evaluation=5)
    workload.write_module("filled", MODULE)
    transform(workload, "filled", missing={"temp": -7, "hour": -1})
    schema = read_schema(graph.raw_schema_file(workload.graph))
    required = {each.name for each in schema.feature if each.HasField("shape")}
    assert "late" in required and not {"temp", "hour"} & required


@pytest.mark.parametrize(
    ("fillings", "message"),
    [
        ({"one": "x"}, 'data.missing.one: received "x"; the column is INT'),
        ({"one": 0.5}, "Allowed: a whole number"),
        ({"text": 1}, "The run's report says why a column is text; correct"),
        ({"texts": ""}, "no column `texts`\n    Did you mean `text`?"),
        ({"many": 1}, "`many` may have several values"),
        ({"pair": 1}, "`pair` may have several values"),
    ],
)
def test_a_filling_that_cannot_be_is_refused(schema, fillings, message):
    from strategos.components.transform import missing

    with pytest.raises(UserError) as raised:
        missing.of_varying_length(schema, fillings, {})
    assert message in str(raised.value)


def test_a_column_without_any_value_takes_the_type_of_its_filling(schema):
    from tensorflow_metadata.proto.v0 import schema_pb2

    from strategos.components.transform import missing

    empty = {"text": Emptiness(3, 3)}
    found = missing.of_varying_length(schema, {"text": -1}, empty)
    types = {feature.name: feature.type for feature in found.feature}
    assert types["text"] == schema_pb2.INT


@pytest.fixture
def schema():
    from google.protobuf import text_format
    from tensorflow_metadata.proto.v0 import schema_pb2

    return text_format.Parse(
        """
        feature { name: "one" type: INT shape { dim { size: 1 } } }
        feature { name: "text" type: BYTES value_count { min: 1 max: 1 } }
        feature { name: "many" type: INT value_count { min: 1 } }
        feature { name: "pair" type: INT shape { dim { size: 2 } } }
        """,
        schema_pb2.Schema(),
    )


def test_the_helper_takes_both():
    import tensorflow as tf

    from strategos.components.transform.missing import filled

    sparse = tf.SparseTensor([[1, 0]], tf.constant([5], tf.int64), [3, 1])
    np.testing.assert_array_equal(filled(sparse, -1), [[-1], [5], [-1]])
    dense = tf.constant([["a"], ["b"]])
    assert filled(dense, "") is dense


def test_code_for_sparse_columns_that_gets_a_dense_one_is_told_the_cure(tmp_path):
    import tensorflow as tf

    from strategos.components.transform import preprocessing

    (tmp_path / "fills.py").write_text(
        "import tensorflow_transform as tft\n\n\ndef preprocessing_fn(inputs):\n"
        '    x = inputs["x"]\n'
        "    return {'x': tft.sparse_tensor_to_dense_with_shape(x, [None, 1], 0)}\n"
    )
    function = preprocessing.load(str(tmp_path), "fills", {}, {})
    with pytest.raises(UserError, match="data.missing") as raised:
        function({"x": tf.constant([[1]])})
    assert "fills.py:6" in str(raised.value)
