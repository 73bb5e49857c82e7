"""Who sees the pages of `strategos ui`, and how its server starts and ends."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
import urllib.request

import pytest
from werkzeug.test import Client

from strategos.pipeline import cli
from strategos.pipeline.history.roots import Place
from strategos.pipeline.root import metadata
from strategos.pipeline.ui.app import App
from strategos.pipeline.ui.guard import Guard
from strategos.pipeline.ui.source import Source

TOKEN = "a-token-of-some-length"


@pytest.fixture
def site(tmp_path):
    """Makes a client of the pages of an empty root."""

    def site(host="127.0.0.1", token=None):
        place = Place(str(tmp_path), metadata.connection(tmp_path), None, "")
        return Client(App(Source(place), Guard(host, 8420, token)))

    return site


@pytest.mark.parametrize(
    ("host", "name", "shown"),
    [
        ("127.0.0.1", "127.0.0.1:8420", True),
        ("127.0.0.1", "localhost:8420", True),
        ("127.0.0.1", "LOCALHOST", True),
        ("127.0.0.1", "[::1]:8420", True),
        ("127.0.0.1", "evil.example:8420", False),
        ("127.0.0.1", "localhost.evil.example", False),
        ("127.0.0.1", "192.0.2.1:8420", False),
        ("127.0.0.1", "", False),
        ("127.0.0.1", "[::1", False),
        ("0.0.0.0", "192.0.2.1:8420", True),
        ("0.0.0.0", socket.gethostname(), True),
        ("0.0.0.0", "evil.example", False),
    ],
)
def test_only_names_of_this_server_are_answered(site, host, name, shown):
    headers = {"Host": name}
    answer = site(host).get("/runs", headers=headers, environ_overrides=_host(name))
    assert answer.status_code == (200 if shown else 400)
    assert ("No runs yet" in answer.get_data(as_text=True)) == shown


def _host(name):
    return {"HTTP_HOST": name}


def test_a_token_is_asked_for_once(site):
    client = site("0.0.0.0", TOKEN)
    base = {"base_url": "http://192.0.2.1:8420"}
    for path in ("/runs", "/runs/x", "/models", "/", "/token", "/token?token=wrong"):
        answer = client.get(path, **base)
        assert answer.status_code == 401 and "No runs yet" not in answer.text
    answer = client.post("/token", data={"token": TOKEN}, **base)
    assert answer.status_code == 303 and answer.location == "/runs"
    cookie = answer.headers["Set-Cookie"]
    assert "HttpOnly" in cookie and "SameSite=Strict" in cookie and TOKEN not in cookie
    assert "No runs yet" in client.get("/runs", **base).text


def test_a_link_with_the_token_opens_the_pages(site):
    client = site("127.0.0.1", TOKEN)
    answer = client.get(f"/token?token={TOKEN}", base_url="http://localhost:8420")
    assert answer.status_code == 303
    assert client.get("/runs", base_url="http://localhost:8420").status_code == 200
    forged = {"Cookie": f"strategos-ui-8420={TOKEN}"}
    other = Client(client.application)
    answer = other.get("/runs", base_url="http://localhost:8420", headers=forged)
    assert answer.status_code == 401


def test_answers_forbid_other_sources_and_sites(site):
    client = site()
    style = re.search(r'href="(/assets/\S+report.css)"', _get(client, "/runs").text)[1]
    for path in ("/runs", "/runs/none", "/nowhere", style, "/assets/0/../app.py"):
        headers = _get(client, path).headers
        policy = headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy and "unsafe" not in policy
        assert headers["X-Content-Type-Options"] == "nosniff"
    assert _get(client, "/assets/0/app.py").status_code == 404
    for method in ("post", "put", "delete", "patch"):
        answer = getattr(client, method)("/runs", base_url="http://localhost:8420")
        assert answer.status_code == 405


def _get(client, path):
    return client.get(path, base_url="http://localhost:8420")


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (("--host", "0.0.0.0"), ("--host", "STRATEGOS_UI_TOKEN", "a new one: ")),
        (("--token", "short"), ("--token", "5 characters", "at least 16")),
        (("--root", "grpc://localhost:1"), ("--root", "Kubeflow")),
        (("--host", "192.0.2.1", "--token", TOKEN), ("192.0.2.1", "--port 0")),
    ],
)
def test_what_cannot_be_served_is_named(words, wanted, tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("STRATEGOS_UI_TOKEN", raising=False)
    root = [] if "--root" in words else ["--root", str(tmp_path)]
    assert cli.main(["ui", *words, *root]) == 2
    said = capsys.readouterr().err
    assert all(each in said for each in wanted), said


def test_a_port_that_is_taken_is_named_with_the_remedy(tmp_path, capsys):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        assert cli.main(["ui", "--root", str(tmp_path), "--port", str(port)]) == 2
    said = capsys.readouterr().err
    assert f"{port} on 127.0.0.1" in said and "--port 0" in said


def test_ctrl_c_ends_the_server_with_exit_code_0(tmp_path):
    command = [sys.executable, "-m", "strategos.pipeline.cli", "ui"]
    command += ["--root", str(tmp_path), "--port", "0"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True) as server:
        address = server.stdout.readline().strip()
        with urllib.request.urlopen(address) as answer:
            assert "No runs yet" in answer.read().decode()
        server.send_signal(signal.SIGINT)
        out, said = server.communicate(timeout=60)
    assert server.returncode == 0 and out == ""
    assert "Traceback" not in said and f"root {tmp_path}" in said
