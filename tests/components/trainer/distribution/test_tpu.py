"""Finding a TPU: addresses that answer or do not, within the time-out."""

from __future__ import annotations

import concurrent.futures
import socket
import time

import grpc
import pytest

from strategos.components.errors import UserError
from strategos.components.trainer.distribution import strategy
from strategos.components.trainer.distribution.environment import ClusterSpec
from strategos.components.trainer.launchers import launch
from strategos.components.trainer.operation import Operation


@pytest.fixture
def silent_address():
    """Accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"grpc://127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def full_address():
    """Answers no connection attempt, because its queue is full."""
    server = socket.create_server(("127.0.0.1", 0), backlog=0)
    queued = [socket.socket() for _ in range(3)]
    for each in queued:
        each.setblocking(False)
        each.connect_ex(server.getsockname())
    yield f"grpc://127.0.0.1:{server.getsockname()[1]}"
    for each in (*queued, server):
        each.close()


@pytest.fixture
def closed_address():
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"grpc://127.0.0.1:{server.getsockname()[1]}"
    return address


@pytest.mark.parametrize(
    "place",
    [
        pytest.param("silent_address", marks=pytest.mark.long),
        "full_address",
        "closed_address",
        pytest.param("name", marks=pytest.mark.long),
        "local",
    ],
)
def test_a_missing_tpu_is_reported_in_one_line_in_time(place, request):
    if place == "name":
        # No answer from Google's metadata server, as on any machine elsewhere.
        request.getfixturevalue("monkeypatch").setenv(
            "GCE_METADATA_HOST", "127.0.0.1:9"
        )
    address = request.getfixturevalue(place) if place.endswith("_address") else place
    before = time.monotonic()
    with pytest.raises(UserError) as caught:
        strategy.probe_tpu({"tpu": {"name": address}}, ClusterSpec())
    assert time.monotonic() - before < 60  # TensorFlow alone: more than 100
    assert str(caught.value).startswith(f"The TPU '{address}' cannot be used: ")
    assert "\n" not in str(caught.value)


@pytest.mark.long
def test_a_tpu_that_answers_too_late_is_given_up(silent_address, monkeypatch):
    # The metadata server accepts the request and never answers.
    host = silent_address.removeprefix("grpc://")
    monkeypatch.setenv("GCE_METADATA_HOST", host)
    before = time.monotonic()
    with pytest.raises(UserError, match="no answer within 13 s"):
        strategy.probe_tpu({"tpu": {"name": "my-tpu"}}, ClusterSpec())
    assert time.monotonic() - before < 60  # TensorFlow alone: more than 100


@pytest.fixture(scope="module")
def tensorflow_server(script):
    """A TensorFlow server without a TPU, like that of a process of a gang."""
    code = (
        "import tensorflow as tf\n"
        "server = tf.distribute.Server({'worker': ['127.0.0.1:0']})\n"
        "print(server.target, flush=True); server.join()"
    )
    server = script(code)
    try:
        lines = map(bytes.decode, server.stdout)
        yield next(line.strip() for line in lines if line.startswith("grpc://"))
    finally:
        server.terminate()
        server.wait()


def test_a_tensorflow_server_without_a_tpu_is_rejected_by_name(tensorflow_server):
    with pytest.raises(UserError, match="the TensorFlow server there has no TPU dev"):
        strategy.probe_tpu({"tpu": {"name": tensorflow_server}}, ClusterSpec())


def test_training_on_no_tpu_ends_without_a_restart(tensorflow_server, make_spec, capfd):
    """TensorFlow itself would abort the process, and the gang would restart it."""
    spec = make_spec(
        distribution={"strategy": "tpu", "tpu": {"name": tensorflow_server}}
    )
    with pytest.raises(UserError, match="has no TPU device") as caught:
        launch(spec, Operation())
    assert "restart" not in str(caught.value) + capfd.readouterr().err


class _Status(grpc.GenericRpcHandler):
    """Answers the one call, as raw bytes."""

    def __init__(self, answer):
        self._answer = answer

    def service(self, details):
        if details.method == "/tensorflow.WorkerService/GetStatus":
            return grpc.unary_unary_rpc_method_handler(lambda *_: self._answer)
        return None


@pytest.fixture
def grpc_server():
    """Starts a gRPC server with the given handlers."""
    servers = []

    def start(*handlers):
        servers.append(grpc.server(concurrent.futures.ThreadPoolExecutor(1)))
        servers[-1].add_generic_rpc_handlers(handlers)
        port = servers[-1].add_insecure_port("127.0.0.1:0")
        servers[-1].start()
        return f"grpc://127.0.0.1:{port}"

    yield start
    for server in servers:
        server.stop(0)


def test_a_server_that_lists_a_tpu_is_one(grpc_server):
    from tensorflow.core.framework import device_attributes_pb2

    status = b""  # `repeated DeviceAttributes` as field 1 of a GetStatusResponse
    for kind in ("CPU", "TPU_SYSTEM"):
        name = f"/job:worker/replica:0/task:0/device:{kind}:0"
        device = device_attributes_pb2.DeviceAttributes(name=name, device_type=kind)
        content = device.SerializeToString()
        status += bytes((0x0A, len(content))) + content
    address = grpc_server(_Status(status))
    strategy.probe_tpu({"tpu": {"name": address}}, ClusterSpec())


def test_another_grpc_server_is_rejected_by_name(grpc_server):
    address = grpc_server()
    with pytest.raises(UserError, match=r"no TensorFlow server .*UNIMPLEMENTED"):
        strategy.probe_tpu({"tpu": {"name": address}}, ClusterSpec())
