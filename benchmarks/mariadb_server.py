"""A MariaDB server of its own with the records of an SQLite file of ML Metadata."""

from __future__ import annotations

import contextlib
import socket
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import history

from strategos.pipeline.root import lease, metadata

_ROWS = 1000
"""Rows of one INSERT."""


@contextlib.contextmanager
def filled(folder: Path, file: Path, runs: int, pipeline: str) -> Iterator[str]:
    """Runs a server with all records of a file, and a lease for each run.

    Args:
      folder: An existing folder for the server's data.
      file: An SQLite file of ML Metadata.
      runs: The number of leases.
      pipeline: The pipeline that held them.

    Yields:
      The URL of the database, for `run.metadata`; without a password.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    where = ["--no-defaults", f"--datadir={folder}/data", "--user=root"]
    install = ["mariadb-install-db", "--auth-root-authentication-method=normal"]
    subprocess.run([*install, *where], check=True, stdout=subprocess.DEVNULL)
    address = [f"--socket={folder}/socket", f"--port={port}"]
    server = subprocess.Popen(["mariadbd", *where, *address], stderr=subprocess.DEVNULL)
    try:
        sql = _Client(folder / "socket")
        sql.wait()
        sql("CREATE DATABASE mlmd; CREATE USER o@'127.0.0.1'")
        sql("GRANT ALL ON mlmd.* TO o@'127.0.0.1'")
        url = f"mysql://o@127.0.0.1:{port}/mlmd"
        metadata.initialise(metadata.connection(str(folder), url))
        _copy(file, sql)
        _add_leases(metadata.connection(str(folder), url), sql, runs, pipeline)
        yield url
    finally:
        server.terminate()
        server.wait()


class _Client:
    """Sends SQL to the server as its administrator."""

    def __init__(self, path: Path):
        # ML Metadata's client sends UTF-8 as if it were latin1.
        options = ["--no-defaults", "--default-character-set=latin1", "--user=root"]
        self._command = ["mariadb", *options, f"--socket={path}"]

    def __call__(self, text: str) -> None:
        given = text.encode()
        subprocess.run([*self._command, "--binary-mode"], input=given, check=True)

    def wait(self) -> None:
        """Waits until the server answers."""
        asked = [*self._command, "--execute=SELECT 1"]
        while subprocess.run(asked, capture_output=True).returncode:
            time.sleep(0.1)


def _copy(file: Path, sql: _Client) -> None:
    with contextlib.closing(sqlite3.connect(file)) as source:
        named = source.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        for (table,) in named.fetchall():
            if table == "MLMDEnv" or table.startswith("sqlite_"):
                continue
            known = source.execute(f"PRAGMA table_info(`{table}`)")
            columns = ", ".join(f"`{name}`" for _, name, *_ in known)
            sql(f"USE mlmd; DELETE FROM `{table}`")
            rows = source.execute(f"SELECT {columns} FROM `{table}`")
            while some := rows.fetchmany(100 * _ROWS):
                parts = (some[i : i + _ROWS] for i in range(0, len(some), _ROWS))
                into = f"INSERT INTO `{table}` ({columns}) VALUES "
                lines = [f"{into}{', '.join(map(_values, part))};" for part in parts]
                sql(
                    "\n".join(
                        ["USE mlmd; SET unique_checks=0; BEGIN;", *lines, "COMMIT"]
                    )
                )


def _values(row: tuple[object, ...]) -> str:
    return f"({', '.join(map(_literal, row))})"


def _literal(value: object) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, bytes):
        return f"X'{value.hex()}'"
    escaped = str(value).replace("\\", "\\\\").replace("'", "''")
    return f"'{escaped}'"


def _add_leases(connection: object, sql: _Client, runs: int, pipeline: str) -> None:
    """Takes and releases a lease, and repeats its records: one beside each run."""
    with lease.hold(connection, pipeline, 0, "20130101-000000.000000"):
        pass
    step = history.STEP
    of_one = f"FROM {{}} JOIN seq_1_to_{runs} WHERE {{}} = @lease"
    sql(
        f"""USE mlmd; BEGIN; SELECT @lease := MAX(id) FROM Context;
        INSERT INTO Context (id, type_id, name, create_time_since_epoch,
          last_update_time_since_epoch) SELECT seq * {step} - 1, type_id,
          CONCAT('{pipeline}/', seq + 1), create_time_since_epoch,
          last_update_time_since_epoch {of_one.format("Context", "id")};
        INSERT INTO ContextProperty (context_id, name, is_custom_property, int_value,
          double_value, string_value, bool_value) SELECT seq * {step} - 1, name,
          is_custom_property, int_value, double_value, string_value, bool_value
          {of_one.format("ContextProperty", "context_id")};
        DELETE FROM Context WHERE id = @lease;
        DELETE FROM ContextProperty WHERE context_id = @lease; COMMIT"""
    )
