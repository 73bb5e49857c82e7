"""Workspaces for end-to-end tests.

The workloads are the real ones, on a few thousand of their rows; and a small one, for
tests that do not depend on what is trained.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import runpy
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
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
import os
import sys
import time
from pathlib import Path
os.environ["TF_USE_LEGACY_KERAS"] = "1"
from tfx.orchestration.local.local_dag_runner import LocalDagRunner
from tfx.orchestration.metadata import sqlite_metadata_connection_config
from strategos.pipeline.config import loading
from strategos.pipeline.plan import caching, graph, planning
from strategos.pipeline.run import preparation

config = loading.load(sys.argv[1], (), sys.argv[2:]).config
data = config.data.listing()
preparation.prepare_data(config, data)
parameters = planning.parameters(config, data)
pipeline = graph.build(config, caching.Fingerprints.of(config), parameters)
database = str(Path(config.run.root) / "metadata.sqlite")
pipeline.metadata_connection_config = sqlite_metadata_connection_config(database)
pipeline.enable_cache = True
LocalDagRunner().run(pipeline)
"""

# A full pipe would stop a process whose output nobody reads.
_SILENT = """
import os
os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
os.dup2(1, 2)
"""


def wait_for(condition, seconds=120.0):
    """Returns once `condition()` holds; fails if it does not in time."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(0.1)


@dataclass(frozen=True)
class Workspace:
    """A copy of a workload with its own data, root and serving folder.

    `run`, `strategos` and `start`, and what they start, are forks of `warm`, a process
    that has imported TFX; with `warm=False` they are as users have them.
    """

    folder: Path
    warm: Any
    settings: tuple[str, ...] = ()
    rows: int = 0

    @property
    def yaml(self) -> Path:
        return self.folder / "pipeline.yaml"

    def strategos(
        self,
        command: str,
        *arguments: str,
        expect: int | None = 0,
        warm: bool = True,
    ):
        """Runs `strategos COMMAND`; asserts the exit code unless told not to."""
        words = (command, *arguments)
        done = self.call(*words) if warm else self._call_cold(*words)
        said = f"{done.stdout}\n{done.stderr}"
        assert expect is None or done.returncode == expect, said
        assert "Traceback" not in said
        return done

    def call(self, *words: str, cwd: Path | None = None, **environ: str):
        """Runs `strategos *words` as a fork; what came of it."""
        return self.warm.strategos(
            *words,
            env=self.environment() | environ,
            cwd=str(cwd or Path.cwd()),
            timeout=500,
        )

    def _call_cold(self, *words: str):
        return subprocess.run(
            self.command(*words),
            capture_output=True,
            text=True,
            env=self.cold_environment(),
            timeout=500,
        )

    def run(self, *arguments: str, **how):
        """Runs the pipeline; `how` as of `strategos`."""
        return self.strategos("run", str(self.yaml), *self.sets(), *arguments, **how)

    def start(
        self, *arguments: str, node: str, warm=True, command="run"
    ) -> subprocess.Popen:
        """Starts a run; returns once it has begun with `node`."""
        before = set(self._run_folders())
        words = (command, str(self.yaml), *self.sets(), *arguments)
        process = subprocess.Popen(
            [*self.warm.cli(), *words] if warm else self.command(*words),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=self.environment() if warm else self.cold_environment(),
        )
        wait_for(lambda: self._has_begun(node, before), seconds=300)
        return process

    def _run_folders(self) -> list[Path]:
        local = (self.folder / "runs" / ".strategos").glob("runs/*")
        remote = (self.folder / "state" / "strategos").glob("roots/*/runs/*")
        return [*local, *remote]

    def _has_begun(self, node: str, before: set[Path]) -> bool:
        for folder in set(self._run_folders()) - before:
            events = folder / "events.jsonl"
            for line in events.read_text().splitlines() if events.exists() else ():
                event = json.loads(line)
                if event["event"] == "node_started" and event["node"] == node:
                    return True
        return False

    @contextlib.contextmanager
    def held(self, node: str) -> Iterator[None]:
        """Lets Transform of the small workload, or each step of its Trainer, wait."""
        hold = self.folder / f"hold-{node}"
        hold.touch()
        try:
            yield
        finally:
            hold.unlink()

    def run_by_tfx(self, *sets: str) -> None:
        """Runs the same graph through TFX's own LocalDagRunner."""
        self._by_tfx(_LOCAL_DAG_RUNNER, sets).output()

    def start_by_tfx(self, *sets: str, **environ: str) -> Any:
        """Starts what `run_by_tfx` runs; its log is lost."""
        return self._by_tfx(_SILENT + _LOCAL_DAG_RUNNER, sets, **environ)

    def _by_tfx(self, code: str, sets: Sequence[str], **environ: str) -> Any:
        words = (str(self.yaml), *self.settings, *sets)
        environ["XDG_STATE_HOME"] = self.environment()["XDG_STATE_HOME"]
        return self.warm.script(code, *words, **environ)

    def sets(self) -> list[str]:
        return [word for setting in self.settings for word in ("--set", setting)]

    def command(self, *arguments: str) -> list[str]:
        """The command `strategos …`."""
        return [sys.executable, "-m", "strategos.pipeline.cli", *arguments]

    def environment(self) -> dict[str, str]:
        return {**os.environ, "XDG_STATE_HOME": str(self.folder / "state")}

    def cold_environment(self) -> dict[str, str]:
        """The environment without what makes tests faster."""
        made = self.environment()
        made.pop("TF_ENABLE_ONEDNN_OPTS", None)
        return made

    def last_run(self, *arguments: str) -> dict:
        shown = self.strategos("runs", "show", str(self.yaml), "--json", *arguments)
        return json.loads(shown.stdout)

    def states(self) -> dict[str, str]:
        """State of each node of the last run."""
        return {node["name"]: node["state"] for node in self.last_run()["nodes"]}

    def serving(self) -> list[str]:
        """Versions in the serving folder, oldest first."""
        (folder,) = (self.folder / "serving").iterdir()
        return sorted(path.name for path in folder.glob("[0-9]*"))

    def end(self, process: subprocess.Popen, sig: signal.Signals) -> int:
        """Sends `sig` to a started run and waits; its exit code."""
        process.send_signal(sig)
        process.communicate(timeout=60)
        return process.returncode

    def wait_for_event(self, text: str, seconds: float = 200) -> None:
        """Returns once the events of the newest run contain `text`."""
        log = max(self._run_folders(), key=lambda run: run.name) / "events.jsonl"
        wait_for(lambda: text in log.read_text(), seconds)

    def wait_for(self, condition: Callable[[], bool], seconds: float) -> None:
        """Returns once `condition()` holds; fails if it does not in time."""
        wait_for(condition, seconds)

    def wait_until_nothing_is_left(self, seconds: float = 10) -> None:
        """Fails if a process of this workspace is still there after `seconds`."""
        wait_for(lambda: not self.left_processes(), seconds)

    def left_processes(self) -> list[str]:
        """Command lines of processes that work on this workspace.

        Its folder is in their arguments, their environment or their open files.
        """
        return [line for _, _, line in self._processes()]

    def process(self, module: str) -> int:
        """The process that runs `module`, of a run that was started warm."""
        named = {pid for pid, name, _ in self._processes() if name == module[:15]}
        has_forks = (pid for pid in named if psutil.Process(pid).ppid() not in named)
        (found,) = has_forks
        return found

    def _processes(self) -> list[tuple[int, str, str]]:
        """Id, name and command line of each process of this workspace."""
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ")
                traces = line + (entry / "environ").read_bytes() + _open_files(entry)
                named = str(self.folder).encode() in traces
                if named and int(entry.name) != os.getpid():
                    name = (entry / "comm").read_text().strip()
                    found.append((int(entry.name), name, line.decode()))
        return found


