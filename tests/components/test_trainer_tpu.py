"""Whether a TPU is there: addresses that answer, those that do not, and in time."""

from __future__ import annotations

import socket
import subprocess
import sys
import time

import pytest

from strategos.components.errors import UserError
from strategos.components.trainer import strategy
from strategos.components.trainer.cluster import ClusterSpec


@pytest.fixture
def silent_address():
    """Accepts connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"grpc://127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def full_address():
    """Answers no attempt to connect: its queue is full."""
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
    "place", ["silent_address", "full_address", "closed_address", "name", "local"]
)
def test_a_tpu_that_is_not_there_is_told_in_one_line_in_time(place, request):
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


def test_a_tpu_that_answers_too_late_is_given_up(silent_address, monkeypatch):
    # The metadata server takes the question and never answers.
    host = silent_address.removeprefix("grpc://")
    monkeypatch.setenv("GCE_METADATA_HOST", host)
    before = time.monotonic()
    with pytest.raises(UserError, match="no answer within 13 s"):
        strategy.probe_tpu({"tpu": {"name": "my-tpu"}}, ClusterSpec())
    assert time.monotonic() - before < 60  # TensorFlow alone: more than 100


def test_a_grpc_server_is_found_to_be_there():
    code = (
        "import tensorflow as tf\n"
        "server = tf.distribute.Server({'worker': ['127.0.0.1:0']})\n"
        "print(server.target, flush=True); server.join()"
    )
    server = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True
    )
    try:
        address = server.stdout.readline().strip()
        strategy.probe_tpu({"tpu": {"name": address}}, ClusterSpec())
    finally:
        server.kill()
        server.communicate()
