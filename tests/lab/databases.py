"""Servers of databases for ML Metadata."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import server

PASSWORD = "not-a-secret"
"""Of the user `strategos` of both."""


class MariaDB:
    """A MariaDB with two databases, `mlmd` and `mlmd_gs`."""

    def __init__(self, folder: Path, port: int):
        self.address = f"mysql://strategos@127.0.0.1:{port}/mlmd"
        self.port = port
        self._place = folder / "socket"
        self._socket = f"--socket={self._place}"
        user = f"--user={os.environ.get('USER', 'root')}"
        self._options = ("--no-defaults", f"--datadir={folder}/data", user)
        self._process: subprocess.Popen | None = None

    def up(self) -> None:
        """Creates the databases."""
        server.program("mariadbd", "mariadb-server")
        install = ("mariadb-install-db", "--auth-root-authentication-method=normal")
        subprocess.run([*install, *self._options], check=True, capture_output=True)
        self.listen()
        setup = (
            "CREATE DATABASE mlmd; CREATE DATABASE mlmd_gs;"
            f"CREATE USER strategos@'%' IDENTIFIED BY '{PASSWORD}';"
            "GRANT ALL ON `mlmd%`.* TO strategos@'%';"
            f"CREATE USER strategos@localhost IDENTIFIED BY '{PASSWORD}';"
            "GRANT ALL ON `mlmd%`.* TO strategos@localhost;"
        )
        client = ["mariadb", "--no-defaults", self._socket, "--user=root"]
        subprocess.run([*client, f"--execute={setup}"], check=True)

    def listen(self, namespace: str | None = None) -> None:
        """Starts it again; in a network namespace it listens on all addresses."""
        address, inside = "127.0.0.1", []
        if namespace:
            address, inside = "0.0.0.0", ["ip", "netns", "exec", namespace]
        listen = (f"--port={self.port}", f"--bind-address={address}")
        self._process = subprocess.Popen(
            [*inside, "mariadbd", *self._options, self._socket, *listen],
            stderr=subprocess.DEVNULL,
        )
        server.wait_for(str(self._place), self._process)

    def down(self) -> None:
        """Ends it; its data stay."""
        server.end(self._process)


class PostgreSQL:
    """A PostgreSQL with the database `mlmd`."""

    def __init__(self, port: int):
        self.address = f"postgresql://strategos@127.0.0.1:{port}/mlmd"
        self.port = port
        self._process: subprocess.Popen | None = None
        # Not in pytest's folder, which only the tests' user may enter.
        self._folder = Path(tempfile.mkdtemp(prefix="postgresql-"))

    def up(self) -> None:
        """Creates the database."""
        found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
        if not found:
            raise server.MissingError("postgres is missing: apt-get install postgresql")
        programs, folder, as_user = found[-1].parent, self._folder, []
        if os.getuid() == 0:  # PostgreSQL refuses to run as root
            as_user = ["setpriv", "--reuid=postgres", "--regid=postgres"]
            as_user.append("--clear-groups")
            shutil.chown(folder, "postgres", "postgres")
        (folder / "password").write_text(PASSWORD)
        (folder / "password").chmod(0o644)
        subprocess.run(
            [
                *(*as_user, programs / "initdb", "-D", folder / "data"),
                *("-U", "strategos", "-A", "scram-sha-256"),
                f"--pwfile={folder / 'password'}",
            ],
            check=True,
            capture_output=True,
        )
        self._process = subprocess.Popen(
            [
                *(*as_user, programs / "postgres", "-D", folder / "data"),
                *("-p", str(self.port), "-k", folder, "-h", "127.0.0.1"),
            ],
            stderr=subprocess.DEVNULL,
        )
        server.wait_for(self.port, self._process)
        self._create(programs)

    def _create(self, programs: Path) -> None:
        port = str(self.port)
        there = ("-h", "127.0.0.1", "-p", port, "-U", "strategos", "-d", "postgres")
        while subprocess.run([programs / "pg_isready", "-q", *there]).returncode:
            time.sleep(0.1)  # it listens before it lets anyone in
        subprocess.run(
            [programs / "psql", *there, "-c", "CREATE DATABASE mlmd"],
            check=True,
            capture_output=True,
            env={**os.environ, "PGPASSWORD": PASSWORD},
        )

    def down(self) -> None:
        """Ends it; its data are gone."""
        server.end(self._process)
        shutil.rmtree(self._folder)
