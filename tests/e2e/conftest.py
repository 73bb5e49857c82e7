"""Workspaces for end-to-end tests, and servers on ports of their own.

The workloads are the real ones, on a few thousand of their rows.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from strategos.components.files import filesystems

EXAMPLES = Path(__file__).parents[2] / "examples"
SCHEMAS = Path(__file__).parents[2] / "schemas"
FLIGHTS_PER_MONTH = 400

_PASSWORD = "not-a-secret"

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
from strategos.pipeline.run import orchestration

config = loading.load(sys.argv[1], (), sys.argv[2:]).config
orchestration.prepare_data(config)
parameters = planning.parameters(config)
pipeline = graph.build(config, caching.Fingerprints.of(config), parameters)
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
        sets = self.sets()
        return self.strategos("run", str(self.yaml), *sets, *arguments, expect=expect)

    def start(self, *arguments: str, node: str) -> subprocess.Popen:
        """Starts a run; returns once it has begun with `node`."""
        before = set(self._run_folders())
        process = subprocess.Popen(
            self.command("run", str(self.yaml), *self.sets(), *arguments),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=self.environment(),
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

    def run_by_tfx(self, *sets: str) -> str:
        """Runs the same graph through TFX's own LocalDagRunner; its log."""
        done = subprocess.run(
            self.command_of_tfx(*sets),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=self.environment(),
            timeout=500,
        )
        assert done.returncode == 0, done.stdout
        return done.stdout

    def command_of_tfx(self, *sets: str) -> list[str]:
        words = (str(self.yaml), *self.settings, *sets)
        return [sys.executable, "-c", _LOCAL_DAG_RUNNER, *words]

    def sets(self) -> list[str]:
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

    def wait_for(self, condition: Callable[[], bool], seconds: float) -> None:
        """Returns once `condition()` holds; fails if it does not in time."""
        wait_for(condition, seconds)

    def wait_until_nothing_is_left(self, seconds: float = 10) -> None:
        """Fails if a process of this workspace is still there after `seconds`."""
        wait_for(lambda: not self.left_processes(), seconds)

    def left_processes(self) -> list[str]:
        """Command lines of processes that work on this workspace.

        Its folder is among their arguments or, as that of the state, in what they
        inherit.
        """
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ")
                inherited = (entry / "environ").read_bytes()
            except OSError:
                continue
            named = str(self.folder).encode() in line + inherited
            if named and int(entry.name) != os.getpid():
                found.append(line.decode())
        return found


def _copy(name: str, folder: Path, settings=(), rows=0) -> Workspace:
    # The YAML names the schema as ../../schemas/…: the copy keeps that true.
    target = folder / "examples" / name
    ignore = shutil.ignore_patterns("data", "runs", "serving", "__pycache__")
    shutil.copytree(EXAMPLES / name, target, ignore=ignore)
    shutil.copytree(SCHEMAS, folder / "schemas")
    return Workspace(target, settings, rows)


@pytest.fixture(scope="session")
def make_workspace() -> type[Workspace]:
    """Makes a workspace of a folder that holds a pipeline.yaml."""
    return Workspace


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


@pytest.fixture(scope="session")
def workspace_in() -> Callable[..., Workspace]:
    """A workspace of files that a test writes: `workspace_in(folder, settings)`."""
    return Workspace


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


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _wait_for_port(port: int, process: subprocess.Popen) -> None:
    end = time.monotonic() + 60
    while time.monotonic() < end:
        assert process.poll() is None, "the server ended"
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise AssertionError(f"nothing listens on port {port}")


class MariaDB:
    """A MariaDB server of its own, with a database for ML Metadata."""

    def __init__(self, folder: Path):
        self.port = _free_port()
        self.url = f"mysql://strategos@127.0.0.1:{self.port}/mlmd"
        self._socket = f"--socket={folder}/socket"
        user = f"--user={os.environ.get('USER', 'root')}"
        self._options = ("--no-defaults", f"--datadir={folder}/data", user)

    def create(self) -> None:
        install = ("mariadb-install-db", "--auth-root-authentication-method=normal")
        subprocess.run([*install, *self._options], check=True, capture_output=True)
        self.start()
        setup = (
            "CREATE DATABASE mlmd; CREATE USER strategos@'%' IDENTIFIED BY "
            f"'{_PASSWORD}'; GRANT ALL ON mlmd.* TO strategos@'%';"
            f"CREATE USER strategos@localhost IDENTIFIED BY '{_PASSWORD}';"
            "GRANT ALL ON mlmd.* TO strategos@localhost;"
        )
        client = ["mariadb", "--no-defaults", self._socket, "--user=root"]
        subprocess.run([*client, f"--execute={setup}"], check=True)

    def start(self) -> None:
        listen = (f"--port={self.port}", "--bind-address=127.0.0.1")
        self._process = subprocess.Popen(
            ["mariadbd", *self._options, self._socket, *listen],
            stderr=subprocess.DEVNULL,
        )
        _wait_for_port(self.port, self._process)

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(timeout=60)


