"""The process that keeps a pushed model loaded for `strategos predict`."""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strategos.components import fork_listener, processes
from strategos.components.predict import client
from strategos.components.predict.client import ModelServer
from strategos.components.predict.model import Model, ModelFailsError

WAIT_SECONDS = 60


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """SavedModels "1" and "2": numbers, a pair and text of each example."""
    import tensorflow as tf

    root = tmp_path_factory.mktemp("models")
    for version in (1, 2):
        spec = {"x": tf.io.FixedLenFeature([], tf.float32)}

        def answer(examples, version=version, spec=spec):
            x = tf.io.parse_example(examples, spec)["x"]
            tf.debugging.assert_less(x, 1e30, "too large")
            pair = tf.stack([x / 3, tf.sin(x)], 1)
            text = tf.strings.as_string(tf.cast(x > 0, tf.int64))
            return {"predictions": x[:, None] * version, "pair": pair, "text": text}

        module = tf.Module()
        wanted = tf.TensorSpec([None], tf.string, name="examples")
        module.answer = tf.function(answer, input_signature=[wanted])
        folder = str(root / str(version))
        signatures = {"serving_default": module.answer}
        tf.saved_model.save(module, folder, signatures=signatures)
    return root


@pytest.fixture
def place(models, tmp_path):
    """A state folder, and a push folder with version 1."""
    state, target = tmp_path / "state", tmp_path / "flights"
    state.mkdir()
    shutil.copytree(models / "1", target / "1")
    return state, target


@pytest.fixture
def make(place, warm_processes):
    state, target = place
    made = []  # in tests, the process ends with the object that has started it

    def make(**environ):
        made.append(ModelServer(state, str(target), {**os.environ, **environ}))
        return made[-1]

    return make


def fail(*_, **__):
    raise OSError("no process starts")


def never():
    raise AssertionError("the model is loaded in this process")


def example(x):
    import tensorflow as tf

    values = tf.train.FloatList(value=[x])
    feature = {"x": tf.train.Feature(float_list=values)}
    features = tf.train.Features(feature=feature)
    return tf.train.Example(features=features).SerializeToString()


def wait_until(condition):
    until = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.02)


def process_of(state):
    """Id of the process, once it serves."""
    wait_until(lambda: client.process_of(state))
    return client.process_of(state)


def has_ended(process):
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        text = Path(f"/proc/{process}/stat").read_text()
        return text.rpartition(")")[2].split()[0] == "Z"
    return True


def ask(state, path, body=None, agent="curl/8"):
    """Status and JSON of a request, as another client of TF Serving sends it."""
    asked = http.client.HTTPConnection("localhost")
    asked.sock = fork_listener.connect(str(state / "predict.sock"), socket.SOCK_STREAM)
    with contextlib.closing(asked):
        content = None if body is None else json.dumps(body)
        asked.request("POST" if body else "GET", path, content, {"User-Agent": agent})
        answer = asked.getresponse()
        return answer.status, json.loads(answer.read())


def test_values_equal_those_of_this_process_to_the_last_bit(place, make):
    state, target = place
    cold, warm = Model(target / "1"), make().load(1, never)
    numbers = st.floats(width=32, allow_subnormal=False).filter(lambda x: x < 1e30)

    @settings(max_examples=40, deadline=None)
    @given(st.lists(numbers, min_size=1, max_size=9))
    def check(values):
        examples = list(map(example, values))
        assert repr(warm(examples)) == repr(cold(examples))

    check()
    mode = stat.S_IMODE((state / "predict.sock").stat().st_mode)
    assert mode == 0o600
    for model in (cold, warm):
        with pytest.raises(ModelFailsError, match="too large"):
            model([example(1e35)])


def test_requests_of_tensorflow_serving_follow_the_push_folder(place, make, models):
    state, target = place
    make().start()
    body = {"instances": [{"b64": base64.b64encode(example(2.0)).decode()}]}
    named = {"signature_name": "serving_default"}
    named["instances"] = [{"examples": body["instances"][0]}]

    def answered(path):
        status, answer = ask(state, f"/v1/models/{path}:predict", body)
        return answer["predictions"][0]["predictions"] if status == 200 else status

    def version():
        _, answer = ask(state, "/v1/models/flights")
        (found,) = answer["model_version_status"]
        assert found["state"] == "AVAILABLE"
        return found["version"]

    assert (version(), answered("flights")) == ("1", [2.0])
    shutil.copytree(models / "2", target / "5")
    assert (version(), answered("flights")) == ("5", [4.0])
    assert answered("flights/versions/1") == [2.0]
    shutil.copytree(models / "1", target / "7")  # a rollback pushes a copy
    assert (version(), answered("flights")) == ("7", [2.0])
    assert make().load(5, never)([example(2.0)])["predictions"] == [[4.0]]
    assert ask(state, "/v1/models/flights:predict", named)[0] == 200
    # A folder with the number of another one, as after a root begins anew.
    shutil.rmtree(target / "7")
    shutil.copytree(models / "2", target / "7")
    assert answered("flights/versions/7") == [4.0]
    assert answered("flights/versions/6") == 404
    assert answered("others") == 404
    wrong = {"instances": [1.5]}, {"rows": []}, {**body, "signature_name": "no"}
    for each in wrong:
        status, answer = ask(state, "/v1/models/flights:predict", each)
        assert status == 400 and answer["error"]