def _open_files(process: Path) -> bytes:
    found = []
    for link in (process / "fd").iterdir():
        with contextlib.suppress(OSError):  # closed in the meantime
            found.append(os.readlink(bytes(link)))
    return b" ".join(found)


@pytest.fixture(scope="session")
def make_workspace(warm_tfx):
    """Makes a workspace of a folder: `make_workspace(folder, settings, rows)`."""

    def make(folder: Path, settings=(), rows=0) -> Workspace:
        (folder / "state").mkdir(parents=True, exist_ok=True)  # see `_processes`
        return Workspace(folder, warm_tfx, tuple(settings), rows)

    return make


@pytest.fixture(scope="session")
def copy_example(make_workspace):
    """Makes a workspace of a copy: `copy_example(name, folder, settings, rows)`."""

    def copy(name: str, folder: Path, settings=(), rows=0) -> Workspace:
        # The YAML names the schema as ../../schemas/…: the copy keeps that true.
        target = folder / "examples" / name
        ignore = shutil.ignore_patterns("data", "runs", "serving", "__pycache__")
        shutil.copytree(EXAMPLES / name, target, ignore=ignore)
        shutil.copytree(SCHEMAS, folder / "schemas")
        return make_workspace(target, settings, rows)

    return copy


@pytest.fixture(scope="session")
def kfp_launcher() -> type:
    """The `Launcher` of kfp_launcher.py."""
    return _launchers()["Launcher"]


