"""What tests of a gang ask of its processes."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def running() -> Callable[[int], bool]:
    """Whether a process runs, by its id: `running(pid)`."""

    def running(pid: int) -> bool:
        try:
            state = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2]
        except (FileNotFoundError, ProcessLookupError):
            return False
        return state.split()[0] != b"Z"

    return running


@pytest.fixture(scope="session")
def wait_for() -> Callable[..., str]:
    """Waits for another process to write a file: `wait_for(path)`; returns its text."""

    def wait_for(path: Path, seconds: float = 10) -> str:
        until = time.monotonic() + seconds
        while not (path.exists() and path.read_text()):
            assert time.monotonic() < until, f"{path} was not written"
            time.sleep(0.01)
        return path.read_text()

    return wait_for
