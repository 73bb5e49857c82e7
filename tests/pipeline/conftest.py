from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from ml_metadata.proto import metadata_store_pb2

from strategos.pipeline import store


@dataclasses.dataclass(frozen=True)
class PastRuns:
    """A root with a real history; ids of its runs by what happened in them."""

    root: Path
    ids: dict[str, str]

    @property
    def connection(self):
        config = metadata_store_pb2.ConnectionConfig()
        config.sqlite.filename_uri = str(self.root / "metadata.sqlite")
        return config

    def open(self):
        return store.Store(self.connection)


@pytest.fixture(scope="session")
def past_runs(tmp_path_factory) -> PastRuns:
    """What `past_runs.py` leaves: pushed, cached, gated, failed, killed."""
    root = tmp_path_factory.mktemp("root")
    done = subprocess.run(
        [
            sys.executable,
            "-W",
            "ignore",
            Path(__file__).with_name("past_runs.py"),
            root,
        ],
        env=os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return PastRuns(root, json.loads(done.stdout.splitlines()[-1]))
