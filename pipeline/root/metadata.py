"""Connections to ML Metadata: SQLite under the root, or a server."""

from __future__ import annotations

import contextlib
import re
import socket
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import unquote, urlsplit

from strategos.components import events
from strategos.components.errors import (
    BadInputError,
    PassingError,
    Place,
    UserError,
    first_line,
)
from strategos.components.files import full_disk
from strategos.components.wording import listed
from strategos.pipeline.root import identity

if TYPE_CHECKING:
    import ml_metadata
    from ml_metadata.proto import metadata_store_pb2

    from strategos.pipeline.config.sections import Config

_T = TypeVar("_T")

_DEFAULT_PORTS = {"mysql": 3306, "postgresql": 5432}
_NEWER = re.compile(r"database version (\d+) is greater than library version (\d+)")
_COPY = re.compile(r"metadata-before-clean(?:-(\d+))?\.sqlite")
_BELONGING = (
    *(("Event", "Artifact"), ("Attribution", "Artifact"), ("Event", "Execution")),
    *(("Association", "Execution"), ("ArtifactProperty", "Artifact")),
    ("ExecutionProperty", "Execution"),
)
_CONNECT_SECONDS = 5.0
_LONGEST_PAUSE = 8.0


def sqlite_file(root: str | Path) -> Path:
    """The database file of a root, used with `run.metadata: sqlite`."""
    return Path(root) / "metadata.sqlite"


def before_clean(root: str | Path) -> list[Path]:
    """The copies that `strategos clean --records` made of the database of a root.

    Args:
      root: The pipeline root.

    Returns:
      The copies, the oldest first: each has the records that its cleaning removed.
    """
    return [path for _, path in _copies(root)]


def next_before_clean(root: str | Path) -> Path:
    """The path of the next copy beside those of `before_clean`."""
    numbers = [number for number, _ in _copies(root)]
    end = f"-{numbers[-1] + 1}" if numbers else ""
    return sqlite_file(root).with_name(f"metadata-before-clean{end}.sqlite")


def _copies(root: str | Path) -> list[tuple[int, Path]]:
    paths = Path(root).glob("metadata-before-clean*.sqlite")
    matches = ((_COPY.fullmatch(path.name), path) for path in paths)
    return sorted((int(name[1] or 1), path) for name, path in matches if name)


def removed_hint(root: str | Path | None) -> str:
    """Where the records of older runs are if they were removed; "" if none were.

    Args:
      root: The pipeline root.
    """
    copies = [] if root is None else before_clean(root)
    if not copies:
        return ""
    verb = "has" if len(copies) == 1 else "have"
    return (
        " `strategos clean --records` removed those of older runs; "
        f"{listed([str(each) for each in copies])} {verb} them."
    )


def connection(
    root: str | Path, metadata: str = "sqlite", password: str | None = None
) -> metadata_store_pb2.ConnectionConfig:
    """Makes the connection config for `run.root` and `run.metadata`.

    Args:
      root: The pipeline root.
      metadata: `sqlite`, or `mysql://USER@HOST:PORT/DATABASE`, or the same with
        `postgresql://`.
      password: The server's password, from the environment; None for an empty one.
    """
    from ml_metadata.proto import metadata_store_pb2

    config = metadata_store_pb2.ConnectionConfig()
    if metadata == "sqlite":
        config.sqlite.filename_uri = str(sqlite_file(root))
        config.sqlite.connection_mode = (
            metadata_store_pb2.SqliteMetadataSourceConfig.READWRITE_OPENCREATE
        )
        return config
    url = urlsplit(metadata)
    server = config.mysql if url.scheme == "mysql" else config.postgresql
    server.host = url.hostname or "127.0.0.1"
    port = url.port or _DEFAULT_PORTS[url.scheme]
    database = url.path.strip("/")
    if url.scheme == "mysql":
        server.port, server.database = port, database
    else:
        server.port, server.dbname = str(port), database
    server.user = unquote(url.username or "")
    server.password = password or ""
    return config


