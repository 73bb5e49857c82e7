"""Workspaces for end-to-end tests: real workloads on a few thousand of their rows."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
SCHEMAS = Path(__file__).parents[2] / "schemas"
FLIGHTS_PER_MONTH = 400

# A few thousand rows make a weaker model than the whole year: the bounds follow.
FEW_ROWS = (
    "evaluator.bounds.auc={at_least: 0.4, may_drop: 1.0}",
    "trainer.epochs=2",
    "trainer.batch_size=64",
)

_LOCAL_DAG_RUNNER = """
import sys
import time
from pathlib import Path
from tfx.orchestration.local.local_dag_runner import LocalDagRunner
from tfx.orchestration.metadata import sqlite_metadata_connection_config
from strategos.pipeline import graph, loading, orchestration

config = loading.load(sys.argv[1], (), sys.argv[2:]).config
orchestration.prepare_data(config)
parameters = orchestration.parameters(config)
pipeline = graph.build(config, graph.Fingerprints.of(config), parameters)
database = str(Path(config.run.root) / "metadata.sqlite")
pipeline.metadata_connection_config = sqlite_metadata_connection_config(database)
LocalDagRunner().run(pipeline)
"""


def wait_for(condition, seconds=120.0):
    """Returns once `condition()` holds; fails if it does not in time."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(0.1)


@dataclass(frozen=True)
class Workspace:
    """A copy of a workload with its own data, root and serving folder."""

    folder: Path
    settings: tuple[str, ...] = ()
    rows: int = 0

    @property
    def yaml(self) -> Path:
        return self.folder / "pipeline.yaml"

    def strategos(self, command: str, *arguments: str, expect: int | None = 0):
        """Runs `strategos COMMAND`; asserts the exit code unless told not to."""
        done = subprocess.run(
            self.command(command, *arguments),
            capture_output=True,
            text=True,
            env=self.environment(),
            timeout=500,
        )
        said = f"{done.stdout}\n{done.stderr}"
        assert expect is None or done.returncode == expect, said
        assert "Traceback" not in said
        return done

    def run(self, *arguments: str, expect: int = 0):
        sets = self._sets()
        return self.strategos("run", str(self.yaml), *sets, *arguments, expect=expect)

    def start(self, *arguments: str, node: str) -> subprocess.Popen:
        """Starts a run; returns once it has begun with `node`."""
        before = set(self._run_folders())
        process = subprocess.Popen(
            self.command("run", str(self.yaml), *self._sets(), *arguments),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=self.environment(),
        )
        wait_for(lambda: self._has_begun(node, before))
        return process

    def _run_folders(self) -> list[Path]:
        return list((self.folder / "runs" / ".strategos" / "runs").glob("*"))

    def _has_begun(self, node: str, before: set[Path]) -> bool:
        for folder in set(self._run_folders()) - before:
            events = folder / "events.jsonl"
            for line in events.read_text().splitlines() if events.exists() else ():
                event = json.loads(line)
                if event["event"] == "node_started" and event["node"] == node:
                    return True
        return False

    def run_by_tfx(self, *sets: str) -> None:
        """Runs the same graph through TFX's own LocalDagRunner."""
        done = subprocess.run(
            [
                sys.executable,
                "-c",
                _LOCAL_DAG_RUNNER,
                str(self.yaml),
                *self.settings,
                *sets,
            ],
            capture_output=True,
            text=True,
            env={**self.environment(), "TF_USE_LEGACY_KERAS": "1"},
            timeout=500,
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def _sets(self) -> list[str]:
        return [word for setting in self.settings for word in ("--set", setting)]

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "strategos.pipeline.cli", *arguments]

    def environment(self) -> dict[str, str]:
        return {**os.environ, "XDG_STATE_HOME": str(self.folder / "state")}

    def last_run(self, *arguments: str) -> dict:
        shown = self.strategos("runs", "show", str(self.yaml), "--json", *arguments)
        return json.loads(shown.stdout)

    def states(self) -> dict[str, str]:
        """State of each node of the last run."""
        return {node["name"]: node["state"] for node in self.last_run()["nodes"]}

    def serving(self) -> list[str]:
        """Versions in the serving folder, oldest first."""
        (folder,) = (self.folder / "serving").iterdir()
        return sorted(path.name for path in folder.iterdir())

    def end(self, process: subprocess.Popen, sig: signal.Signals) -> int:
        """Sends `sig` to a started run and waits; its exit code."""
        process.send_signal(sig)
        process.communicate(timeout=60)
        return process.returncode

    def wait_until_nothing_is_left(self, seconds: float = 10) -> None:
        """Fails if a process of this workspace is still there after `seconds`."""
        wait_for(lambda: not self.left_processes(), seconds)

    def left_processes(self) -> list[str]:
        """Command lines of processes that work on this workspace."""
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
            if str(self.folder) in line and int(entry.name) != os.getpid():
                found.append(line)
        return found


def _copy(name: str, folder: Path, settings=(), rows=0) -> Workspace:
    # The YAML names the schema as ../../schemas/…: the copy keeps that true.
    target = folder / "examples" / name
    ignore = shutil.ignore_patterns("data", "runs", "serving", "__pycache__")
    shutil.copytree(EXAMPLES / name, target, ignore=ignore)
    shutil.copytree(SCHEMAS, folder / "schemas")
    return Workspace(target, settings, rows)


@pytest.fixture(scope="session")
def flights_data(tmp_path_factory) -> Path:
    """The flights' spans, some rows of each month."""
    folder = tmp_path_factory.mktemp("flights-data")
    program = "import sys, data; data.prepare(sys.argv[1])"
    subprocess.run(
        [sys.executable, "-c", program, str(folder)],
        cwd=EXAMPLES / "flights",
        check=True,
        stdout=subprocess.DEVNULL,
    )
    for path in sorted(folder.glob("data/span-*/*.csv")):
        header, *rows = path.read_text().splitlines(keepends=True)
        some = rows[:: len(rows) // FLIGHTS_PER_MONTH][:FLIGHTS_PER_MONTH]
        path.write_text("".join([header, *some]))
    return folder / "data"


@pytest.fixture
def make_flights(flights_data, tmp_path):
    """Makes a workspace of the flights workload."""

    def make(folder: Path = tmp_path) -> Workspace:
        workspace = _copy("flights", folder, FEW_ROWS, 12 * FLIGHTS_PER_MONTH)
        shutil.copytree(flights_data, workspace.folder / "data")
        return workspace

    return make


@pytest.fixture(scope="module")
def flights(flights_data, tmp_path_factory) -> Workspace:
    """A flights workspace that the tests of a module share, in their order."""
    folder = tmp_path_factory.mktemp("flights")
    workspace = _copy("flights", folder, FEW_ROWS, 12 * FLIGHTS_PER_MONTH)
    shutil.copytree(flights_data, workspace.folder / "data")
    return workspace


@pytest.fixture(scope="module")
def digits(tmp_path_factory) -> Workspace:
    """A digits workspace that the tests of a module share, in their order."""
    return _copy("digits", tmp_path_factory.mktemp("digits"))
