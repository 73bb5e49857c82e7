"""The register of tests: marks, files that differ by stack, slow files.

The hooks of pytest that read it are here too.
"""

from __future__ import annotations

import functools
import os
import re
import time
from pathlib import Path

import pytest

_TESTS = Path(__file__).parents[1]

# What `make test` leaves out, each with a stage of its own.
MARKS = {
    "long": "further cases of what make test samples, of 4 s and more (make test-long)",
    "formats": "further cases of the input: formats, settings, stores, queries "
    "(make test-formats)",
    "faults": "kills, freezes or starves processes; takes long (make test-faults)",
    "engine": "of other engines than direct; most need Java and the jars of Flink "
    "(make test-engine)",
    "cluster": "on a real Slurm or Kubernetes, or slow jobs elsewhere "
    "(make test-cluster)",
    "matrix": "trains each pair of features beside plain Keras (make test-matrix)",
    "install": "from the built wheel, in an environment of its own (make test-install)",
    "image": "in containers of the Dockerfile; builds for minutes (make test-image)",
    "pages": "opens reports and strategos ui in a real Chromium (make test-pages)",
    "gpu": "needs one GPU or two (make test-gpu)",
}
# What `make test` runs, too.
_FURTHER = {
    "cold": "starts processes as users do, not as forks of warm ones (pytest -m cold)",
    "stack": "differs by stack (make test-new-stack)",
}
# Seconds since 1970: what has not begun by then is skipped, so that CI ends in time on
# a slow machine, too.
_BEGIN_BEFORE = float(os.environ.get("TESTS_BEGIN_BEFORE", "inf"))
# "2/3": the second third of the files alone; CI takes another part with each commit.
_PART = os.environ.get("TESTS_PART", "1/1")
_UNMARKED = f"not ({' or '.join(MARKS)})"
# What `-m` stands for, where another stage has a part of it.
_CHOSEN = {
    "": _UNMARKED,
    "long": f"long and not ({' or '.join(each for each in MARKS if each != 'long')})",
    "stack": f"stack and (long or formats or {_UNMARKED})",
}

# Of files whose tests all have a mark.
_LEFT_OUT = re.compile(rf"^pytestmark = pytest\.mark\.({'|'.join(MARKS)})\b", re.M)

# What differs between the stacks, and the end-to-end tests that depend on it.
_BY_STACK = (
    *("components/example_gen", "components/transform", "components/evaluator"),
    *("components/plugins", "components/statistics_gen"),
    "components/test_infra_validator.py",
    *("components/predict/test_rows.py", "components/predict/test_batch.py"),
    *("components/user_node/test_user_node.py", "components/user_code/test_archive.py"),
    *("components/user_code/test_user_errors.py", "components/files/test_places.py"),
    *("components/files/test_filesystems.py", "components/files/test_temporary.py"),
    "components/files/test_storage.py",
    *("components/files/test_cloud_storage.py", "components/trainer/compat"),
    *("components/trainer/distribution/test_devices.py", "components/trainer/run"),
    "components/trainer/data/test_ragged.py",
    "components/trainer/data/test_distributed.py",
    "components/trainer/gang/test_loopback.py",
    "components/trainer/gang/test_contact.py",
    "components/trainer/launchers/kubernetes/test_staging.py",
    "components/trainer/loop/test_strategies.py",
    "components/trainer/loop/test_resumed_epochs.py",
    "components/trainer/loop/servers/test_parameter_server.py",
    "components/trainer/loop/checkpoint/test_checkpoints.py",
    *("components/trainer/loop/warm_start", "components/trainer/model/replicas"),
    "components/trainer/model/test_effects.py",
    *("components/trainer/model/test_varying.py", "components/trainer/model/tables"),
    *("pipeline/runners", "pipeline/test_cli.py", "pipeline/test_api.py"),
    "examples/test_tables.py",
    *("pipeline/view/test_quiet.py", "pipeline/plan/test_graph.py"),
    *("pipeline/plan/test_cluster.py", "pipeline/plan/test_uploads.py"),
    *("pipeline/plan/test_user_nodes.py", "test_wheel.py", "e2e/test_digits.py"),
    *("e2e/test_flights.py", "e2e/test_interruption.py", "e2e/test_plugin_package.py"),
    *("e2e/test_python.py", "e2e/test_runners.py", "e2e/test_strategies.py"),
    *("e2e/test_text.py", "e2e/servers/test_remote_root.py"),
    *("e2e/servers/test_metadata_servers.py", "e2e/servers/test_cloud_storage.py"),
)

