"""Who is told how a run ended: real programs, a real web server."""

from __future__ import annotations

import contextlib
import http.server
import itertools
import json
import socket
import threading
import time

import pytest

from strategos.components.errors import ExitCode, UserError
from strategos.pipeline import commands
from strategos.pipeline.config import loading, operating
from strategos.pipeline.history.runs import Run
from strategos.pipeline.run import notification
from strategos.pipeline.run.orchestration import Result

_FAILED = Run(
    "r9",
    "flights",
    1.0,
    9.0,
    "failed",
    metrics={"auc": 0.7, "mae": 12.0},
    cause='no "room" {log}',
)
_DONE = Run("r7", "flights", 1.0, 9.0, "blessed", metrics={"auc": 0.7})


@pytest.fixture
def told(workload):
    """Tells of a run with settings of `notify`; what the program wrote to a file."""
    heard = workload.parent / "heard.json"

    def tell(notify: str, run=_DONE):
        config = loading.load(workload, sets=(f"notify={notify}",)).config
        notification.notify(config, run)
        return json.loads(heard.read_text()) if heard.exists() else None

    return tell


@pytest.fixture
def server(monkeypatch):
    """A web server; the list of what it received, and its answers to come."""
    received, answers = [], []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            length = int(self.headers["Content-Length"])
            received.append((self.headers["Content-Type"], self.rfile.read(length)))
            self.send_response(answers.pop() if answers else 200)
            self.send_header("Location", "/elsewhere")
            self.end_headers()

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        threading.Thread(target=listening.serve_forever, daemon=True).start()
        port = listening.server_address[1]
        monkeypatch.setenv("STRATEGOS_WEBHOOK", f"http://127.0.0.1:{port}/s3cret")
        yield received, answers
        listening.shutdown()


def test_a_program_reads_how_the_run_ended(told):
    heard = told("{command: [sh, -c, cat > heard.json]}")
    assert heard["outcome"] == "blessed"
    assert heard["run_id"] == "r7"
    assert heard["metrics"] == {"auc": 0.7}


@pytest.mark.parametrize(
    ("outcome", "told_of"),
    [
        ("failed", True),
        ("not blessed", False),
        ("blessed", False),
        ("stopped", False),
        ("interrupted", False),
    ],
)
def test_only_the_ends_that_are_asked_for_are_told(told, outcome, told_of):
    run = Run("r8", "flights", 1.0, 9.0, outcome)
    notify = "{command: [sh, -c, cat > heard.json], on: [failure]}"
    assert (told(notify, run) is not None) == told_of


def test_a_program_that_fails_is_reported_with_what_it_said(told, capsys):
    told("{command: [sh, -c, 'echo no network; exit 3']}")
    problem = capsys.readouterr().err
    assert problem == (
        "strategos: notify.command: sh ended with exit code 3\n    no network\n"
    )


def test_a_program_that_hangs_is_ended_with_its_children(told, capsys, tmp_path):
    begun = time.monotonic()
    told("{command: [sh, -c, 'sleep 600 & sleep 600'], timeout: 1s}")
    assert time.monotonic() - begun < 60
    assert "sh did not end within 1s" in capsys.readouterr().err


def test_a_web_server_is_told(told, server, capsys):
    received, _ = server
    told("{webhook: true}")
    ((kind, body),) = received
    assert kind == "application/json"
    assert json.loads(body)["run_id"] == "r7"
    assert not capsys.readouterr().err


def test_a_server_that_refuses_is_reported_without_the_secret(
    told, server, capsys, monkeypatch
):
    _, answers = server
    answers.append(403)
    told("{webhook: true}")
    monkeypatch.setenv("STRATEGOS_WEBHOOK", "http://127.0.0.1:9/s3cret")
    told("{webhook: true}")
    refused, absent = capsys.readouterr().err.splitlines()
    assert refused == "strategos: notify.webhook: the server answered 403 Forbidden"
    assert "the server of STRATEGOS_WEBHOOK cannot be reached: " in absent
    assert "s3cret" not in refused + absent


def test_a_redirect_is_reported_since_it_would_lose_the_message(told, server, capsys):
    received, answers = server
    answers.append(302)
    told("{webhook: true}")
    assert len(received) == 1
    assert capsys.readouterr().err.endswith("the server answered 302 Found\n")


@contextlib.contextmanager
def _answering(*parts: bytes, pause: float = 0.0):
    """The address of a server that sends these bytes to its first client."""

    def serve():
        connection, _ = listening.accept()
        with connection, contextlib.suppress(OSError):
            connection.recv(65536)
            for part in parts:
                connection.sendall(part)
                time.sleep(pause)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        thread.join()


def test_a_server_that_speaks_no_http_is_reported(told, capsys, monkeypatch):
    with _answering(b"SSH-2.0-OpenSSH_9.2\r\n\r\n") as url:
        monkeypatch.setenv("STRATEGOS_WEBHOOK", url)
        told("{webhook: true}")
    told_of = capsys.readouterr().err
    assert told_of.endswith("does not speak HTTP: SSH-2.0-OpenSSH_9.2\n")


