"""What is missing or wrong is found before anything is started."""

from __future__ import annotations

import http.server
import json
import threading

import pytest

from strategos.components.errors import BadInputError, UserError
from strategos.components.shards.flink import jars, java
from strategos.components.shards.flink.connection import connected
from strategos.components.shards.flink.master import Master


@pytest.fixture
def fake_java(tmp_path, monkeypatch):
    """Installs a `java` of some release as JAVA_HOME, which then runs a command."""

    def install(version, then="exit 3"):
        program = tmp_path / "home" / "bin" / "java"
        program.parent.mkdir(parents=True)
        program.write_text(
            f'#!/bin/sh\n[ "$1" = -version ] && echo \'openjdk version "{version}"\' '
            f">&2 && exit\n{then}\n"
        )
        program.chmod(0o755)
        monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))

    return install


def test_missing_java_is_named_with_the_remedy(monkeypatch, tmp_path):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(BadInputError) as caught, connected(None, 1, 1, tmp_path):
        pass
    assert f"needs java, which is not in JAVA_HOME={tmp_path}" in str(caught.value)
    assert "apt-get install openjdk-17-jdk-headless" in caught.value.remedy


@pytest.mark.parametrize(
    ("version", "shown"), [("1.8.0_402", 8), ("25.0.2", 25), ("11", 11)]
)
def test_other_releases_of_java_are_rejected(fake_java, version, shown):
    fake_java(version)
    with pytest.raises(BadInputError, match=rf"received Java {shown} .*Java 17 and 21"):
        java.program()


def test_missing_jars_are_named_with_the_command(fake_java, monkeypatch, tmp_path):
    fake_java("17.0.15")
    monkeypatch.setenv("STRATEGOS_CACHE", str(tmp_path))
    with pytest.raises(BadInputError) as caught, connected(None, 1, 1, tmp_path):
        pass
    assert str(tmp_path / "flink-1.19-") in str(caught.value)
    assert "Run `strategos engine setup` once" in caught.value.remedy
    assert [path.name for path in tmp_path.iterdir()] == ["home"]


@pytest.mark.parametrize(
    ("environ", "parent"),
    [
        ({"STRATEGOS_CACHE": "/a", "XDG_CACHE_HOME": "/b"}, "/a"),
        ({"XDG_CACHE_HOME": "/b"}, "/b/strategos"),
    ],
)
def test_cache_can_be_moved(environ, parent):
    assert str(jars.folder(environ).parent) == parent


@pytest.fixture
def server():
    """Serves one answer to any request, or one by path, as `host:port`."""
    running = []

    def serve(body):
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                self.send_response(200)
                self.end_headers()
                found = body[self.path] if isinstance(body, dict) else body
                self.wfile.write(found)

            def log_message(self, *_):
                pass

        running.append(http.server.HTTPServer(("127.0.0.1", 0), Handler))
        threading.Thread(target=running[-1].serve_forever, daemon=True).start()
        return f"127.0.0.1:{running[-1].server_port}"

    yield serve
    for each in running:
        each.shutdown()
        each.server_close()


OVERVIEW = {
    "flink-version": "1.19.1",
    "taskmanagers": 2,
    "slots-total": 4,
    "slots-available": 3,
}


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (b"<html>hello</html>", "no Flink master answers there: it is not Flink"),
        (b'{"version": 3}', "no Flink master answers there: it is not Flink"),
        (b"[]", "no Flink master answers there: it is not Flink"),
        (
            {**OVERVIEW, "flink-version": "1.20.0"},
            "Flink 1.20.0 runs there, .* Flink 1.19",
        ),
        ({**OVERVIEW, "flink-version": "1.190"}, "Flink 1.190 runs there"),
        (OVERVIEW, "3 of 4 task slots are free, and run.engine.workers needs 4"),
        ({**OVERVIEW, "slots-total": 2}, "2 task slots, and run.engine.workers needs"),
        ({**OVERVIEW, "slots-total": 0}, "0 task slots.*\n.*Start TaskManagers"),
    ],
)
def test_unfit_masters_are_rejected_before_data_are_read(server, answer, message):
    body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
    address = server(body)
    with pytest.raises(BadInputError, match=message) as caught:
        Master(address).check(4)
    assert caught.value.key == "run.engine.options.master"
    assert caught.value.received == address


