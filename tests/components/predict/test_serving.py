"""`strategos serve`: the interfaces of TensorFlow Serving, beside the SavedModel."""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import grpc
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strategos.components.errors import UserError
from strategos.components.predict.serving import rpc
from strategos.components.predict.serving.http_server import Server
from strategos.components.predict.serving.versions import CANARY, STABLE, Versions
from strategos.components.push_targets import targets
from strategos.components.services import listening
from strategos.pipeline import cli

WAIT_SECONDS = 60
SERVE, PREDICT = "serving_default", "predict"
TEXTS = st.lists(st.text(max_size=5), min_size=1, max_size=9)
NUMBERS = st.floats(width=32, allow_nan=False).filter(lambda x: abs(x) < 1e30)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """SavedModels "1" and "2" with the signatures of Strategos."""
    import tensorflow as tf

    root = tmp_path_factory.mktemp("models")
    for version in (1, 2):
        spec = {
            "age": tf.io.FixedLenFeature([1], tf.float32),
            "shop": tf.io.FixedLenFeature([1], tf.string),
            "visits": tf.io.FixedLenFeature([2], tf.int64),
        }

        def answer(raw, version=version):
            age = raw["age"]
            tf.debugging.assert_less(age, 1e30, "too large")
            visits = tf.reduce_sum(raw["visits"], 1, keepdims=True)
            lengths = tf.strings.length(raw["shop"])
            score = age * version + tf.cast(lengths, tf.float32)
            score += tf.cast(visits, tf.float32)
            return {"predictions": score, "shop": raw["shop"]}

        def parsed(examples, spec=spec, answer=answer):
            return answer(tf.io.parse_example(examples, spec))

        def only(examples, spec=spec, answer=answer):
            found = answer(tf.io.parse_example(examples, spec))
            return {"predictions": found["predictions"]}

        module = tf.Module()
        examples = tf.TensorSpec([None], tf.string, name="examples")
        raw = {
            name: tf.TensorSpec([None, *each.shape], each.dtype, name=name)
            for name, each in spec.items()
        }
        signatures = {
            SERVE: tf.function(parsed, input_signature=[examples]),
            PREDICT: tf.function(answer, input_signature=[raw]),
            "only": tf.function(only, input_signature=[examples]),
        }
        tf.saved_model.save(module, str(root / str(version)), signatures=signatures)
    return root


class Running:
    """A server in this process, and its clients."""

    def __init__(self, folder, models):
        self.folder, self._models = folder, models
        self.stable = targets.of(str(folder / "shop"))
        self.canary = targets.of(str(folder / "shop-canary"))
        self.log = []

    def start(self):
        sources = {STABLE: self.stable, CANARY: self.canary}
        self.versions = Versions("shop", sources)
        self.refresh()
        opened = listening.on("127.0.0.1", 0)
        self.server = Server(opened, self.versions, self._note)
        forever = {"poll_interval": 0.02}
        threading.Thread(
            target=self.server.serve_forever, kwargs=forever, daemon=True
        ).start()
        self.rpc, self.grpc_port = rpc.listen("127.0.0.1", 0, 8)
        rpc.start(self.rpc, self.versions, self._note)
        self.channel = grpc.insecure_channel(f"127.0.0.1:{self.grpc_port}")
        return self

    def _note(self, *words):
        self.log.append(words)

    def refresh(self):
        return [*self.versions.refresh()]

    def push(self, model, target=None):
        return (target or self.stable).push(str(self._models / str(model)), 5, {})

    def stop(self):
        self.channel.close()
        self.rpc.stop(None)
        self.server.shutdown()
        self.server.server_close()

    def rest(self, path, body=None):
        """Status and JSON of a request."""
        asked = http.client.HTTPConnection("127.0.0.1", self.server.server_port)
        with contextlib.closing(asked):
            text = body if body is None or isinstance(body, str) else json.dumps(body)
            asked.request("GET" if body is None else "POST", f"/v1/models/{path}", text)
            answer = asked.getresponse()
            return answer.status, json.loads(answer.read())

    def predict(self, signature=SERVE, version=None, label=None, **inputs):
        """The response to a PredictRequest of tensorflow-serving-api."""
        import tensorflow as tf
        from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

        request = predict_pb2.PredictRequest()
        request.model_spec.name = "shop"
        request.model_spec.signature_name = signature
        if version:
            request.model_spec.version.value = version
        if label:
            request.model_spec.version_label = label
        for name, value in inputs.items():
            request.inputs[name].CopyFrom(tf.make_tensor_proto(value))
        stub = prediction_service_pb2_grpc.PredictionServiceStub(self.channel)
        return stub.Predict(request, timeout=WAIT_SECONDS)