# Where files take long, the longest first: so all of pytest's workers end together.
# Others follow in the order of their names.
_LONG = (
    "components/trainer/loop/servers/test_update_lock.py",
    *("components/shards/flink/test_kills.py", "components/shards/flink"),
    *("e2e/cluster/test_kubeflow.py", "e2e/test_engine.py"),
    "components/trainer/launchers/kubernetes/test_jobs_cluster.py",
    *("components/transform/test_features.py", "components/trainer/gang"),
    *(
        "components/trainer/loop/servers/test_parameter_server.py",
        "components/trainer/loop",
    ),
    *("components/trainer/hosts", "e2e", "components/trainer", "components/evaluator"),
    *("pipeline/runners", "pipeline/view", "test_wheel.py"),
)


# Files whose tests share nothing and take half a minute each: any of pytest's workers
# runs one, after other files.
_APART = ("components/trainer/matrix/test_layers.py",)

# Whose tests share nothing.
_MATRIX = _TESTS / "components/trainer/matrix"
_STACK_PATHS = [_TESTS / part for part in _BY_STACK]
PATHS = [*_STACK_PATHS, *(_TESTS / part for part in (*_LONG, *_APART))]


@functools.cache
def _differs_by_stack(path):
    """Whether a file is one of those, or a folder has one."""
    return any(path.is_relative_to(x) or x.is_relative_to(path) for x in _STACK_PATHS)


def pytest_configure(config):
    """Registers the marks; what `-m` does not ask for is left out."""
    for name, meaning in {**MARKS, **_FURTHER}.items():
        config.addinivalue_line("markers", f"{name}: {meaning}")
    asked = config.option.markexpr
    config.option.markexpr = _CHOSEN.get(asked, asked)


def pytest_ignore_collect(collection_path, config):
    """Imports no file without the mark that alone is asked for, or all left out."""
    mark = config.option.markexpr
    if mark == _UNMARKED and collection_path.suffix == ".py":
        return True if _LEFT_OUT.search(collection_path.read_text()) else None
    if mark == _CHOSEN["stack"]:
        return None if _differs_by_stack(collection_path) else True
    mark = "long" if mark == _CHOSEN["long"] else mark
    if not mark.isidentifier() or collection_path.suffix != ".py":
        return None
    return None if f"mark.{mark}" in collection_path.read_text() else True


def pytest_itemcollected(item):
    """Marks what differs by stack."""
    if _differs_by_stack(item.path):
        item.add_marker("stack")


@pytest.hookimpl(tryfirst=True)  # before fixtures are made
def pytest_runtest_setup(item):
    """Skips a test for which no time is left."""
    if time.time() > _BEGIN_BEFORE:
        pytest.skip("no time is left on this machine (TESTS_BEGIN_BEFORE)")


def pytest_collection_modifyitems(items, config):
    """Long files come first; the tests of a file stay in their order, and together."""
    items.sort(key=lambda item: _place(item.path))
    chosen = set(of_part(items, _PART))
    config.hook.pytest_deselected(items=[x for x in items if x not in chosen])
    items[:] = [x for x in items if x in chosen]


def pytest_sessionfinish(session, exitstatus):
    """A part without any test of a stage has passed."""
    if _PART != "1/1" and exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED:
        session.exitstatus = pytest.ExitCode.OK


def of_part(items, part):
    """The tests of one of several parts; "2/3": of the second of three.

    Files are dealt in turn, so that each part has as many of the long ones.
    """
    number, parts = map(int, part.split("/"))
    wholes = list(dict.fromkeys(map(_whole, items)))
    chosen = set(wholes[number - 1 :: parts])
    return [item for item in items if _whole(item) in chosen]


def _whole(item):
    """Of a part: a file, whose tests may build on each other; a test of the matrix."""
    return item.nodeid if item.path.is_relative_to(_MATRIX) else item.path


@functools.cache
def _place(path):
    found = [n for n, part in enumerate(_LONG) if path.is_relative_to(_TESTS / part)]
    return found[0] if found else len(_LONG), path.as_posix().endswith(_APART)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Gives each worker a file at a time, or a test of those that share nothing."""
    from xdist.scheduler import LoadFileScheduling

    class ByFile(LoadFileScheduling):
        def _split_scope(self, nodeid):
            file = super()._split_scope(nodeid)
            return nodeid if file.endswith(_APART) else file

    return ByFile(config, log) if config.option.dist == "loadfile" else None
