"""The cluster's own life: nothing of it stays on the machine."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
import time
from pathlib import Path

import pytest
from kubernetes_cluster import Kubernetes
from server import skipping

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]


def processes_of(state):
    """Ids of the processes whose command or environment names a cluster's state."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # ended in the meantime
            traces = (process / "cmdline").read_bytes()
            traces += (process / "environ").read_bytes()
            if bytes(state) in traces and int(process.name) != os.getpid():
                found.append(int(process.name))
    return found


def namespaces(processes):
    """The namespaces of processes."""
    found = set()
    for process in processes:
        with contextlib.suppress(OSError):
            links = Path(f"/proc/{process}/ns").iterdir()
            found |= {os.readlink(link) for link in links}
    return found


def processes():
    """All processes that have not ended, as PID and start time."""
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # ended in the meantime
            fields = (process / "stat").read_text().rpartition(")")[2].split()
            if fields[0] != "Z":
                found.add((process.name, fields[19]))
    return found


def members(spaces):
    """The processes in namespaces.

    Not for those that have ended: a namespace's number is soon another's, such as that
    of a container of another test's cluster.
    """
    return {each for each in processes() if spaces & namespaces([each[0]])}


def traces():
    """Mounts, interfaces and packet filter rules of this machine."""
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    interfaces = [path.name for path in Path("/sys/class/net").iterdir()]
    rules = subprocess.run(["iptables-save"], capture_output=True, text=True).stdout
    rules = [line for line in rules.splitlines() if line.startswith("-A")]
    return {*mounts, *interfaces, *rules}


def control_groups():
    """The control groups of containers and servers, with their processes."""
    found = {}
    for path, *_ in os.walk("/sys/fs/cgroup"):  # without those that end meanwhile
        group = Path(path)
        if group.parent.name == "k8s.io" or group.name == "strategos-cluster":
            with contextlib.suppress(OSError):
                found[group] = (group / "cgroup.procs").read_text()
    return found


def pods(groups):
    """Those of the control groups that are of containers."""
    return {group for group in groups if group.parent.name == "k8s.io"}


@pytest.fixture
def state():
    """A folder with a path short enough for sockets."""
    with tempfile.TemporaryDirectory(prefix="cluster-") as folder:
        yield Path(folder)
        Kubernetes(state=Path(folder)).down()  # after a failure


def test_cluster_whose_starter_was_killed_is_ended_without_a_trace(state):
    cluster, before, groups = Kubernetes(state=state), traces(), control_groups()
    with skipping():
        cluster.require_built()
    starter = subprocess.Popen(
        cluster.command("up"),
        env=cluster.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    lines = []
    while not any("node ready" in line for line in lines):
        lines.append(starter.stdout.readline())
        assert lines[-1], "".join(lines) + cluster.log_ends()
    starter.kill()
    starter.wait()
    inside = namespaces(processes_of(state)) - namespaces([os.getpid()])
    assert members(inside)  # the cluster goes on
    until = time.monotonic() + 120
    while not pods(control_groups().keys() - groups):  # the pods come up
        assert time.monotonic() < until, cluster.log_ends()
        time.sleep(0.1)
    parts = members(inside)
    assert cluster.call("down").returncode == 0
    assert not parts & processes()
    assert not processes_of(state)
    assert traces() <= before
    # Those that are new and in use, or soon will be, are another cluster's.
    until = time.monotonic() + 60
    while left := {g for g, used in control_groups().items() if not used} - {*groups}:
        assert time.monotonic() < until, left
        time.sleep(0.1)
    assert not list(state.rglob("cluster"))
    assert cluster.call("run", "true").returncode == 2


def test_folder_with_too_long_a_path_is_one_message(tmp_path):
    done = Kubernetes(state=tmp_path / ("x" * 60)).call("up")
    assert done.returncode == 2
    assert "XDG_STATE_HOME" in done.stderr or "this machine lacks" in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.iterdir())


def test_programs_that_cannot_be_downloaded_are_missing_things(tmp_path):
    cluster = Kubernetes(state=tmp_path)
    cluster.environment |= {
        "STRATEGOS_CACHE": str(tmp_path / "cache"),
        "GOMODCACHE": str(tmp_path / "modules"),
        "GOPROXY": "http://127.0.0.1:1",
    }
    done = cluster.call("build")
    assert done.returncode == 2  # Makefile: then tests are skipped
    assert "this machine lacks" in done.stderr or "refused" in done.stderr
    assert "Traceback" not in done.stderr


def test_build_ends_at_its_limit(tmp_path):
    cluster = Kubernetes(state=tmp_path)
    cluster.environment["STRATEGOS_CACHE"] = str(tmp_path)
    done = cluster.call("build", "--limit", "0.5")
    assert done.returncode == 2
    assert "this machine lacks" in done.stderr or "within 0.5 s" in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.rglob("go-build-*"))
    assert not processes_of(tmp_path)
