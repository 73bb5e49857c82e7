"""Servers of databases, on ports of their own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from databases import PASSWORD, MariaDB
from server import running

from strategos.pipeline.root import metadata


@pytest.fixture(scope="module")
def mariadb_server(tmp_path_factory, free_ports) -> Iterator[MariaDB]:
    """A MariaDB server that a test may end and start again."""
    with running(MariaDB(tmp_path_factory.mktemp("mariadb"), *free_ports(1))) as found:
        yield found


@pytest.fixture(scope="module")
def mariadb(mariadb_server) -> str:
    """The URL of a database on a MariaDB server of its own."""
    return mariadb_server.address


@pytest.fixture(scope="module")
def metadata_password(environment) -> str:
    """The password of these servers, in the environment that runs read it from."""
    environment.setenv("STRATEGOS_METADATA_PASSWORD", PASSWORD)
    return PASSWORD


@pytest.fixture(params=["mariadb", "postgresql"])
def connection(request, metadata_password):
    """A connection to a server of each kind."""
    url = request.getfixturevalue(request.param)
    return metadata.connection("/runs", url, metadata_password)
