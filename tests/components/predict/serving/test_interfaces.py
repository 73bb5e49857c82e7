"""`strategos serve`: the interfaces of TensorFlow Serving, beside the SavedModel."""

from __future__ import annotations

import grpc
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

SERVE, PREDICT = "serving_default", "predict"
TEXTS = st.lists(st.text(max_size=5), min_size=1, max_size=9)
NUMBERS = st.floats(width=32, allow_nan=False).filter(lambda x: abs(x) < 1e30)


def direct(folder, signature, **inputs):
    """What the SavedModel says itself."""
    import tensorflow as tf

    called = tf.saved_model.load(str(folder)).signatures[signature]
    tensors = {name: tf.constant(value) for name, value in inputs.items()}
    return {name: value.numpy() for name, value in called(**tensors).items()}


def test_both_interfaces_answer_as_the_model_itself(running, models):
    import tensorflow as tf

    called = tf.saved_model.load(str(models / "1")).signatures

    @settings(max_examples=25, deadline=None)
    @given(st.data())
    def check(data):
        rows = data.draw(st.integers(1, 5))
        shop = data.draw(st.lists(st.text(max_size=5), min_size=rows, max_size=rows))
        age = data.draw(st.lists(NUMBERS, min_size=rows, max_size=rows))
        counts = st.integers(-(2**40), 2**40)
        visits = data.draw(st.lists(counts, min_size=2 * rows, max_size=2 * rows))
        columns = {
            "age": np.array(age, np.float32)[:, None],
            "shop": np.array([x.encode() for x in shop], object)[:, None],
            "visits": np.array(visits, np.int64).reshape(rows, 2),
        }
        tensors = {name: tf.constant(value) for name, value in columns.items()}
        expected = {k: v.numpy() for k, v in called[PREDICT](**tensors).items()}
        plain = {"age": columns["age"].tolist(), "shop": [[x] for x in shop]}
        plain["visits"] = columns["visits"].tolist()
        in_rows = [
            dict(zip(plain, row, strict=True))
            for row in zip(*plain.values(), strict=True)
        ]
        forms = {"instances": in_rows}, {"inputs": plain}
        for form in forms:
            status, found = running.rest(
                "shop:predict", {"signature_name": PREDICT, **form}
            )
            assert status == 200, found
            if "instances" in form:
                found = {
                    name: [row[name] for row in found["predictions"]]
                    for name in expected
                }
            else:
                found = found["outputs"]
            scores = np.array(found["predictions"], np.float32)
            np.testing.assert_array_equal(scores, expected["predictions"])
            assert found["shop"] == [[x] for x in shop]
        outputs = running.predict(PREDICT, **columns).outputs
        for name, value in expected.items():
            np.testing.assert_array_equal(tf.make_ndarray(outputs[name]), value)

    check()


def test_serialized_examples_in_each_form(running, models):
    examples = [running.example(2.0), running.example(-1.5, "", (0, 0))]
    (expected,) = direct(models / "1", "only", examples=examples).values()
    encoded = running.in_json(examples)
    named = [{"examples": each} for each in encoded]
    for form in (
        {"instances": encoded},
        {"instances": named},
        {"inputs": encoded},
        {"inputs": {"examples": encoded}},
    ):
        body = {"signature_name": "only", **form}
        status, found = running.rest("shop:predict", body)
        assert status == 200
        # One output is not named, as TensorFlow Serving answers.
        (values,) = found.values()
        assert list(found) == ["predictions" if "instances" in form else "outputs"]
        np.testing.assert_array_equal(np.array(values, np.float32), expected)
    status, found = running.rest("shop:predict", {"instances": encoded})
    assert [row["shop"] for row in found["predictions"]] == [["Köln"], [""]]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("{", "JSON Parse error"),
        ([1], "must be a JSON object"),
        ({}, "`instances` (rows) or `inputs` (columns)"),
        ({"instances": [], "inputs": []}, "`instances` (rows) or `inputs`"),
        ({"instances": []}, "at least one row"),
        ({"instances": [1.5]}, "which is no text"),
        ({"instances": [{"b64": "?"}]}, "`examples` must be string"),
        ({"instances": ["a"]}, "Could not parse example input"),
        ({"instances": ["a"], "signature_name": "no"}, '"no" not found in signature'),
    ],
)
def test_bad_requests_are_answered_with_the_reason(running, body, message):
    status, found = running.rest("shop:predict", body)
    assert status == 400
    assert message in found["error"]


