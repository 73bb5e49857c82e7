"""The kill table: each process of an engine is killed during each component.

A day's round has one cell of each row and of each column. `STRATEGOS_KILLS=all` runs
the table; `all-2`, `all-3`, … kill at other moments, and a number repeats a round. A
day's round spares workers that connect just now: Beam would wait for three minutes.
TaskManagers and workers are those of a cluster that stays; a node starts the rest.
"""

from __future__ import annotations

import contextlib
import datetime
import functools
import hashlib
import json
import os
import random
import signal
import sys
import time

import pytest

from strategos.components.shards.engine import Engine
from strategos.components.user_code import modules
from strategos.components.user_code.workload_paths import WorkloadPaths

pytestmark = pytest.mark.engine

ROUND = os.environ.get("STRATEGOS_KILLS") or str(datetime.date.today().toordinal())
VICTIMS = {
    "TaskManager": "TaskManagerRunner",
    "worker": "strategos-worker",
    "job server": "FlinkJobServerDriver",
    "JobManager": "ClusterEntrypoint",
    "driver": "",
}
NODES = ("ExampleGen", "StatisticsGen", "analysis", "output", "Evaluator")
LATEST_SECONDS = 4.0  # from the start of the first worker, on a new cluster

DRIVER = """
import json, pathlib, sys

from strategos.components import events, fork_server
from strategos.components.errors import UserError
from strategos.components.user_code import modules

fork_server.start()  # as in a run: workers are forks of what is imported
folder, node, uri = sys.argv[1:]
modules.activate(folder)
import nodes

error = None
try:
    nodes.of(node)(pathlib.Path(folder), pathlib.Path(uri))
except UserError as raised:
    error = str(raised)
print(json.dumps({"error": error}), flush=True)
"""


def cells():
    if ROUND.startswith("all"):
        return [(victim, node) for node in NODES for victim in VICTIMS]
    return [
        (victim, NODES[(int(ROUND) + number) % len(NODES)])
        for number, victim in enumerate(VICTIMS)
    ]


@pytest.fixture(scope="module")
def folder(tmp_path_factory, copy_workload, make_table):
    """A folder with what components read, and the module that runs them."""
    folder = tmp_path_factory.mktemp("kills")
    copy_workload("nodes", folder)
    make_table(folder / "data")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [str(folder), *sys.path])
        modules.activate(str(folder))
        nodes().prepare(folder)
        yield folder
        sys.modules.pop("nodes")


def nodes():
    import nodes

    return nodes


@pytest.fixture
def start(installed, folder, warm_tfx):
    """Starts a process that runs a node on an engine."""

    def start(engine, node, uri):
        return warm_tfx.script(
            DRIVER,
            *(str(folder), node, str(uri)),
            TMPDIR=str(uri.parent),
            **engine.to_environment(),
            **WorkloadPaths(folder=str(folder)).to_environment(),
        )

    return start


@pytest.fixture(scope="module")
def expected(folder):
    """What a node writes undisturbed, in threads."""
    made = {}

    def expected(node):
        if node not in made:
            uri = folder / f"undisturbed-{node}"
            nodes().of(node)(folder, uri)
            made[node] = result(node, folder, uri)
        return made[node]

    return expected


def result(node, folder, uri):
    """What counts of a node's output. Graphs count by what they make of the rows."""
    if node == "Evaluator":
        return json.loads((uri / "evaluation" / "summary.json").read_text())
    if node == "analysis":
        uri, graph = uri.with_name(f"{uri.name}-rows"), uri
        nodes().transform(folder, uri, graph)
    files = nodes().files(uri)
    return {name: hashlib.sha256(files[name]).hexdigest() for name in files}


@pytest.fixture
def victims(pids, connected_workers):
    """The processes that can be killed: `victims(victim, driver, folder)`."""

    def victims(victim, driver, folder):
        if victim == "driver":
            return [driver.pid]
        if victim == "worker" and not ROUND.startswith("all"):
            return connected_workers(folder)
        return pids(folder, VICTIMS[victim])

    return victims


def is_under_way(workers, driver, before):
    return set(workers()) - before or driver.poll() == 0


def disturb(find, driver, before, chance, latest):
    """Kills a process at a random moment; None if the driver has ended before."""
    time.sleep(chance.uniform(0, latest))
    while driver.poll() is None:
        if found := sorted(set(find()) - before):
            with contextlib.suppress(ProcessLookupError):
                os.kill(chance.choice(found), signal.SIGKILL)
                print(f"killed {time.strftime('%H:%M:%S')}")
                return time.monotonic()
    return None


@pytest.mark.parametrize(("victim", "node"), cells())
def test_killed_process(
    start, folder, expected, cluster, victims, wait_until, pids, tmp_path, victim, node
):
    chance = random.Random(f"{victim} {node} {ROUND}")
    shared = Engine("portable", 2, cluster.job_endpoint, master=cluster.master)
    stays = victim in ("TaskManager", "worker")
    engine = shared if stays else Engine("flink", 2, taskmanagers=2)
    place = cluster.folder if stays else tmp_path
    latest = LATEST_SECONDS / 2 if stays else LATEST_SECONDS
    workers = functools.partial(pids, place, VICTIMS["worker"])
    killed, uri = None, tmp_path / "0"
    while killed is None:  # half as late, if the node was faster
        before = set(workers())  # one can stay where a job lost another TaskManager
        uri = uri.with_name(str(int(uri.name) + 1))
        driver = start(engine, node, uri)
        find = functools.partial(victims, victim, driver, place)
        wait_until(functools.partial(is_under_way, workers, driver, before), 200)
        killed = disturb(find, driver, before, chance, latest)
        latest /= 2
    if victim == "driver":
        assert driver.wait(10) == -signal.SIGKILL
    else:
        error = driver.answer()["error"]
        if stays:
            assert error is None
        else:
            assert time.monotonic() - killed < 60
            assert f"{victim} ended (SIGKILL)" in error
            assert f"/{victim.replace(' ', '-').lower()}.log" in error
    wait_until(lambda: not pids(tmp_path, ""), 30)
    if not stays:
        uri = tmp_path / "again"  # as TFX does
        assert start(shared, node, uri).answer() == {"error": None}
    assert result(node, folder, uri) == expected(node)


def test_workers_killed_once_a_vocabulary_is_final(
    start, folder, expected, cluster, wait_until, pids, tmp_path
):
    """Flink repeats the end of its write, which has deleted what it would rename."""
    engine = Engine("portable", 2, cluster.job_endpoint, master=cluster.master)
    uri = tmp_path / "graph"
    driver = start(engine, "analysis", uri)
    wait_until(
        lambda: driver.poll() == 0 or any(uri.glob(".temp/tftransform_tmp/**/vocab_*")),
        200,
    )
    assert driver.poll() is None
    for pid in pids(cluster.folder, VICTIMS["worker"]):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    assert driver.answer() == {"error": None}
    assert result("analysis", folder, uri) == expected("analysis")
