from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path

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


@pytest.fixture
def pids() -> Callable[[Path, str], list[int]]:
    """The processes of a test whose command has a part: `pids(folder, part)`."""

    def pids(folder: Path, part: str) -> list[int]:
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                command = (entry / "cmdline").read_bytes()
                about = command + (entry / "environ").read_bytes()
                if part.encode() in command and os.fsencode(folder) in about:
                    found.append(int(entry.name))
        return sorted(found)

    return pids
