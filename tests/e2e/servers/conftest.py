"""Servers of databases, on ports of their own."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from strategos.pipeline.root import metadata

_PASSWORD = "not-a-secret"


def _wait_for(address: int | str, process: subprocess.Popen) -> None:
    """Waits until a server listens on a port of this machine, or on a Unix socket."""
    is_port = isinstance(address, int)
    family = socket.AF_INET if is_port else socket.AF_UNIX
    end = time.monotonic() + 60
    while time.monotonic() < end:
        assert process.poll() is None, "the server ended"
        with socket.socket(family) as probe:
            if probe.connect_ex(("127.0.0.1", address) if is_port else address) == 0:
                return
        time.sleep(0.1)
    raise AssertionError(f"nothing listens on {address}")


class MariaDB:
    """A MariaDB server of its own, with two databases for ML Metadata."""

    def __init__(self, folder: Path, port: int):
        self.port = port
        self.url = f"mysql://strategos@127.0.0.1:{self.port}/mlmd"
        self._place = folder / "socket"
        self._socket = f"--socket={self._place}"
        user = f"--user={os.environ.get('USER', 'root')}"
        self._options = ("--no-defaults", f"--datadir={folder}/data", user)

    def create(self) -> None:
        install = ("mariadb-install-db", "--auth-root-authentication-method=normal")
        subprocess.run([*install, *self._options], check=True, capture_output=True)
        self.start()
        setup = (
            "CREATE DATABASE mlmd; CREATE DATABASE mlmd_gs;"
            f"CREATE USER strategos@'%' IDENTIFIED BY '{_PASSWORD}';"
            "GRANT ALL ON `mlmd%`.* TO strategos@'%';"
            f"CREATE USER strategos@localhost IDENTIFIED BY '{_PASSWORD}';"
            "GRANT ALL ON `mlmd%`.* TO strategos@localhost;"
        )
        client = ["mariadb", "--no-defaults", self._socket, "--user=root"]
        subprocess.run([*client, f"--execute={setup}"], check=True)

    def start(self, namespace: str | None = None) -> None:
        """Starts it; in a network namespace it listens on all addresses there."""
        address, inside = "127.0.0.1", []
        if namespace:
            address, inside = "0.0.0.0", ["ip", "netns", "exec", namespace]
        listen = (f"--port={self.port}", f"--bind-address={address}")
        self._process = subprocess.Popen(
            [*inside, "mariadbd", *self._options, self._socket, *listen],
            stderr=subprocess.DEVNULL,
        )
        _wait_for(str(self._place), self._process)

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(timeout=60)


@pytest.fixture(scope="module")
def mariadb_server(tmp_path_factory, free_ports) -> Iterator[MariaDB]:
    """A MariaDB server that a test may stop and start again."""
    if not shutil.which("mariadbd"):
        pytest.skip("MariaDB is not installed (Debian: mariadb-server)")
    server = MariaDB(tmp_path_factory.mktemp("mariadb"), *free_ports(1))
    server.create()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def mariadb(mariadb_server) -> str:
    """The URL of a database on a MariaDB server of its own."""
    return mariadb_server.url


@pytest.fixture(scope="module")
def postgresql(tmp_path_factory, free_ports) -> Iterator[str]:
    """The URL of a database on a PostgreSQL server of its own."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
    if not found:
        pytest.skip("PostgreSQL is not installed (Debian: postgresql)")
    programs, (port,) = found[-1].parent, free_ports(1)
    folder = tmp_path_factory.mktemp("postgresql")
    as_user = []
    if os.getuid() == 0:  # PostgreSQL refuses to run as root
        as_user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
        folder = Path(subprocess.check_output(["mktemp", "-d"], text=True).strip())
        shutil.chown(folder, "postgres", "postgres")
    (folder / "password").write_text(_PASSWORD)
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
    there = ("-h", "127.0.0.1", "-p", str(port), "-U", "strategos", "-d", "postgres")
    _wait_for(port, server)
    while subprocess.run([programs / "pg_isready", "-q", *there]).returncode:
        time.sleep(0.1)  # it listens before it lets anyone in
    subprocess.run(
        [programs / "psql", *there, "-c", "CREATE DATABASE mlmd"],
        check=True,
        capture_output=True,
        env={**os.environ, "PGPASSWORD": _PASSWORD},
    )
    yield f"postgresql://strategos@127.0.0.1:{port}/mlmd"
    server.terminate()
    server.wait(timeout=60)
    if as_user:
        shutil.rmtree(folder)


@pytest.fixture(scope="module")
def metadata_password(environment) -> str:
    """The password of these servers, in the environment that runs read it from."""
    environment.setenv("STRATEGOS_METADATA_PASSWORD", _PASSWORD)
    return _PASSWORD


@pytest.fixture(params=["mariadb", "postgresql"])
def connection(request, metadata_password):
    """A connection to a server of each kind."""
    url = request.getfixturevalue(request.param)
    return metadata.connection("/runs", url, metadata_password)
