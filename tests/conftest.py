from __future__ import annotations

import contextlib
import fcntl
import gc
import os
import random
import runpy
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from strategos.components import plugins, processes, worker_process
from strategos.components.user_code import modules
from strategos.pipeline.view import quiet

pytest_plugins = ("register", "server_fixtures")  # of tests/support

# What this process starts that uses TensorFlow, and what a run does that uses TFX.
_HOSTS = (
    "strategos.components.infra_validator.probe",
    "strategos.components.predict.batch.process",
    "strategos.components.predict.model_process",
    "strategos.components.span_validator.judging",
    "strategos.components.span_validator.preview_process",
    "strategos.components.trainer.run.measure",
    "strategos.components.trainer.run.worker",
    "gang_only",
)
_RUNNERS = (
    "strategos.pipeline.run_process",
    "strategos.pipeline.runners.beam_process",
    "strategos.pipeline.runners.executor_process",
)
_TRAINING = (
    "strategos.components.trainer.run.session",
    "strategos.components.trainer.run.rehearsal",
    "strategos.components.trainer.finished",
    "strategos.components.trainer.hosts.worker",
    "strategos.components.user_code.uses",
)
_TFX = (
    "strategos.components.data_files.writing",
    "strategos.components.evaluation.scoring",
    "strategos.components.evaluator.executor",
    "strategos.components.infra_validator.executor",
    "strategos.components.push_targets.folder",
    "strategos.components.pusher.executor",
    "strategos.components.span_validator.executor",
    "strategos.components.statistics_gen.executor",
    "strategos.components.trainer.executor",
    "strategos.components.transform.executor",
    "strategos.components.transform.materialize",
    "strategos.pipeline.commands",
    "strategos.pipeline.api",
    "strategos.pipeline.history.models",
    "strategos.pipeline.history.runs",
    "strategos.pipeline.report.writing",
    "strategos.pipeline.retrain_command",
    "strategos.pipeline.runs_command",
    "strategos.pipeline.run.orchestration",
    "strategos.pipeline.runners.beam_nodes",
    "strategos.pipeline.view.report",
    "strategos.pipeline.plan.graph",
    "tfx.dsl.compiler.compiler",
    "tfx.orchestration.portable.beam_executor_operator",
    "tfx.orchestration.portable.python_executor_operator",
    "tfx.orchestration.python_execution_binary.python_execution_binary_utils",
    "warm_settings",
)

# What the processes import that tests fork, and what their forks run.
_PARENTS = {
    "tensorflow": (_TRAINING, _HOSTS),
    "tfx": ([*_TRAINING, *_TFX], [*_HOSTS, *_RUNNERS]),
}
_FOLDER = "WARM_PARENTS"  # the variable that names the folder of their sockets

# A job that a shell starts in the background ignores Ctrl-C, and so would all processes
# that these tests start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The modules that tests import stay until the end: collections would find nothing.
gc.disable()

# TensorFlow's search of each graph for operations that oneDNN does better takes a fifth
# of a small training. It is on in runs that start cold, and on the newer stack.
if sys.version_info < (3, 11):
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")


def _parent(name, folder=None, user=()):
    parent = runpy.run_path(str(Path(__file__).with_name("warm.py")))["Parent"]
    env = {**worker_process.TENSORFLOW, **quiet.environment()}
    address = f"{folder or os.environ[_FOLDER]}/{name}"
    return parent(address, _PARENTS[name][1], env, user)


def pytest_configure(config):
    """Listens for those who ask for forks of warm processes."""
    if not hasattr(config, "workerinput"):
        folder = tempfile.TemporaryDirectory(prefix="warm-")
        config.add_cleanup(folder.cleanup)
        os.environ[_FOLDER] = folder.name
        for name, (imports, _) in _PARENTS.items():
            _parent(name).serve(imports)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(config, specs):
    """Pytest's workers are forks too: what the tests of whole folders import is there.

    Named files are imported sooner than that, and many need none of it.
    """
    named = all(word.partition("::")[0].endswith(".py") for word in config.args)
    if sys.version_info < (3, 11) and not named:  # not tried on the newer stack yet
        for spec in specs:
            spec.python = _parent("tfx").worker()


def pytest_collection_finish():
    """Later collections skip what all imports have made."""
    gc.freeze()
    gc.set_threshold(10_000, 10, 100)
    gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item, nextitem):
    """Collects garbage after each file; later collections skip what the file leaves."""
    if nextitem is None or nextitem.path != item.path:
        gc.collect()
        gc.freeze()


@pytest.fixture(scope="session")
def copy_workload():
    """Copies the files of `tests/workloads/NAME`: `copy_workload(name, folder)`."""
    workloads = Path(__file__).with_name("workloads")
    compiled = shutil.ignore_patterns("__pycache__")

    def copy(name, folder):
        shutil.copytree(workloads / name, folder, ignore=compiled, dirs_exist_ok=True)

    return copy


