"""The cluster's own life: nothing of it stays on the machine."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

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


def in_use(spaces):
    """Those of the namespaces that have processes."""
    processes = (path.name for path in Path("/proc").glob("[0-9]*"))
    return spaces & namespaces(processes)


def traces():
    """Mounts, interfaces and packet filter rules of this machine."""
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    interfaces = [path.name for path in Path("/sys/class/net").iterdir()]
    rules = subprocess.run(["iptables-save"], capture_output=True, text=True).stdout
    rules = [line for line in rules.splitlines() if line.startswith("-A")]
    return {*mounts, *interfaces, *rules}


def control_groups():
    """The control groups of containers, with their processes."""
    found = {}
    for file in Path("/sys/fs/cgroup").glob("**/k8s.io/*/cgroup.procs"):
        with contextlib.suppress(OSError):  # ended in the meantime
            found[file.parent] = file.read_text()
    return found


@pytest.fixture
def state(make_cluster):
    """A folder with a path short enough for sockets."""
    with tempfile.TemporaryDirectory(prefix="cluster-") as folder:
        yield Path(folder)
        make_cluster(Path(folder)).call("down")  # after a failure


def test_cluster_whose_starter_was_killed_is_ended_without_a_trace(make_cluster, state):
    cluster, before, groups = make_cluster(state), traces(), control_groups()
    done = cluster.call("build")
    if done.returncode == 2:
        pytest.skip(done.stderr.strip())
    starter = subprocess.Popen(
        cluster.command("up"),
        env=cluster.environment,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert any("node ready" in line for line in starter.stdout)
    starter.kill()
    starter.wait()
    inside = namespaces(processes_of(state)) - namespaces([os.getpid()])
    assert in_use(inside)  # the cluster goes on
    until = time.monotonic() + 120
    while not control_groups().keys() - groups:  # the pods come up
        assert time.monotonic() < until
        time.sleep(0.1)
    assert cluster.call("down").returncode == 0
    assert not in_use(inside)
    assert not processes_of(state)
    assert not traces() - before
    # Those that are new and in use are another cluster's.
    now = control_groups()
    assert all(now[group] for group in now.keys() - groups)
    assert not list(state.rglob("cluster"))
    assert cluster.call("run", "true").returncode == 2


def test_folder_with_too_long_a_path_is_one_message(make_cluster, tmp_path):
    done = make_cluster(tmp_path / ("x" * 60)).call("up")
    assert done.returncode == 2
    assert "XDG_STATE_HOME" in done.stderr or "this machine lacks" in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.iterdir())


def test_programs_that_cannot_be_downloaded_are_missing_things(make_cluster, tmp_path):
    cluster = make_cluster(tmp_path)
    cluster.environment |= {
        "STRATEGOS_CACHE": str(tmp_path / "cache"),
        "GOMODCACHE": str(tmp_path / "modules"),
        "GOPROXY": "http://127.0.0.1:1",
    }
    done = cluster.call("build")
    assert done.returncode == 2  # Makefile: then tests are skipped
    assert "this machine lacks" in done.stderr or "refused" in done.stderr
    assert "Traceback" not in done.stderr