def of(config: Config) -> metadata_store_pb2.ConnectionConfig:
    """Makes the connection config for the effective settings."""
    run = config.run
    return connection(run.root, run.metadata, config.metadata_password)


def initialise(
    config: metadata_store_pb2.ConnectionConfig,
) -> ml_metadata.MetadataStore:
    """Creates missing tables, before several processes connect.

    Processes that open an empty SQLite database at the same time can fail.

    Args:
      config: The connection.

    Returns:
      The open store.

    Raises:
      BadInputError: The database cannot be opened: corrupt, unreachable, no
        permission; or a newer Strategos wrote it.
    """
    import ml_metadata

    try:
        reach(config)
        store = ml_metadata.MetadataStore(config)
        if config.HasField("sqlite"):
            _drop_dangling(config.sqlite.filename_uri)
    except Exception as error:
        raise unusable(config, error, BadInputError) from error
    reject_newer(store, config)
    return store


def _drop_dangling(file: str) -> None:
    """Removes rows of artifacts and executions that were never written.

    SQLite rolls back if the disk is full, and ML Metadata goes on writing without a
    transaction: the next artifact would get the id, and the events, of a lost one.
    """
    with contextlib.closing(sqlite3.connect(file)) as database, database:
        for table, kind in _BELONGING:
            newest = f"SELECT coalesce(max(id), 0) FROM {kind}"
            column = f"{kind.lower()}_id"
            database.execute(f"DELETE FROM {table} WHERE {column} > ({newest})")


def reject_newer(
    store: ml_metadata.MetadataStore, config: metadata_store_pb2.ConnectionConfig
) -> None:
    """Rejects the history of a Strategos that is newer than this one.

    Args:
      store: ML Metadata.
      config: Its connection.

    Raises:
      BadInputError: Its format is newer.
    """
    written = identity.written_format(store)
    if written > identity.FORMAT:
        raise BadInputError(
            f"{_place(config)} was written by a newer Strategos (format {written}; the "
            f"one installed here reads {identity.FORMAT})",
            remedy="Run the Strategos that wrote it; nothing was changed.",
        )


def reach(config: metadata_store_pb2.ConnectionConfig) -> None:
    """Checks that a server listens; does nothing for SQLite.

    Without this check ML Metadata would write C++ logs to stderr, and block for minutes
    on a host that does not answer.

    Args:
      config: The connection.

    Raises:
      OSError: No server listens, or none answers within 5 s.
    """
    kind = config.WhichOneof("config")
    server = getattr(config, kind)
    if kind in _DEFAULT_PORTS and server.host != "localhost":  # may be a Unix socket
        address = (server.host, int(server.port))
        socket.create_connection(address, _CONNECT_SECONDS).close()


def store(
    config: metadata_store_pb2.ConnectionConfig, seconds: float
) -> ml_metadata.MetadataStore:
    """Connects to ML Metadata, for a started run.

    Args:
      config: The connection.
      seconds: How long to wait for a server that does not answer.

    Raises:
      UserError: The database cannot be used.
    """
    import ml_metadata

    return patiently(lambda: ml_metadata.MetadataStore(config), config, seconds)