@pytest.fixture(scope="session")
def vertex_launcher() -> type:
    """The `VertexLauncher` of kfp_launcher.py."""
    return _launchers()["VertexLauncher"]


@functools.cache
def _launchers() -> dict[str, type]:
    return runpy.run_path(str(Path(__file__).with_name("kfp_launcher.py")))


@pytest.fixture(scope="session")
def flights_data(made_once) -> Path:
    """The flights' spans, some rows of each month."""
    return made_once("flights-data", _make_flights_data) / "data"


def _make_flights_data(folder: Path) -> None:
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


@pytest.fixture(scope="session")
def copy_flights(copy_example, flights_data):
    """Makes a workspace of the flights workload: `copy_flights(folder)`."""

    def copy(folder: Path) -> Workspace:
        made = copy_example("flights", folder, FEW_ROWS, 12 * FLIGHTS_PER_MONTH)
        shutil.copytree(flights_data, made.folder / "data")
        return made

    return copy


@pytest.fixture
def make_flights(copy_flights, tmp_path):
    """Makes a workspace of the flights workload in the test's folder."""
    return lambda: copy_flights(tmp_path)


@pytest.fixture(scope="module")
def flights(copy_flights, tmp_path_factory) -> Workspace:
    """A flights workspace that the tests of a module share, in their order."""
    return copy_flights(tmp_path_factory.mktemp("flights"))


@pytest.fixture(scope="module")
def digits(copy_example, tmp_path_factory) -> Workspace:
    """A digits workspace that the tests of a module share, in their order."""
    return copy_example("digits", tmp_path_factory.mktemp("digits"))


def _write_span(workload: Path, span: int, rows: int = 200) -> Path:
    lines = (f"{(n * 37 + span) % 101},{n % 2}" for n in range(rows))
    file = workload / "data" / f"span-{span}" / "rows.csv"
    file.parent.mkdir(parents=True)
    file.write_text("\n".join(["x,late", *lines]) + "\n")
    return file


@pytest.fixture(scope="session")
def write_span() -> Callable[..., Path]:
    """Writes a span of data: `write_span(folder of the workload, number)`."""
    return _write_span


@pytest.fixture(scope="session")
def make_small(copy_workload, make_workspace):
    """Makes a workspace of the small workload in `checkout/small`, with two spans."""

    def make(checkout: Path, *settings: str):
        copy_workload("small", checkout)
        folder = checkout / "small"
        for span in (1, 2):
            _write_span(folder, span)
        return make_workspace(folder, settings)

    return make


@pytest.fixture(scope="module")
def small(make_small, tmp_path_factory):
    """A workspace that the tests of a module share, in their order."""
    return make_small(tmp_path_factory.mktemp("checkout"))


@pytest.fixture(scope="module")
def chromium():
    """A browser; tests that use it have the mark `pages`."""
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if not path:
        pytest.skip("needs Chromium (apt-get install chromium)")
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as playwright:
        # Chromium of root starts without its sandbox only.
        browser = playwright.chromium.launch(
            executable_path=path, args=["--no-sandbox"]
        )
        yield browser
        browser.close()