@pytest.fixture
def running(tmp_path, models):
    made = Running(tmp_path, models)
    made.push(1)
    made.start()
    yield made
    made.stop()


def example(age, shop="Köln", visits=(1, 2)):
    import tensorflow as tf

    kinds = {
        "age": tf.train.Feature(float_list=tf.train.FloatList(value=[age])),
        "shop": tf.train.Feature(bytes_list=tf.train.BytesList(value=[shop.encode()])),
        "visits": tf.train.Feature(int64_list=tf.train.Int64List(value=visits)),
    }
    features = tf.train.Features(feature=kinds)
    return tf.train.Example(features=features).SerializeToString()


def in_base64(data):
    return {"b64": base64.b64encode(data).decode()}


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
    examples = [example(2.0), example(-1.5, "", (0, 0))]
    (expected,) = direct(models / "1", "only", examples=examples).values()
    encoded = [in_base64(each) for each in examples]
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


def test_pushes_rollbacks_and_the_canary_are_followed(running):
    examples = [example(3.0, "", (0, 0))]

    def scores(where="", **words):
        encoded = [in_base64(each) for each in examples]
        body = {"signature_name": "only", "instances": encoded}
        status, found = running.rest(f"shop{where}:predict", body)
        assert status == 200, found
        ((score,),) = found["predictions"]
        output = running.predict("only", **words, examples=examples).outputs
        assert output["predictions"].float_val == [score]
        return score

    def versions():
        _, found = running.rest("shop")
        return [each["version"] for each in found["model_version_status"]]

    (first,) = running.stable.versions()
    assert (scores(), versions()) == (3.0, [str(first)])
    held = running.versions.get()
    second = running.push(2)
    assert scores() == 3.0  # until it is loaded
    (change,) = running.refresh()
    assert (change.label, change.loaded.number) == (STABLE, second)
    assert (scores(), versions()) == (6.0, [str(second)])
    assert scores(f"/versions/{first}", version=first) == 3.0
    assert scores("/labels/stable", label="stable") == 6.0
    # A request in progress ends on the version that it began with.
    found = held.model.call("only", {"examples": np.array(examples, object)})
    assert found["predictions"].tolist() == [[3.0]]
    third = running.push(1)  # a rollback pushes a copy
    assert [each.loaded.number for each in running.refresh()] == [third]
    assert scores() == 3.0
    trial = running.push(2, running.canary)
    assert [each.label for each in running.refresh()] == [CANARY]
    assert (scores(), scores("/labels/canary", label="canary")) == (3.0, 6.0)
    assert versions() == sorted({str(third), str(trial)}, reverse=True)
    running.canary.remove(trial)
    (change,) = running.refresh()
    assert (change.label, change.loaded) == (CANARY, None)
    assert running.rest("shop/labels/canary")[0] == 404
    assert [*running.refresh()] == []


def test_a_version_that_does_not_load_leaves_the_former_one(running):
    (first,) = running.stable.versions()
    broken = running.folder / "broken"
    broken.mkdir()
    (broken / "saved_model.pb").write_bytes(b"no model")
    second = running.stable.push(str(broken), 5, {})
    (change,) = running.refresh()
    assert "does not load" in change.problem
    assert running.refresh() == []  # not tried again, nor reported
    _, found = running.rest("shop")
    states = {x["version"]: x["state"] for x in found["model_version_status"]}
    assert states == {str(second): "END", str(first): "AVAILABLE"}
    assert running.rest("shop/labels/stable")[0] == 200
    third = running.push(2)
    assert [each.loaded.number for each in running.refresh()] == [third]
    _, found = running.rest("shop")
    assert [x["version"] for x in found["model_version_status"]] == [str(third)]
    with pytest.raises(UserError, match="does not load"):
        running.versions.get(second)


