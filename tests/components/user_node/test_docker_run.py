"""Container components: found servers, and real containers of podman."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from pathlib import Path

import podman
import pytest
import server

from strategos.components.errors import (
    BadInputError,
    ExitCode,
    GateStoppedError,
    UserError,
)
from strategos.components.user_node import USER_MODULE, docker_run


def test_all_sockets_that_do_not_answer_are_named(tmp_path):
    own = {"XDG_RUNTIME_DIR": str(tmp_path)}
    with pytest.raises(BadInputError, match="neither Docker nor podman") as caught:
        docker_run.connect({"DOCKER_HOST": f"unix://{tmp_path}/none"})
    assert f"answers at unix://{tmp_path}/none" in caught.value.message
    assert "podman.socket" in caught.value.remedy
    assert f"unix://{tmp_path}/podman/podman.sock" in docker_run._addresses(own)


@pytest.mark.parametrize(
    "chunks",
    [[b"one\ntwo\nthree"], [b"on", b"e\ntw", b"o\n", b"thr", b"ee\n"]],
)
def test_the_output_is_cut_into_lines_however_it_arrives(chunks):
    assert list(docker_run._lines(chunks)) == ["one", "two", "three"]


@pytest.fixture(scope="module")
def engine():
    with server.running(podman.Podman()) as running:
        yield running


@pytest.fixture
def shout(engine, tmp_path, copy_workload, monkeypatch):
    """Runs the component `own:Shout`, with `code` as its exit code."""
    from tfx.dsl.components.base.base_executor import BaseExecutor
    from tfx.types import Channel, standard_artifacts

    from strategos.components.user_code import modules
    from strategos.components.user_node import component, executor

    copy_workload("own", tmp_path / "own")
    monkeypatch.setenv("DOCKER_HOST", engine.address)

    def run(*, gate=False, word="loud", code=0, **changes):
        folder, artifacts = str(tmp_path / "own"), {}
        for key in ("counted", "shouted"):
            artifacts[key] = [standard_artifacts.HyperParameters()]
            artifacts[key][0].uri = str(tmp_path / key)
            (tmp_path / key).mkdir(exist_ok=True)
        (tmp_path / "counted" / "count.txt").write_text("5 files")
        module = {"folder": folder, "module": "own", "component": "own:Shout"}
        made = component.make(
            modules.function(folder, "own", "Shout"),
            "Shout",
            {**module, "gate": gate},
            {"counted": Channel(type=standard_artifacts.HyperParameters)},
            {"word": word, "code": code},
            on_cluster=False,
        )
        described = json.loads(made.spec.exec_properties[USER_MODULE])
        described["container"] |= changes
        properties = {USER_MODULE: json.dumps(described), "word": word, "code": code}
        end = str(tmp_path / "Shout" / ".system" / "executor_execution" / "1" / "out")
        context = BaseExecutor.Context(executor_output_uri=end)
        given, outputs = ({key: artifacts[key]} for key in artifacts)
        executor.Executor(context).Do(given, outputs, properties)
        return tmp_path / "shouted" / "count.txt"

    return run


@pytest.mark.cluster
def test_a_container_reads_inputs_and_writes_outputs(engine, shout, caplog):
    caplog.set_level("INFO")
    made = shout()
    assert made.read_text() == "5 FILES"
    assert made.stat().st_uid == os.geteuid()
    assert "container: said it loud" in caplog.text
    assert not engine.containers()


@pytest.mark.cluster
@pytest.mark.parametrize(
    ("how", "kind", "says"),
    [
        ({"code": 3, "gate": True}, GateStoppedError, "^said it loud$"),
        ({"code": 3}, UserError, r"own\.py:\d+: `own:Shout` fails: .* code 3: said it"),
        ({"code": 9}, UserError, r"own\.py:\d+: .* ended with exit code 9: said it lo"),
        ({"image": "localhost/none:1"}, UserError, r"own\.py:\d+: .*localhost/none:1"),
        ({"commands": []}, UserError, r"own\.py:\d+: .* fails: image localhost/strat"),
    ],
)
def test_a_container_that_fails_is_blamed_on_its_line(engine, shout, how, kind, says):
    with pytest.raises(kind, match=says) as caught:
        shout(**how)
    stops = kind is GateStoppedError
    assert caught.value.exit_code == (ExitCode.STOPPED if stops else ExitCode.FAILED)
    assert not engine.containers()


@pytest.mark.cluster
def test_an_input_cannot_be_written(engine, shout, tmp_path):
    touch = [{"value": {"stringValue": x}} for x in ("touch", f"{tmp_path}/counted/x")]
    with pytest.raises(UserError, match="Read-only file system"):
        shout(commands=touch)


@pytest.mark.cluster
def test_sigterm_and_the_next_start_remove_containers(engine, shout, tmp_path):
    waits = [{"value": {"stringValue": x}} for x in ("sleep", "600")]

    def end():
        until = time.monotonic() + 30
        while not engine.containers() and time.monotonic() < until:
            time.sleep(0.1)
        os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=end, daemon=True)
    thread.start()
    with pytest.raises(SystemExit) as caught:
        shout(commands=waits)
    thread.join()
    assert caught.value.code == ExitCode.PREEMPTED
    assert not engine.containers()
    how = {"labels": {docker_run._LABEL: str(tmp_path / "Shout")}, "detach": True}
    engine.client.containers.run(podman.IMAGE, "sleep 600", **how)  # of a killed run
    assert Path(shout()).is_file()
    assert not engine.containers()
