from __future__ import annotations

import time
from collections.abc import Callable

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


@pytest.fixture
def wait_until() -> Callable[..., None]:
    def wait_until(reached: Callable[[], object], seconds: float = 90) -> None:
        until = time.monotonic() + seconds
        while not reached():
            assert time.monotonic() < until
            time.sleep(0.02)

    return wait_until
