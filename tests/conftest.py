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
from cloud_storage import CloudStorage
from kubernetes_cluster import Kubernetes
from s3 import S3
from server import running

from strategos.components import plugins, processes, worker_process
from strategos.components.user_code import modules
from strategos.pipeline.view import quiet

# What this process starts that uses TensorFlow, and what a run does that uses TFX.
_HOSTS = (
    "strategos.components.infra_validator.probe",
    "strategos.components.span_validator.judging",
    "strategos.components.span_validator.preview",
    "strategos.components.trainer.run.measure",
    "strategos.components.trainer.run.worker",
    "gang_only",
)
_RUNNERS = (
    "strategos.pipeline.run_process",
    "strategos.pipeline.runners.beam_process",
    "strategos.pipeline.runners.executor_process",
)
_TRAINING = "strategos.components.trainer.run.session"
_TFX = (
    "strategos.pipeline.commands",
    "strategos.pipeline.api",
    "strategos.pipeline.config.loading",
    "strategos.pipeline.history.runs",
    "strategos.pipeline.run.orchestration",
    "strategos.pipeline.runners.beam_nodes",
    "strategos.pipeline.view.report",
    "strategos.pipeline.plan.graph",
    "tfx.dsl.compiler.compiler",
    "tfx.orchestration.portable.beam_executor_operator",
    "tfx.orchestration.portable.python_executor_operator",
    "tfx.orchestration.python_execution_binary.python_execution_binary_utils",
)

# What the processes import that tests fork, and what their forks run.
_PARENTS = {
    "tensorflow": ([_TRAINING], _HOSTS),
    "tfx": ([_TRAINING, *_TFX], [*_HOSTS, *_RUNNERS]),
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

# Where files take long, the longest first: so all of pytest's workers end together.
_LONG = (
    "components/trainer/loop/test_update_lock.py",
    *("components/shards/flink/test_kills.py", "components/shards/flink"),
    *("e2e/cluster/test_kubeflow.py", "e2e/test_engine.py"),
    "components/trainer/launchers/tfjob/test_tfjob_cluster.py",
    *("components/transform/test_features.py", "components/trainer/gang"),
    *("components/trainer/loop/test_parameter_server.py", "components/trainer/loop"),
    *("components/trainer/hosts", "e2e", "components/trainer", "components/evaluator"),
    *("pipeline/runners", "pipeline/view", "test_wheel.py"),
)


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


def pytest_ignore_collect(collection_path, config):
    """Imports no file without the mark that alone is asked for."""
    mark = config.getoption("markexpr")
    if not mark.isidentifier() or collection_path.suffix != ".py":
        return None
    return None if f"mark.{mark}" in collection_path.read_text() else True


def pytest_collection_modifyitems(items):
    """Long files come first; the tests of a file stay in their order."""
    tests = Path(__file__).parent

    def place(item):
        path = item.path.relative_to(tests).as_posix()
        found = [number for number, part in enumerate(_LONG) if path.startswith(part)]
        return found[0] if found else len(_LONG)

    items.sort(key=place)


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
def environment():
    """The environment of all processes that the tests of a module start."""
    with pytest.MonkeyPatch.context() as patch:
        yield patch


@pytest.fixture(scope="module")
def object_store():
    """The scheme of `bucket`; a module that overrides it can try both."""
    return "s3"


@pytest.fixture(scope="session")
def cloud_storage_folder(tmp_path_factory):
    return tmp_path_factory.mktemp("cloud-storage")


@pytest.fixture(scope="module")
def cloud_storage(environment, cloud_storage_folder):
    """A Google Cloud Storage of its own."""
    with running(CloudStorage(cloud_storage_folder)) as store:
        for name, value in store.environment().items():
            environment.setenv(name, value)
        yield store


@pytest.fixture(scope="module")
def s3_client(environment):
    """A client of an S3 server of its own, with the empty bucket `bucket`."""
    with running(S3()) as store:
        for name, value in store.environment().items():
            environment.setenv(name, value)
        yield store.client()


@pytest.fixture(scope="module")
def bucket_client(object_store, request):
    """A client of an object store of its own, as boto3's, with the bucket `bucket`."""
    if object_store == "gs":
        return request.getfixturevalue("cloud_storage").client()
    return request.getfixturevalue("s3_client")


@pytest.fixture(scope="module")
def bucket(object_store, bucket_client):
    """The URL of an empty bucket on an object store of its own."""
    return f"{object_store}://bucket"


def _ip(*arguments):
    return subprocess.run(["ip", *arguments], capture_output=True).returncode == 0


def _lay(cable, ends):
    """Joins two namespaces by a cable of this name; returns whether that worked."""
    devices = [f"{cable}{side}" for side in "ab"]
    made = _ip("link", "add", devices[0], "type", "veth", "peer", "name", devices[1])
    for device, (name, address) in zip(devices, ends, strict=True):
        made = made and all(
            (
                _ip("link", "set", device, "netns", name),
                _ip("-n", name, "addr", "add", address, "dev", device),
                _ip("-n", name, "link", "set", "lo", "up"),
                _ip("-n", name, "link", "set", device, "up"),
            )
        )
    return made


@pytest.fixture
def make_namespaces():
    """Makes network namespaces joined by cables: `make_namespaces(*cables)`.

    A cable is a mapping from the names of two hosts to their addresses. Returns the
    namespace of each host by its name.
    """
    made = {}

    def make(*cables):
        if os.geteuid() != 0 or shutil.which("ip") is None:
            pytest.skip("network namespaces need root and the command `ip`")
        hosts = dict.fromkeys(host for cable in cables for host in cable)
        made.update({host: f"strategos-{host}-{os.getpid()}" for host in hosts})
        done = all(_ip("netns", "add", name) for name in made.values())
        for number, cable in enumerate(cables):
            ends = [(made[host], address) for host, address in cable.items()]
            done = done and _lay(f"s{os.getpid()}n{number}", ends)
        if not done:
            pytest.skip("network namespaces cannot be made here")
        return dict(made)

    yield make
    for name in made.values():
        _ip("netns", "del", name)


@pytest.fixture(scope="module")  # one that idles takes a third of a core
def cluster(tmp_path_factory):
    """A Kubernetes with Kubeflow, which no test ends."""
    with running(Kubernetes(tmp_path_factory.mktemp("cluster-logs"))) as found:
        yield found