@pytest.fixture(scope="session")
def made_once(tmp_path_factory):
    """A folder that all of pytest's workers read: `made_once(name, make)`.

    The first that asks runs `make(folder)`, and others wait. It may be renamed then.
    """
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base

    def made(name, make):
        folder = shared / name
        with open(shared / f"{name}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not folder.exists():
                part = Path(tempfile.mkdtemp(dir=shared))
                make(part)
                part.rename(folder)
        return folder

    return made


@pytest.fixture(scope="session")
def free_ports():
    """Ports for servers that others start later: `free_ports(count)`.

    The port after each is free too. The system gives none of them to a connection,
    which would have taken some by then.
    """
    chosen = random.SystemRandom()  # others choose at the same time

    def free(count):
        found = set()
        while len(found) < count:
            port = chosen.randrange(10_000, 20_000, 2)
            with (
                contextlib.suppress(OSError),
                socket.socket() as one,
                socket.socket() as after,
            ):
                one.bind(("", port))
                after.bind(("", port + 1))
                found.add(port)
        return sorted(found)

    return free


@pytest.fixture
def as_another_user():
    """Yields a folder that the test may write to, as a user who is not root."""
    with tempfile.TemporaryDirectory() as folder:
        if os.geteuid():
            yield Path(folder)
            return
        os.chown(folder, 65534, 65534)
        os.seteuid(65534)
        try:
            yield Path(folder)
        finally:
            os.seteuid(0)


@pytest.fixture(scope="session")
def wheel(tmp_path_factory):
    """The wheel of this checkout, built from a copy of it."""
    checkout, source = Path(__file__).parents[1], tmp_path_factory.mktemp("source")
    skipped = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for name in ("src", "pipeline", "components"):
        how = {"symlinks": True, "ignore": skipped}
        shutil.copytree(checkout / name, source / name, **how)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(checkout / name, source)
    built = tmp_path_factory.mktemp("wheel")
    build = "import sys, setuptools.build_meta as b; b.build_wheel(sys.argv[1])"
    command = [sys.executable, "-W", "ignore", "-c", build, str(built)]
    subprocess.run(command, cwd=source, check=True, capture_output=True)
    (path,) = built.glob("*.whl")
    return path


@pytest.fixture(autouse=True, scope="session")
def own_state(tmp_path_factory):
    """What commands remember of their roots is not what this user's remember."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        patch.setenv("STRATEGOS_WARM", "0")  # no process stays, unless a test says so
        yield


@pytest.fixture(autouse=True, scope="module")
def no_user_code(tmp_path_factory):
    """What a file imports of a workload, another one does not find; nor plug-ins."""
    yield
    plugins.use("", ())
    modules.activate(str(tmp_path_factory.mktemp("no-workload")))


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Installs a package of one module: its source, and its entry points as INI."""
    site = tmp_path / "site"
    site.mkdir()
    monkeypatch.syspath_prepend(site)
    before = set(sys.modules)

    def install(name: str, source: str, entry_points: str, version: str = "1.2") -> str:
        (site / f"{name}.py").write_text(source)
        about = site / f"{name}-{version}.dist-info"
        about.mkdir()
        metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        (about / "METADATA").write_text(metadata)
        (about / "entry_points.txt").write_text(entry_points)
        plugins.forget()
        return name

    yield install
    for name in set(sys.modules) - before:
        if str(site) in (getattr(sys.modules[name], "__file__", None) or ""):
            del sys.modules[name]
    plugins.forget()
    plugins.use("", ())


@pytest.fixture(scope="session")
def warm_tensorflow():
    """A `Parent` of warm.py that has imported TensorFlow."""
    return _parent("tensorflow")


@pytest.fixture(scope="session")
def warm_tfx():
    """A `Parent` of warm.py that has imported what a run of a pipeline does."""
    return _parent("tfx")


@pytest.fixture(scope="module")
def warm_user(warm_tfx):
    """As `warm_tfx`, of a user who is not root; `user` starts a command as that user.

    A user namespace takes root's rights from a process, and keeps its files.
    """
    user = ("unshare", "--user", "--map-user=1000", "--map-group=1000")
    if os.geteuid():
        yield warm_tfx
        return
    if not shutil.which(user[0]) or subprocess.run([*user, "true"]).returncode:
        pytest.skip("needs unshare of util-linux, and user namespaces")
    with tempfile.TemporaryDirectory(prefix="warm-") as folder:
        parent = _parent("tfx", folder, user)
        parent.serve(_PARENTS["tfx"][0])
        yield parent


@pytest.fixture(scope="module")
def warm_processes(warm_tensorflow):
    """What uses TensorFlow starts warm."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(processes, "start", warm_tensorflow.start)
        yield


@pytest.fixture(scope="module")
def chosen(request):
    """The values of a parameter in the tests of this file that run: `chosen(name)`."""

    def chosen(name):
        here = (item for item in request.session.items if item.path == request.path)
        given = (item.callspec.params for item in here if hasattr(item, "callspec"))
        return list(dict.fromkeys(each[name] for each in given if name in each))

    return chosen


@pytest.fixture(scope="module")
def environment():
    """The environment of all processes that the tests of a module start."""
    with pytest.MonkeyPatch.context() as patch:
        yield patch