def test_states_by_grpc(running):
    from tensorflow_serving.apis import get_model_status_pb2, model_service_pb2_grpc

    (number,) = running.stable.versions()
    stub = model_service_pb2_grpc.ModelServiceStub(running.channel)
    request = get_model_status_pb2.GetModelStatusRequest()
    request.model_spec.name = "shop"
    (found,) = stub.GetModelStatus(request).model_version_status
    kind = get_model_status_pb2.ModelVersionStatus
    assert (found.version, found.state) == (number, kind.AVAILABLE)
    request.model_spec.version.value = 77
    with pytest.raises(grpc.RpcError, match="no version 77"):
        stub.GetModelStatus(request)


def test_many_clients_at_once_during_pushes_have_whole_answers(running):
    """Each answer is that of one of the versions, for all of its rows."""
    stop = threading.Event()

    def ask(number):
        found = set()
        while not stop.is_set():
            encoded = [in_base64(example(number, "", (0, 0)))] * 3
            body = {"signature_name": "only", "instances": encoded}
            status, answer = running.rest("shop:predict", body)
            assert status == 200
            (score,) = {score for (score,) in answer["predictions"]}
            found.add(score / number)
        return found

    with ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(ask, float(number)) for number in range(1, 9)]
        for model in (2, 1, 2):
            running.push(model)
            running.refresh()
        stop.set()
        assert {x for each in asked for x in each.result()} <= {1.0, 2.0}


def test_a_connection_stays_for_further_requests(running):
    asked = http.client.HTTPConnection("127.0.0.1", running.server.server_port)
    with contextlib.closing(asked):
        ends = set()
        for path in ("shop", "others", "shop"):
            asked.request("GET", f"/v1/models/{path}")
            asked.getresponse().read()
            ends.add(asked.sock.getsockname())
        assert len(ends) == 1
    assert [each[0][-3:] for each in running.log] == ["200", "404", "200"]


@pytest.fixture
def serve(project, tmp_path):
    """Starts `strategos serve`; returns the process, and its addresses by scheme."""
    started = []

    def serve(*words):
        command = [sys.executable, "-m", "strategos.pipeline.cli", "serve", *words]
        with open(tmp_path / "log", "wb") as log:
            process = subprocess.Popen(
                [*command, "--port", "0", "--grpc-port", "0"],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        started.append(process)
        lines = [process.stdout.readline() for _ in range(2)]
        return process, dict(re.findall(r"(\w+)://\S+:(\d+)", "".join(lines)))

    yield serve
    for process in started:
        process.kill()
        process.communicate()


@pytest.mark.long
def test_the_command_follows_the_push_folder_until_ctrl_c(serve, project, tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(project, folder)
    process, ports = serve(str(folder / "pipeline.yaml"))

    def state():
        asked = http.client.HTTPConnection("127.0.0.1", int(ports["http"]))
        with contextlib.closing(asked):
            asked.request("GET", "/v1/models/flights")
            (found,) = json.loads(asked.getresponse().read())["model_version_status"]
        return found["version"]

    assert state() == "10"
    channel = grpc.insecure_channel(f"127.0.0.1:{ports['grpc']}")
    grpc.channel_ready_future(channel).result(WAIT_SECONDS)
    channel.close()
    shutil.copytree(folder / "serving/flights/10", folder / "serving/flights/.tmp-11")
    os.rename(folder / "serving/flights/.tmp-11", folder / "serving/flights/11")
    until = time.monotonic() + WAIT_SECONDS
    while state() != "11":
        assert time.monotonic() < until
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    assert process.wait(WAIT_SECONDS) == 0
    log = (tmp_path / "log").read_text()
    assert "flights: version 10 is stable, loaded in" in log
    assert "flights: version 11 is stable, loaded in" in log
    assert "GET /v1/models/flights  200" in log
    assert "Traceback" not in log


def test_what_cannot_be_served_is_one_message(project, tmp_path, capsys):
    yaml = str(project / "pipeline.yaml")

    def refused(*words):
        assert cli.main(["serve", *words]) == 2
        return capsys.readouterr().err

    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        message = refused(yaml, "--port", port)
        assert f"--port: received {port} on 127.0.0.1" in message
        message = refused(yaml, "--port", "0", "--grpc-port", port)
        assert f"--grpc-port: received {port} on 127.0.0.1" in message
    assert "no SavedModel, and no folder" in refused("--model", str(tmp_path))
    nowhere = f"pusher.to={tmp_path}/none"
    assert "no model has been pushed" in refused(yaml, "--set", nowhere)
