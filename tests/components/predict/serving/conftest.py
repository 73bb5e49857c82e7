"""A server of `strategos serve` in this process, and two models for it."""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import threading

import grpc
import pytest

from strategos.components.predict.serving import rpc
from strategos.components.predict.serving.http_server import Server
from strategos.components.predict.serving.versions import CANARY, STABLE, Versions
from strategos.components.push_targets import targets
from strategos.components.services import listening

WAIT_SECONDS = 60
SERVE, PREDICT = "serving_default", "predict"


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

    @staticmethod
    def example(age, shop="Köln", visits=(1, 2)):
        """A serialized example."""
        import tensorflow as tf

        texts = tf.train.BytesList(value=[shop.encode()])
        kinds = {
            "age": tf.train.Feature(float_list=tf.train.FloatList(value=[age])),
            "shop": tf.train.Feature(bytes_list=texts),
            "visits": tf.train.Feature(int64_list=tf.train.Int64List(value=visits)),
        }
        features = tf.train.Features(feature=kinds)
        return tf.train.Example(features=features).SerializeToString()

    def in_json(self, examples):
        """Serialized examples in the body of a request."""
        return [{"b64": base64.b64encode(each).decode()} for each in examples]

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
