"""`strategos serve` follows a push folder, and answers many clients meanwhile."""

from __future__ import annotations

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

from strategos.components.errors import UserError
from strategos.components.predict.serving.versions import CANARY, STABLE
from strategos.pipeline import cli

WAIT_SECONDS = 60


def test_pushes_rollbacks_and_the_canary_are_followed(running):
    examples = [running.example(3.0, "", (0, 0))]

    def scores(where="", **words):
        encoded = running.in_json(examples)
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
            encoded = running.in_json([running.example(number, "", (0, 0))] * 3)
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
