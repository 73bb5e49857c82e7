from __future__ import annotations

import pytest

from strategos.components.errors import UserError
from strategos.components.shards.flink import jars, java
from strategos.components.shards.flink.connection import connected


@pytest.fixture(scope="session")
def installed():
    try:
        java.program()
        jars.find()
    except UserError as error:
        pytest.skip(error.headline)


@pytest.fixture(scope="session")
def cluster(installed, tmp_path_factory):
    """A cluster of two TaskManagers with two slots in all."""
    with connected(None, 2, 2, tmp_path_factory.mktemp("logs")) as connection:
        yield connection