def test_two_clients_at_once_share_one_process(place, make):
    started = []
    start = processes.start

    def counted(*arguments, **how):
        started.append(start(*arguments, **how))
        return started[-1]

    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(4) as pool:
        patch.setattr(processes, "start", counted)
        asked = [pool.submit(make().load(1, never), [example(x)]) for x in range(4)]
        found = [each.result()["predictions"] for each in asked]
    assert found == [[[0.0]], [[1.0]], [[2.0]], [[3.0]]]
    assert len(started) == 1
    assert process_of(place[0]) == started[0].pid


def test_killed_process_is_replaced_and_its_socket_does_not_matter(place, make):
    state, target = place
    first = make()
    first.start()
    process = process_of(state)
    os.kill(process, signal.SIGKILL)
    wait_until(lambda: has_ended(process))
    # Its threads may hold the socket a moment longer than its first one.
    wait_until(lambda: client.process_of(state) is None)
    assert (state / "predict.sock").exists()
    assert make().load(1, never)([example(3.0)])["predictions"] == [[3.0]]
    # One that ends while it is asked, and cannot start again.
    loads = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(processes, "start", fail)
        (state / "predict.sock").unlink()
        answer = make().load(1, lambda: loads.append(1) or Model(target / "1"))
        for x in (4.0, 5.0):
            assert answer([example(x)])["predictions"] == [[x]]
    assert loads == [1]


def test_process_of_other_code_is_not_used(place, make):
    state, _ = place
    old = make()
    old.start()
    process = process_of(state)
    new = make(TF_NEW="1")
    assert new._code != old._code
    assert new.load(1, never)([example(3.0)])["predictions"] == [[3.0]]
    assert process_of(state) != process
    wait_until(lambda: has_ended(process))
    status, _ = ask(state, "/v1/models/flights", agent=f"strategos/{old._code}")
    assert status == 409


def test_process_of_another_user_is_not_used(place, make):
    if os.getuid():
        pytest.skip("needs root")
    state, _ = place
    make().start()
    script = """
import os, sys, json
from pathlib import Path
from strategos.components.predict.client import ModelServer, process_of
os.setresuid(65534, 65534, 65534)
state = Path(sys.argv[1])
server = ModelServer(state, sys.argv[2], dict(os.environ))
answer = server.load(1, lambda: lambda examples: "in this process")
print(json.dumps([process_of(state), answer([b""])]))
"""
    for path in (*state.parents, state, state / "predict.sock"):
        if path.is_relative_to("/tmp") and path != Path("/tmp"):
            path.chmod(0o777)  # only the kernel's word on the user is left
    command = [sys.executable, "-c", script, *map(str, place)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert json.loads(done.stdout) == [None, "in this process"]


@pytest.mark.parametrize("why", ["idle", "root removed"])
def test_process_ends(why, place, monkeypatch, warm_tensorflow):
    state, target = place
    listening = fork_listener.listen(str(state / "predict.sock"), socket.SOCK_STREAM)
    code = """
import socket, sys
from strategos.components.predict import model_process
model_process._LOOK_SECONDS = 0.02
listening = socket.socket(fileno=int(sys.argv[1]))
server = model_process.Server(listening, *sys.argv[2:4], "code",
    idle=float(sys.argv[4]))
server.serve_forever(0.02)
"""
    seconds = "0.5" if why == "idle" else "300"
    file = state / "serve.py"
    file.write_text(code)
    words = [str(listening.fileno()), str(state / "predict.sock"), str(target), seconds]
    process = subprocess.Popen(
        [sys.executable, str(file), *words], pass_fds=[listening.fileno()]
    )
    listening.close()
    assert ask(state, "/v1/models/flights")[0] == 200
    if why != "idle":
        assert process.poll() is None
        shutil.rmtree(state)
    assert process.wait(WAIT_SECONDS) == 0
    assert not (state / "predict.sock").exists()


@pytest.mark.parametrize(
    "environ, expected",
    [
        ({}, True),
        ({"CI": ""}, True),
        ({"CI": "true"}, False),
        ({"STRATEGOS_WARM": "0"}, False),
        ({"STRATEGOS_WARM": "1"}, True),
    ],
)
def test_no_process_stays_in_ci_or_where_it_is_switched_off(environ, expected):
    assert client.allowed(environ) is expected
