"""The error for a killed process, if memory ran out and if not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from strategos.components.limits.oom import OomKills

REMEDY = "use less"
LIMIT = 128 << 20
# Joins the control group, then runs a gang whose task fills the memory or is killed.
GANG = """
import os, signal, sys
from strategos.components.trainer.distribution.environment import ClusterSpec, Task
from strategos.components.trainer.gang import gang, watchdog

group, how = sys.argv[1:]
open(f"{group}/cgroup.procs", "w").write(str(os.getpid()))

def work(cluster, reporter, attempt):
    reporter.joined()
    kept = []
    while how == "fill":
        kept.append(b"x" * (8 << 20))
    os.kill(os.getpid(), signal.SIGKILL)

limits = watchdog.Limits(20, 20, max_restarts=0)
try:
    gang.run((Task("chief"),), lambda _: ClusterSpec(), work, limits)
except Exception as error:
    print(error)
"""


@pytest.fixture
def group():
    """A control group with little memory."""
    old, new = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")
    parent = old if old.is_dir() else new
    made = parent / f"strategos-{os.getpid()}"
    try:
        made.mkdir()
        limit = "memory.limit_in_bytes" if parent == old else "memory.max"
        (made / limit).write_text(str(LIMIT))
    except OSError as error:
        pytest.skip(f"no control group can be made here: {error}")
    yield made
    until = time.monotonic() + 10
    while (made / "cgroup.procs").read_text() and time.monotonic() < until:
        time.sleep(0.05)
    made.rmdir()


@pytest.mark.parametrize(
    ("how", "told"),
    [
        (
            "fill",
            "Memory ran out: the kernel ended 1 process(es) of this control group",
        ),
        ("kill", "The SIGKILL came from outside"),
    ],
)
def test_memory_is_blamed_only_if_the_kernel_says_so(group, how, told):
    done = subprocess.run(
        [sys.executable, "-c", GANG, str(group), how], capture_output=True, text=True
    )
    assert "was killed by SIGKILL" in done.stdout, done.stderr
    assert told in done.stdout


def _machine(root, vmstat=None, events=None, group="job"):
    (root / "proc" / "self").mkdir(parents=True, exist_ok=True)
    (root / "proc" / "self" / "cgroup").write_text("1:cpu:/x\n0::/job\n")
    if vmstat is not None:
        (root / "proc" / "vmstat").write_text(f"pgfault 9\noom_kill {vmstat}\n")
    if events is not None:
        folder = root / "sys" / "fs" / "cgroup" / group
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "memory.events").write_text(f"oom 7\noom_kill {events}\n")


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ({"vmstat": 1}, {"vmstat": 3}, "2 process(es) of this machine"),
        ({"vmstat": 1}, {"vmstat": 1}, "came from outside"),
        ({"events": 1}, {"events": 2}, "1 process(es) of this control group"),
        # A container sees only its own group, as the top one.
        ({"events": 1, "group": ""}, {"events": 3, "group": ""}, "2 process(es)"),
        # Another job on the machine ran out of memory, this one did not.
        ({"events": 1, "vmstat": 1}, {"events": 1, "vmstat": 2}, "came from outside"),
        ({}, {}, "does not report whether memory ran out"),
    ],
)
def test_the_nearest_counter_that_the_kernel_has_decides(tmp_path, before, after, told):
    _machine(tmp_path, **before)
    kills = OomKills(tmp_path)
    _machine(tmp_path, **after)
    assert told in kills.explain(REMEDY)


def test_a_kill_from_outside_is_told_on_this_machine():
    kills = OomKills()
    with subprocess.Popen(["sleep", "60"]) as process:
        process.send_signal(signal.SIGKILL)
    assert "came from outside" in kills.explain(REMEDY)
