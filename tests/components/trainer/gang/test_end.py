"""The end of a gang on SIGTERM or after a failure: checkpoint and leftovers."""

from __future__ import annotations

import ctypes
import faulthandler
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from strategos.components import processes
from strategos.components.trainer.distribution.environment import ClusterSpec, Task
from strategos.components.trainer.gang import gang, watchdog
from strategos.components.trainer.gang.preemption import Preempted

CHIEF, FIRST = Task("chief"), Task("worker", 0)
CLUSTER = ClusterSpec({"chief": ("127.0.0.1:1000",), "worker": ("127.0.0.1:1001",)})
LIMITS = {"start_timeout": 20, "stall_timeout": 20, "max_restarts": 1, "save": 5}
PR_GET_CHILD_SUBREAPER = 37


def run(work, **limits):
    limits = watchdog.Limits(**{**LIMITS, "farewell": 0.5, "echo": 0.5, **limits})
    return gang.run((CHIEF, FIRST), lambda _: CLUSTER, work, limits)


def until_terminated(reporter, ready, save=lambda: None):
    """Works until SIGTERM, like a task that then saves a checkpoint."""
    asked = []
    signal.signal(signal.SIGTERM, lambda *_: asked.append(1))
    reporter.step(1)
    ready()
    while not asked:
        time.sleep(0.01)
    save()
    raise Preempted


def test_preemption_starts_the_gang_again_and_uses_up_no_restart(
    tmp_path, capfd, wait_for
):
    def work(cluster, reporter, attempt):
        path = tmp_path / f"chief-{attempt}"
        if attempt == 2:
            return {}
        if cluster.task == FIRST:
            os.kill(int(wait_for(path)), signal.SIGTERM)
            raise Preempted
        until_terminated(reporter, lambda: path.write_text(str(os.getpid())))

    assert run(work, max_restarts=0) == {"restarts": 2}
    assert "received SIGTERM and has saved" in capfd.readouterr().err


@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGINT])
def test_a_gang_saves_after_sigterm(tmp_path, sig, wait_for):
    def work(cluster, reporter, attempt):
        def ready():
            if cluster.task == CHIEF:
                wait_for(tmp_path / "ready")
                os.kill(os.getppid(), sig)
            (tmp_path / "ready").write_text("yes")

        def save():
            time.sleep(0.2)
            (tmp_path / f"saved-{cluster.task.name}").touch()

        until_terminated(reporter, ready, save)

    with pytest.raises(SystemExit) as end:
        run(work)
    assert end.value.code == 143
    assert len(list(tmp_path.glob("saved-*"))) == 2


def test_a_gang_that_does_not_end_after_sigterm_is_killed(tmp_path, running):
    def work(cluster, reporter, attempt):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        reporter.step(1)
        if cluster.task == CHIEF:
            time.sleep(0.3)
            os.kill(os.getppid(), signal.SIGTERM)
        (tmp_path / cluster.task.name).write_text(str(os.getpid()))
        time.sleep(60)

    began = time.monotonic()
    with pytest.raises(SystemExit):
        run(work, save=0.5)
    assert time.monotonic() - began < 30  # the gang did not wait for the sleeping task
    assert not running(int((tmp_path / "chief-0").read_text()))


def test_what_a_task_started_ends_with_it(tmp_path, running):
    def work(cluster, reporter, attempt):
        if attempt == 1:
            return {}
        if cluster.task == FIRST:
            child = subprocess.Popen(["sleep", "60"])
            (tmp_path / "child").write_text(str(child.pid))
            faulthandler.disable()  # pytest's own
            signal.raise_signal(signal.SIGKILL)
        time.sleep(60)

    assert run(work)["restarts"] == 1
    assert not running(int((tmp_path / "child").read_text()))


def test_no_task_outlives_a_killed_host(tmp_path, wait_for, running):
    host = f"""
        import os, sys, time
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        import test_end as t

        def work(cluster, reporter, attempt):
            path = t.Path({str(tmp_path)!r}) / cluster.task.name
            path.write_text(str(os.getpid()))
            time.sleep(60)

        t.run(work)
    """
    process = subprocess.Popen([sys.executable, "-c", textwrap.dedent(host)])
    pids = [int(wait_for(tmp_path / name, 30)) for name in ("chief-0", "worker-0")]
    process.kill()
    process.wait(10)
    until = time.monotonic() + 5
    while any(map(running, pids)) and time.monotonic() < until:
        time.sleep(0.05)
    assert not any(map(running, pids))


def test_a_gang_that_takes_too_long_to_save_is_not_reported_as_saved(capfd):
    def work(cluster, reporter, attempt):
        if attempt == 1:
            return {}
        reporter.step(1)
        if cluster.task == FIRST:
            raise Preempted
        time.sleep(60)  # writes a large checkpoint

    assert run(work, save=0.3, max_restarts=0) == {"restarts": 1}
    log = capfd.readouterr().err
    assert "no checkpoint within 0.3 s: the tasks are killed" in log
    assert "received SIGTERM and has not saved: restarting" in log


def test_sigterm_while_the_tasks_are_ended_is_noticed(monkeypatch):
    end_children = processes.end_children

    def end(*given):
        os.kill(os.getpid(), signal.SIGTERM)
        end_children(*given)

    monkeypatch.setattr(processes, "end_children", end)
    with pytest.raises(SystemExit) as ended:
        run(lambda *_: {"weights": "written"})
    assert ended.value.code == 143


def test_a_process_adopts_orphans_only_while_it_has_a_gang():
    def adopts():
        found = ctypes.c_int()
        ctypes.CDLL(None).prctl(PR_GET_CHILD_SUBREAPER, ctypes.byref(found), 0, 0, 0)
        return found.value

    limits = watchdog.Limits(**LIMITS)
    with gang.Gang((CHIEF,), lambda *_: {}, limits) as host:
        assert adopts() == 1
        assert host.attempt(ClusterSpec(), 0) == {}
    assert adopts() == 0