def test_a_server_that_answers_byte_by_byte_does_not_hold_the_run(
    told, capsys, monkeypatch
):
    begun = time.monotonic()
    trickle = itertools.chain([b"HTTP/1.1 200 OK\r\nX: "], itertools.repeat(b"x", 20))
    with _answering(*trickle, pause=0.1) as url:
        monkeypatch.setenv("STRATEGOS_WEBHOOK", url)
        told("{webhook: true, timeout: 1s}")
        assert time.monotonic() - begun < 1.9
    assert "did not answer within 1s" in capsys.readouterr().err


def test_a_template_is_sent_with_its_placeholders_filled_in(told, server):
    received, _ = server
    body = "[{type: TextBlock, wrap: true, text: '${x} {run_id}'}, {n: 1}]"
    text = "{pipeline}: {outcome} {metrics} {error} {log}"
    told(f"{{webhook: true, template: {{text: '{text}', body: {body}}}}}", _FAILED)
    assert json.loads(received[0][1]) == {
        "text": 'flights: failed auc 0.7000, mae 12.00 no "room" {log} ',
        "body": [{"type": "TextBlock", "wrap": True, "text": "${x} r9"}, {"n": 1}],
    }


def test_each_value_of_the_message_has_a_placeholder():
    assert tuple(notification.message_of(_DONE)) == operating.NOTIFIED


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/hostname",
        "ftp://example.org/s3cret",
        "data:,s3cret",
        "example.org/s3cret",
        "http://example.org:s3cret",
        "http:///s3cret",
        "http://example.org/s3 cret",
        "http://example.org/s3cret\n",
        "http://[::1/s3cret",
    ],
)
def test_only_web_addresses_are_taken(workload, monkeypatch, url):
    monkeypatch.setenv("STRATEGOS_WEBHOOK", url)
    config = loading.load(workload, sets=("notify={webhook: true}",)).config
    (problem,) = map(str, notification.problems(config))
    assert "STRATEGOS_WEBHOOK has no URL of the form http://… or https://…" in problem
    assert "s3" not in problem


def test_what_cannot_be_told_here_is_known_before_a_run(workload, monkeypatch):
    monkeypatch.delenv("STRATEGOS_WEBHOOK", raising=False)
    setting = "notify={command: [./tell.sh], webhook: true}"
    config = loading.load(workload, sets=(setting,)).config
    command, webhook = map(str, notification.problems(config))
    assert "notify.command: program './tell.sh' not found" in command
    assert "STRATEGOS_WEBHOOK is not set" in webhook
    program = workload.parent / "tell.sh"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("STRATEGOS_WEBHOOK", "https://example.org")
    assert not list(notification.problems(config))


def test_the_end_of_a_run_is_told_without_ml_metadata(workload, capsys):
    notify = "notify={command: [sh, -c, cat > heard.json]}"
    server = "run.metadata=mysql://user@127.0.0.1:1/gone"
    config = loading.load(workload, sets=(notify, server)).config
    failure = UserError("the server went away")
    result = Result("r7", "failed", ExitCode.FAILED, failure, "Trainer")
    assert commands.report(config, result) == ExitCode.FAILED
    heard = json.loads((workload.parent / "heard.json").read_text())
    assert (heard["run_id"], heard["outcome"]) == ("r7", "failed")
    assert heard["error"] == "the server went away"
    assert "the run is failed; ML Metadata on mysql" in capsys.readouterr().err


PAGER = """
import pathlib, json, time
from pydantic import BaseModel
from strategos.components.plugins.notification import Notification

class Settings(BaseModel, extra="forbid"):
    file: str
    text: str = "done"

class Pager(Notification):
    settings = Settings

    def send(self, message, to):
        if to.settings["text"] == "slow":
            time.sleep(60)
        assert message["outcome"] == "blessed", "nobody is on duty"
        about = [to.settings["text"], message["run_id"]]
        (to.folder / to.settings["file"]).write_text(json.dumps(about))
"""


@pytest.fixture
def pager(install):
    install("pager", PAGER, "[strategos.notifications]\npager = pager:Pager\n")


def test_a_plug_in_is_told(told, pager, capsys):
    assert told("{plugins: {pager: {file: heard.json}}}") == ["done", "r7"]
    told("{plugins: {pager: {file: heard.json}}}", _FAILED)
    heard = "strategos: notify.plugins.pager: nobody is on duty\n"
    assert capsys.readouterr().err == heard
    begun = time.monotonic()
    told("{plugins: {pager: {file: heard.json, text: slow}}, timeout: 1s}")
    assert time.monotonic() - begun < 30
    assert "the plug-in did not answer within 1s" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("settings", "key", "said"),
    [
        ("{}", "pager.file", "the required key is missing"),
        ("null", "pager.file", "the required key is missing"),
        ("3", "pager", "received 3 (a whole number)\n    Allowed: a mapping"),
        ("{file: x, txt: y}", "pager.txt", "Did you mean `text`?"),
        ("{file: x}, pgr: {}", "pgr", "Did you mean `pager`?"),
        ("{file: x}, command: {}", "command", "is no plug-in"),
    ],
)
def test_settings_of_a_plug_in_are_checked(workload, pager, settings, key, said):
    notify = f"notify={{plugins: {{pager: {settings}}}}}"
    with pytest.raises(loading.ConfigError) as caught:
        loading.load(workload, sets=(notify,))
    (problem,) = caught.value.problems
    assert problem.key == f"notify.plugins.{key}"
    assert said in str(problem)