@pytest.fixture(scope="module")
def mariadb_server(tmp_path_factory) -> Iterator[MariaDB]:
    """A MariaDB server that a test may stop and start again."""
    if not shutil.which("mariadbd"):
        pytest.skip("MariaDB is not installed (Debian: mariadb-server)")
    server = MariaDB(tmp_path_factory.mktemp("mariadb"))
    server.create()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def mariadb(mariadb_server) -> str:
    """The URL of a database on a MariaDB server of its own."""
    return mariadb_server.url


@pytest.fixture(scope="module")
def postgresql(tmp_path_factory) -> Iterator[str]:
    """The URL of a database on a PostgreSQL server of its own."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
    if not found:
        pytest.skip("PostgreSQL is not installed (Debian: postgresql)")
    programs, port = found[-1].parent, _free_port()
    folder = tmp_path_factory.mktemp("postgresql")
    as_user = []
    if os.getuid() == 0:  # PostgreSQL refuses to run as root
        as_user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
        folder = Path(subprocess.check_output(["mktemp", "-d"], text=True).strip())
        shutil.chown(folder, "postgres", "postgres")
    (folder / "password").write_text(_PASSWORD)
    (folder / "password").chmod(0o644)
    subprocess.run(
        [
            *(*as_user, programs / "initdb", "-D", folder / "data", "-U", "strategos"),
            *("-A", "scram-sha-256", f"--pwfile={folder / 'password'}"),
        ],
        check=True,
        capture_output=True,
    )
    server = subprocess.Popen(
        [
            *(*as_user, programs / "postgres", "-D", folder / "data"),
            *("-p", str(port), "-k", folder, "-h", "127.0.0.1"),
        ],
        stderr=subprocess.DEVNULL,
    )
    _wait_for_port(port, server)
    subprocess.run(
        [
            *(programs / "psql", "-h", "127.0.0.1", "-p", str(port), "-U", "strategos"),
            *("-d", "postgres", "-c", "CREATE DATABASE mlmd"),
        ],
        check=True,
        capture_output=True,
        env={**os.environ, "PGPASSWORD": _PASSWORD},
    )
    yield f"postgresql://strategos@127.0.0.1:{port}/mlmd"
    server.terminate()
    server.wait(timeout=60)
    if as_user:
        shutil.rmtree(folder)


@pytest.fixture(scope="module")
def environment() -> Iterator[pytest.MonkeyPatch]:
    """The environment of all processes that the tests of a module start."""
    with pytest.MonkeyPatch.context() as patch:
        yield patch


@pytest.fixture(scope="module")
def metadata_password(environment) -> str:
    """The password of these servers, in the environment that runs read it from."""
    environment.setenv("STRATEGOS_METADATA_PASSWORD", _PASSWORD)
    return _PASSWORD


@pytest.fixture(scope="module")
def bucket(environment) -> Iterator[str]:
    """The URL of an empty bucket on an S3 server of its own."""
    boto3 = pytest.importorskip("boto3")
    moto = pytest.importorskip("moto.server")
    problem = filesystems.missing("s3://bucket")
    if problem:
        pytest.skip(problem)
    logging.getLogger("werkzeug").setLevel(logging.WARNING)
    port = _free_port()
    server = moto.ThreadedMotoServer("127.0.0.1", port, verbose=False)
    server.start()
    endpoint = f"http://127.0.0.1:{port}"
    environment.setenv("S3_ENDPOINT", endpoint)
    environment.setenv("AWS_REGION", "us-east-1")
    environment.setenv("AWS_ACCESS_KEY_ID", "anyone")
    environment.setenv("AWS_SECRET_ACCESS_KEY", _PASSWORD)
    client = boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1")
    client.create_bucket(Bucket="bucket")
    yield "s3://bucket"
    server.stop()