def test_master_that_does_not_answer_is_rejected():
    with pytest.raises(BadInputError, match="no Flink master answers there: .*refused"):
        Master("127.0.0.1:1").check(1)
    with pytest.raises(BadInputError, match="no Flink master answers there: .*resol|k"):
        Master("no-such-host.invalid:8081").check(1)


@pytest.mark.parametrize(("total", "of_each"), [(4, 2), (5, 3)])
def test_fit_master_is_accepted_with_the_slots_of_a_task_manager(
    server, monkeypatch, total, of_each
):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")  # neighbours need no proxy
    answer = json.dumps({**OVERVIEW, "slots-total": total}).encode()
    assert Master(server(answer)).check(3) == of_each


@pytest.mark.parametrize(
    ("buffers", "settings", "told"),
    [
        (4096, {}, "holds 8 shuffles at a time for each task slot"),
        (4096, {"taskmanager.network.sort-shuffle.min-buffers": "64"}, ""),
        (65536, {}, ""),
        (1024, {"taskmanager.network.sort-shuffle.min-buffers": "64"}, "16 shuffles"),
    ],
)
def test_master_with_too_little_network_memory_is_rejected(
    server, buffers, settings, told
):
    """With Flink's own settings, its first figures, Transform restarted ten times."""
    managers = [{"id": "127.0.0.1:1-a", "slotsNumber": 2}]
    about = {"memoryConfiguration": {"networkMemory": 2 * buffers * 32768}}
    answers = {
        "/overview": OVERVIEW | {"slots-available": 4},
        "/jobmanager/config": [{"key": k, "value": v} for k, v in settings.items()],
        "/taskmanagers": {"taskmanagers": managers},
        "/taskmanagers/127.0.0.1:1-a": about,
    }
    master = Master(server({k: json.dumps(v).encode() for k, v in answers.items()}))
    if not told:
        assert master.check(4) == 2
        return
    with pytest.raises(BadInputError, match=told) as caught:
        master.check(4)
    assert "taskmanager.network.sort-shuffle.min-buffers: 64" in caught.value.remedy


def test_start_that_fails_shows_the_last_lines_of_the_log(
    fake_java, monkeypatch, tmp_path
):
    fake_java("17.0.15", then="echo heap is too large; exit 3")
    monkeypatch.setenv("STRATEGOS_CACHE", str(tmp_path))
    jars.folder().mkdir()
    with (
        pytest.raises(Exception) as caught,
        connected(None, 1, 1, tmp_path / "logs"),
    ):
        pass
    assert str(caught.value) == (
        "Flink's JobManager did not start (exit code 3)\n"
        f"    Its log, {tmp_path}/logs/jobmanager.log:\n      heap is too large"
    )


def test_job_manager_that_dies_later_did_start(
    fake_java, server, monkeypatch, tmp_path
):
    port = json.dumps([{"key": "jobmanager.rpc.port", "value": "1"}]).encode()
    fake_java(
        "17.0.15",
        then='case "$*" in *StandaloneSession*) '
        f"echo Rest endpoint listening at {server(port)}; sleep 1; kill -9 $$;; esac\n"
        "exec sleep 60",
    )
    monkeypatch.setenv("STRATEGOS_CACHE", str(tmp_path))
    jars.folder().mkdir()
    with (
        pytest.raises(UserError, match=r"JobManager ended \(SIGKILL\)\n *Run again:"),
        connected(None, 1, 1, tmp_path / "logs"),
    ):
        pass
