"""ML Metadata on real database servers, started here on ports of their own."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import time
from pathlib import Path

import pytest

PASSWORD = "not-a-secret"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_for_port(port: int, process: subprocess.Popen) -> None:
    end = time.monotonic() + 60
    while time.monotonic() < end:
        assert process.poll() is None, "the server ended"
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise AssertionError(f"nothing listens on port {port}")


@pytest.fixture(scope="module")
def mariadb(tmp_path_factory):
    if not shutil.which("mariadbd"):
        pytest.skip("MariaDB is not installed (Debian: mariadb-server)")
    folder, port = tmp_path_factory.mktemp("mariadb"), free_port()
    socket_file = f"--socket={folder}/socket"
    data = f"--datadir={folder}/data"
    user = f"--user={os.environ.get('USER', 'root')}"
    install = ["mariadb-install-db", "--no-defaults", data, user]
    subprocess.run(
        [*install, "--auth-root-authentication-method=normal"],
        check=True,
        capture_output=True,
    )
    server = subprocess.Popen(
        [
            *("mariadbd", "--no-defaults", data, user, socket_file),
            *(f"--port={port}", "--bind-address=127.0.0.1"),
        ],
        stderr=subprocess.DEVNULL,
    )
    wait_for_port(port, server)
    setup = (
        "CREATE DATABASE mlmd; CREATE USER strategos@'%' IDENTIFIED BY "
        f"'{PASSWORD}'; GRANT ALL ON mlmd.* TO strategos@'%';"
        f"CREATE USER strategos@localhost IDENTIFIED BY '{PASSWORD}';"
        "GRANT ALL ON mlmd.* TO strategos@localhost;"
    )
    subprocess.run(
        ["mariadb", "--no-defaults", socket_file, "--user=root", f"--execute={setup}"],
        check=True,
    )
    yield f"mysql://strategos@127.0.0.1:{port}/mlmd"
    server.terminate()
    server.wait(timeout=60)


@pytest.fixture(scope="module")
def postgresql(tmp_path_factory):
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
    if not found:
        pytest.skip("PostgreSQL is not installed (Debian: postgresql)")
    programs, port = found[-1].parent, free_port()
    folder = tmp_path_factory.mktemp("postgresql")
    as_user = []
    if os.getuid() == 0:  # PostgreSQL refuses to run as root
        as_user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
        folder = Path(subprocess.check_output(["mktemp", "-d"], text=True).strip())
        shutil.chown(folder, "postgres", "postgres")
    (folder / "password").write_text(PASSWORD)
    (folder / "password").chmod(0o644)
    subprocess.run(
        [
            *(*as_user, programs / "initdb", "-D", folder / "data", "-U", "strategos"),
            *("-A", "scram-sha-256", f"--pwfile={folder / 'password'}"),
        ],
        check=True,
        capture_output=True,
    )
    server = subprocess.Popen(
        [
            *(*as_user, programs / "postgres", "-D", folder / "data"),
            *("-p", str(port), "-k", folder, "-h", "127.0.0.1"),
        ],
        stderr=subprocess.DEVNULL,
    )
    wait_for_port(port, server)
    subprocess.run(
        [
            *(programs / "psql", "-h", "127.0.0.1", "-p", str(port), "-U", "strategos"),
            *("-d", "postgres", "-c", "CREATE DATABASE mlmd"),
        ],
        check=True,
        capture_output=True,
        env={**os.environ, "PGPASSWORD": PASSWORD},
    )
    yield f"postgresql://strategos@127.0.0.1:{port}/mlmd"
    server.terminate()
    server.wait(timeout=60)
    if as_user:
        shutil.rmtree(folder)


@pytest.mark.parametrize("server", ["mariadb", "postgresql"])
def test_run_is_recorded_and_cached_on_a_server(
    server, request, make_flights, monkeypatch
):
    url = request.getfixturevalue(server)
    workspace = make_flights()
    arguments = ("--set", f"run.metadata={url}")
    monkeypatch.setenv("STRATEGOS_METADATA_PASSWORD", PASSWORD)
    for _ in range(2):
        workspace.run(*arguments, "--to", "ExampleGen")
    overlay = workspace.folder / "pipeline.yaml"
    overlay.write_text(overlay.read_text() + f"run: {{metadata: '{url}'}}\n")
    listed = workspace.strategos("runs", str(workspace.yaml), "--json").stdout
    assert len(json.loads(listed)) == 2
    assert workspace.states() == {"ExampleGen": "cached"}
    shown = workspace.strategos("config", str(workspace.yaml), *arguments).stdout
    assert PASSWORD not in shown
    kept = (workspace.folder / "runs").rglob("*")
    assert not any(
        PASSWORD.encode() in path.read_bytes() for path in kept if path.is_file()
    )
    monkeypatch.setenv("STRATEGOS_METADATA_PASSWORD", "wrong")
    refused = workspace.run(*arguments, expect=2)
    assert "STRATEGOS_METADATA_PASSWORD" in refused.stderr