def patiently(
    connect: Callable[[], _T],
    config: metadata_store_pb2.ConnectionConfig,
    seconds: float,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], Any] = time.sleep,
) -> _T:
    """Calls `connect` until the server answers, and returns its result.

    A node may work for hours without ML Metadata, and the server may be restarted
    meanwhile. Pauses double up to 8 s; the live view shows that the run waits.

    Args:
      connect: Connects to the database.
      config: The connection.
      seconds: How long to wait; never for an SQLite file.
      clock: Returns monotonic seconds.
      sleep: Waits for a number of seconds.

    Raises:
      UserError: The database cannot be used.
    """
    import ml_metadata

    began, pause, waited = clock(), 1.0, False
    while True:
        try:
            reach(config)
            connection = connect()
        except (OSError, RuntimeError, ml_metadata.errors.StatusError) as error:
            left = began + seconds - clock()
            if config.HasField("sqlite") or left <= 0:
                raise unusable(config, error) from error
            if not waited:
                message = f"{_server(config)} does not answer ({_cause(error)}): "
                events.emit("warning", message=f"{message}waiting up to {left:.0f} s")
            waited = True
            sleep(min(pause, left))
            pause = min(2 * pause, _LONGEST_PAUSE)
            continue
        if waited:
            spent = f"{clock() - began:.0f} s"
            events.emit("note", message=f"ML Metadata answers again after {spent}")
        return connection


def is_failure(error: BaseException) -> bool:
    """Whether the database failed, as opposed to a wrong query."""
    from ml_metadata import errors

    kinds = ("Aborted", "DataLoss", "DeadlineExceeded", "Internal", "Unavailable")
    return isinstance(error, tuple(getattr(errors, f"{kind}Error") for kind in kinds))


@contextlib.contextmanager
def explained(config: metadata_store_pb2.ConnectionConfig) -> Iterator[None]:
    """Converts a failure of the database inside the block to an error with a remedy.

    Args:
      config: The connection.

    Raises:
      UserError: The database failed.
    """
    try:
        yield
    except Exception as error:
        if not is_failure(error):
            raise
        raise unusable(config, error) from error


def _place(config: metadata_store_pb2.ConnectionConfig) -> str:
    is_file = config.HasField("sqlite")
    return config.sqlite.filename_uri if is_file else _server(config)


def _server(config: metadata_store_pb2.ConnectionConfig) -> str:
    kind = config.WhichOneof("config")
    server = getattr(config, kind)
    return f"ML Metadata on {kind} at {server.host}:{server.port}"


def _cause(error: BaseException) -> str:
    """The first line of an error, without the query that failed."""
    text = getattr(error, "strerror", None) or str(error).strip() or repr(error)
    cause = first_line(text).removeprefix("Error when executing query: ")
    # The message of MySQL's client when the server ends during the handshake.
    if cause.endswith("mysql_real_connect failed: errno: , error:"):
        return "it closed the connection"
    return cause.split(" query:")[0]


def unusable(
    config: metadata_store_pb2.ConnectionConfig,
    error: BaseException,
    kind: type[UserError] | None = None,
) -> UserError:
    """Converts an error of the database to an error for users.

    Args:
      config: The connection.
      error: The error of the database.
      kind: The class to make; `BadInputError` for a database of a newer schema. By
        default `PassingError` for a full disk and a server, else `UserError`.
    """
    cause = _cause(error)
    newer = _NEWER.search(cause)
    if newer:
        return BadInputError(
            f"{_place(config)} was written by a newer ML Metadata (schema {newer[1]}; "
            f"the one installed here reads {newer[2]})",
            remedy="Run Strategos in the environment that wrote it; the database is "
            "intact.",
        )
    if config.WhichOneof("config") == "sqlite":
        path = config.sqlite.filename_uri
        if full_disk.is_reported(cause):
            message = full_disk.message(cause, str(Path(path).parent))
            return (kind or PassingError)(message, place=Place(path))
        return (kind or UserError)(
            f"is not a usable ML Metadata database ({cause})",
            place=Place(path),
            remedy=f"Restore it from a backup; or move all of {Path(path).parent} away "
            "to start a new history. Models pushed elsewhere are not affected.",
        )
    server = getattr(config, config.WhichOneof("config"))
    return (kind or PassingError)(
        f"{_server(config)} as {server.user} cannot be used ({cause})",
        remedy="Check that the server runs and the database exists, and that "
        "STRATEGOS_METADATA_PASSWORD holds the password.",
    )
