"""A real cluster on this machine."""

from __future__ import annotations

import operator
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from strategos.components.errors import BadInputError
from strategos.components.shards import fold
from strategos.components.shards.engine import Engine
from strategos.components.shards.flink import master as flink_master
from strategos.components.shards.flink.master import Master

pytestmark = pytest.mark.engine

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"
_STARTER = """
import pathlib, sys, time
from strategos.components.shards.flink.connection import connected

with connected(None, 1, 1, pathlib.Path(sys.argv[1])) as connection:
    print(connection.master, flush=True)
    time.sleep(600)
"""


@pytest.fixture
def run(tmp_path):
    """Runs a fold; returns the id of its job."""

    def run(connection):
        engine = Engine("portable", 2, connection.job_endpoint)
        before = _jobs(Master(connection.master))
        found = fold.fold(engine, range(100), operator.neg, operator.add, str(tmp_path))
        assert found == -4950
        (job,) = _jobs(Master(connection.master)) - before
        return job

    return run


def _jobs(master):
    return {job["jid"] for job in master.get("/jobs/overview")["jobs"]}


def test_pipeline_runs_and_its_jars_stay(cluster, run):
    """A cluster that has the jars gets none of them with a job."""
    job, master = run(cluster), Master(cluster.master)
    assert master.get(f"/jobs/{job}")["state"] == "FINISHED"
    blobs = Path(_settings(master)["blob.storage.directory"])
    assert sum(f.stat().st_size for f in blobs.rglob("*") if f.is_file()) < 1e6


def _settings(master):
    settings = master.get("/jobmanager/config")
    return {each["key"]: each["value"] for each in settings}


def test_cluster_says_how_many_shuffles_its_network_memory_holds(cluster, monkeypatch):
    assert Master(cluster.master).check(2) == 1
    monkeypatch.setattr(flink_master, "_SHUFFLES", 65)
    with pytest.raises(BadInputError, match="holds 64 shuffles at a time"):
        Master(cluster.master).check(2)


def test_other_machines_reach_no_service(cluster, run):
    ports = _listening(_descendants(cluster.pid))
    assert int(cluster.job_endpoint.split(":")[1]) in ports
    address = _own_address()
    for port in ports:
        assert _answer_of(address, port) == b"", port
    assert _answer_of("127.0.0.1", int(cluster.job_endpoint.split(":")[1]))
    run(cluster)  # still serves


def _own_address():
    """An address of this machine that is not loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing
        except OSError:
            pytest.skip("this machine has no network")
        return probe.getsockname()[0]


def _answer_of(host, port):
    try:
        with socket.create_connection((host, port), 5) as client:
            client.sendall(_PREFACE)
            return client.recv(9)
    except (ConnectionResetError, ConnectionRefusedError, BrokenPipeError):
        return b""


def _listening(pids):
    """The TCP ports on which processes listen."""
    return {
        each.laddr.port
        for each in psutil.net_connections("tcp")
        if each.status == psutil.CONN_LISTEN and each.pid in pids
    }


def _descendants(pid):
    found = psutil.Process(pid).children(recursive=True)
    return {each.pid for each in found} & _running()


def _running():
    status = {each.pid: each.info["status"] for each in psutil.process_iter(["status"])}
    return {pid for pid in status if status[pid] != psutil.STATUS_ZOMBIE}


def test_workers_are_forks_of_what_the_run_has_imported(cluster, tmp_path):
    engine = Engine("portable", 1, cluster.job_endpoint)
    session = fold.fold(engine, [0, 0], os.getsid, max, str(tmp_path))
    pids = _descendants(cluster.pid)
    assert session in pids  # that of the process that forks workers
    commands = [Path(f"/proc/{pid}/cmdline").read_text() for pid in pids]
    assert not any("worker_boot" in command for command in commands)


def test_nothing_outlives_an_interrupted_process_that_started_it(
    start_cluster, wait_until
):
    """`test_kills.py` kills one."""
    with start_cluster(1, 1) as cluster:
        pids = _descendants(cluster.pid)
        # Fork server, workers' parent, host, JobManager, TaskManager, job server.
        assert len(pids) == 6
        os.kill(cluster.pid, signal.SIGINT)
        wait_until(lambda: not pids & _running())


@pytest.fixture
def starter(installed, tmp_path):
    """A process that starts a cluster of one TaskManager, and has imported little."""
    with subprocess.Popen(
        [sys.executable, "-c", _STARTER, str(tmp_path / "logs")],
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        process.master = process.stdout.readline().strip()
        assert process.master
        yield process
        process.kill()


def test_dead_task_manager_is_replaced_and_nothing_outlives_the_host(
    starter, wait_until, tmp_path
):
    """The host is the process in between; the parent of workers is none of its own."""
    host = _pid_of(starter, "strategos.components.shards.flink.host")
    assert _pid_of(starter, "strategos.components.shards.worker_boot")
    assert len(_descendants(starter.pid)) == 5
    master = Master(starter.master)
    (before,) = master.get("/taskmanagers")["taskmanagers"]
    os.kill(_pid_of(starter, "TaskManagerRunner"), signal.SIGKILL)
    wait_until(lambda: before["id"] not in _task_managers(master))
    wait_until(lambda: len(_task_managers(master)) == 1)
    assert "taskmanager-1 ended (SIGKILL)" in (tmp_path / "logs/host.log").read_text()
    pids = {host, *_descendants(host)}
    assert len(pids) == 4  # with JobManager, TaskManager, job server
    os.kill(host, signal.SIGKILL)
    wait_until(lambda: not pids & _running())


def _task_managers(master):
    return [each["id"] for each in master.get("/taskmanagers")["taskmanagers"]]


def _pid_of(process, part):
    (found,) = (
        pid
        for pid in _descendants(process.pid)
        if part in Path(f"/proc/{pid}/cmdline").read_text()
    )
    return found