ROW = {"age": [1.5], "shop": ["a"], "visits": [1, 2]}


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"age": [1.5], "shop": ["a"]}, "Row 1 of `instances`: no value for `visits`"),
        ({**ROW, "ages": 1}, "Row 1 of `instances`: unknown `ages`"),
        ([1.5], "Row 1 of `instances` must be an object with the keys `age`, `shop`"),
        ({**ROW, "age": ["1.5"]}, "`age` must be float32"),
        ({**ROW, "age": [None]}, "`age` must be float32"),
        ({**ROW, "age": 1.5}, "`age` must be float32"),
        ({**ROW, "visits": [1, 2.5]}, "`visits` must be int64"),
        ({**ROW, "visits": [1, 2**63]}, "`visits` must be int64"),
        ({**ROW, "visits": [1]}, "`visits` must be int64"),
        ({**ROW, "shop": [1]}, "`shop` must be string"),
        ({**ROW, "shop": ["a", "b"]}, "`shop`: lists of different lengths"),
        ({**ROW, "shop": "a"}, "`shop`"),
        ({**ROW, "age": [1e35]}, "too large"),
    ],
)
def test_a_bad_row_is_named(running, row, message):
    body = {"signature_name": PREDICT, "instances": [ROW, row]}
    status, found = running.rest("shop:predict", body)
    assert status == 400
    assert message in found["error"]
    body = {"signature_name": PREDICT, "instances": [ROW]}
    assert running.rest("shop:predict", body)[0] == 200


def test_a_wrong_shape_names_the_right_one(running):
    body = {"signature_name": PREDICT, "inputs": {**ROW, "visits": [[1, 2, 3]]}}
    body["inputs"] |= {"age": [[1]], "shop": [["a"]]}
    _, found = running.rest("shop:predict", body)
    assert found["error"] == (
        "`visits` must be int64 of the shape [?, 2], where ? is any size; received "
        "int64 of the shape [1, 3]"
    )


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("others", 404),
        ("others:predict", 404),
        ("shop/versions/77", 404),
        ("shop/versions/77:predict", 404),
        ("shop/labels/canary", 404),
        ("shop/labels/none/metadata", 404),
        ("shop:classify", 400),
        ("shop:nothing", 400),
        ("shop/versions/x", 400),
    ],
)
def test_unknown_models_versions_and_methods(running, path, status):
    body = {"instances": ["a"]} if ":" in path else None
    found = running.rest(path, body)
    assert found[0] == status and found[1]["error"]


def test_metadata_is_that_of_the_saved_model(running, models):
    from google.protobuf import json_format
    from tensorflow.core.protobuf import saved_model_pb2
    from tensorflow_serving.apis import (
        get_model_metadata_pb2,
        prediction_service_pb2_grpc,
    )

    saved = saved_model_pb2.SavedModel()
    saved.ParseFromString((models / "1" / "saved_model.pb").read_bytes())
    expected = dict(saved.meta_graphs[0].signature_def)
    status, found = running.rest("shop/metadata")
    (number,) = running.stable.versions()
    spec = {"name": "shop", "signature_name": "", "version": str(number)}
    assert (status, found["model_spec"]) == (200, spec)
    signatures = found["metadata"]["signature_def"]["signature_def"]
    assert signatures.keys() == expected.keys()
    for name, each in signatures.items():
        parsed = json_format.ParseDict(each, type(expected[name])())
        parsed.defaults.clear()
        assert parsed.inputs == expected[name].inputs
        assert parsed.outputs == expected[name].outputs

    request = get_model_metadata_pb2.GetModelMetadataRequest()
    request.model_spec.name = "shop"
    request.metadata_field.append("signature_def")
    stub = prediction_service_pb2_grpc.PredictionServiceStub(running.channel)
    response = stub.GetModelMetadata(request)
    unpacked = get_model_metadata_pb2.SignatureDefMap()
    assert response.metadata["signature_def"].Unpack(unpacked)
    assert dict(unpacked.signature_def) == expected
    assert response.model_spec.version.value == number


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ({}, "INVALID_ARGUMENT", "received the inputs none"),
        ({"rows": [b"a"]}, "INVALID_ARGUMENT", "takes `examples`"),
        ({"examples": [1.5]}, "INVALID_ARGUMENT", "`examples` must be string"),
        ({"examples": [b"a"]}, "INVALID_ARGUMENT", "Could not parse example"),
        ({"signature": "no", "examples": [b""]}, "INVALID_ARGUMENT", "not found"),
        ({"version": 77, "examples": [b""]}, "NOT_FOUND", "no version 77"),
        ({"label": "canary", "examples": [b""]}, "NOT_FOUND", "no canary version"),
    ],
)
def test_bad_calls_by_grpc_have_their_status(running, words, code, message):
    with pytest.raises(grpc.RpcError, match=message) as error:
        running.predict(**words)
    assert error.value.code() is getattr(grpc.StatusCode, code)
