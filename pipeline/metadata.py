"""Where ML Metadata lives: SQLite under the root, or a MySQL or PostgreSQL server."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from strategos.components.errors import BadInputError

if TYPE_CHECKING:
    from ml_metadata.proto import metadata_store_pb2

_DEFAULT_PORTS = {"mysql": 3306, "postgresql": 5432}


def sqlite_file(root: str | Path) -> Path:
    """The database of a root whose `run.metadata` is `sqlite`."""
    return Path(root) / "metadata.sqlite"


def connection(
    root: str | Path, metadata: str = "sqlite", password: str | None = None
) -> metadata_store_pb2.ConnectionConfig:
    """The connection to ML Metadata that `run.root` and `run.metadata` name.

    Args:
      root: The pipeline root.
      metadata: `sqlite`, or `mysql://USER@HOST:PORT/DATABASE`, or the same with
        `postgresql://`.
      password: The server's password, from the environment.
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


def initialise(config: metadata_store_pb2.ConnectionConfig) -> None:
    """Creates the tables where they are missing, before several processes connect.

    Several that open an empty SQLite database at once can fail.

    Raises:
      BadInputError: The database cannot be opened: corrupt, unreachable, refused.
    """
    import ml_metadata

    try:
        ml_metadata.MetadataStore(config)
    except Exception as error:
        raise BadInputError(unusable(config, error)) from error


def unusable(config: metadata_store_pb2.ConnectionConfig, error: Exception) -> str:
    """What to tell the user when the database of `config` raised `error`."""
    cause = str(error).strip().splitlines()[0]
    cause = cause.removeprefix("Error when executing query: ").split(" query:")[0]
    kind = config.WhichOneof("config")
    if kind == "sqlite":
        return (
            f"{config.sqlite.filename_uri}: is not a usable ML Metadata database "
            f"({cause}). Restore it from a backup, or move it away to start a new "
            "history; pushed models are not affected."
        )
    server = getattr(config, kind)
    return (
        f"ML Metadata on {kind} at {server.host}:{server.port} as {server.user} cannot "
        f"be used ({cause}). Check that the server runs and the database exists, and "
        "that STRATEGOS_METADATA_PASSWORD holds the password."
    )
