from __future__ import annotations

import faulthandler
import json
import os
import signal
import time

import pytest

from strategos.components import events
from strategos.components.errors import GateStoppedError, UserError
from strategos.components.trainer.distribution.environment import ClusterSpec, Task
from strategos.components.trainer.gang import gang, heartbeat, watchdog

CHIEF, FIRST, SECOND, PS = (
    Task("chief"),
    Task("worker", 0),
    Task("worker", 1),
    Task("ps"),
)
LIMITS = watchdog.Limits(
    start_timeout=20, stall_timeout=20, max_restarts=1, save=5, farewell=0.5, echo=0.5
)


class UnavailableError(Exception):
    """Has the class name that TensorFlow uses for the loss of another task."""


def cluster_of(*tasks):
    def make(attempt):
        addresses = {}
        for number, task in enumerate(tasks):
            port = 1000 * (attempt + 1) + number
            addresses.setdefault(task.type, []).append(f"127.0.0.1:{port}")
        return ClusterSpec({kind: tuple(found) for kind, found in addresses.items()})

    return make


def run(work, *tasks, **limits):
    tasks = tasks or (CHIEF, FIRST)
    limits = watchdog.Limits(**{**vars(LIMITS), **limits})
    return gang.run(tasks, cluster_of(*tasks), work, limits)


def alive(path):
    """Whether a process still writes to `path`, as `tick` does."""
    before = path.stat().st_size
    time.sleep(0.2)
    return path.stat().st_size > before


def tick(path, reporter=None):
    """Works forever, and writes to a file."""
    while True:
        with open(path, "a") as file:
            file.write(".")
        if reporter:
            reporter.step(1)
        time.sleep(0.02)


def kill_self(sig=signal.SIGKILL):
    faulthandler.disable()  # pytest's own
    os.kill(os.getpid(), sig)
    time.sleep(60)


def test_each_task_knows_its_place_and_the_chief_answers(tmp_path, running, wait_for):
    def work(cluster, reporter, attempt):
        assert heartbeat.current() is reporter
        reporter.joined()
        seen = {"TF_CONFIG": os.environ["TF_CONFIG"], "pid": os.getpid()}
        (tmp_path / cluster.task.name).write_text(json.dumps(seen))
        for name in ("chief-0", "worker-0", "worker-1"):
            wait_for(tmp_path / name)
        return {"from": cluster.task.name, "attempt": attempt}

    answer = run(work, CHIEF, FIRST, SECOND)
    assert answer == {"from": "chief-0", "attempt": 0, "restarts": 0}
    seen = {path.name: json.loads(path.read_text()) for path in tmp_path.iterdir()}
    assert len({each["pid"] for each in seen.values()}) == 3
    assert json.loads(seen["worker-1"]["TF_CONFIG"]) == {
        "cluster": {
            "chief": ["127.0.0.1:1000"],
            "worker": ["127.0.0.1:1001", "127.0.0.1:1002"],
        },
        "task": {"type": "worker", "index": 1},
    }
    assert not any(running(each["pid"]) for each in seen.values())
    assert "TF_CONFIG" not in os.environ


def test_one_task_on_its_own_has_no_cluster_and_prints_as_it_is(capfd):
    def work(cluster, reporter, attempt):
        os.write(1, b"hello\n")
        return {"config": os.environ.get("TF_CONFIG"), "task": cluster.task}

    answer = gang.run((CHIEF,), lambda _: ClusterSpec(), work, LIMITS)
    assert answer == {"config": None, "task": None, "restarts": 0}
    assert "hello" in capfd.readouterr().out.splitlines()


def test_every_line_of_a_task_carries_its_name(capfd):
    def work(cluster, reporter, attempt):
        os.write(1, b"one\ntwo\n")
        os.write(2, b"three")
        return {}

    run(work)
    lines = capfd.readouterr().err.splitlines()
    for name in ("chief-0", "worker-0"):
        for text in ("one", "two", "three"):
            assert f"[{name}] {text}" in lines


def test_an_answer_of_any_size_comes_back():
    history = list(range(300_000))
    assert run(lambda *_: {"history": history})["history"] == history


def test_a_killed_task_ends_all_and_all_start_again_on_new_ports(
    tmp_path, capfd, wait_for
):
    def work(cluster, reporter, attempt):
        reporter.joined()
        if attempt == 1:
            return {"address": cluster.addresses["chief"][0]}
        if cluster.task == FIRST:
            wait_for(tmp_path / "ticks")
            kill_self()
        tick(tmp_path / "ticks")

    events.open_sink(str(tmp_path / "events"), node="Trainer")
    began = time.monotonic()
    answer = run(work)
    events.open_sink(None)
    assert answer == {"address": "127.0.0.1:2000", "restarts": 1}
    assert time.monotonic() - began < 30  # did not wait for the endless task
    assert not alive(tmp_path / "ticks")
    message = "worker-0 was killed by SIGKILL: restarting the gang (1 of 1)"
    assert message in capfd.readouterr().err.splitlines()
    assert message in (tmp_path / "events").read_text()


def test_a_users_error_is_reported_at_once_with_the_name_of_the_task(tmp_path):
    def work(cluster, reporter, attempt):
        (tmp_path / f"attempt-{attempt}").touch()
        if cluster.task == FIRST:
            raise GateStoppedError("model.py:3: wrong")
        tick(tmp_path / "ticks")

    with pytest.raises(GateStoppedError, match="^worker-0: model.py:3: wrong$"):
        run(work)
    assert [path.name for path in tmp_path.glob("attempt-*")] == ["attempt-0"]


def test_the_error_of_a_single_task_is_reported_unchanged():
    def work(*_):
        raise UserError("model.py:3: wrong")

    with pytest.raises(UserError, match="^model.py:3: wrong$"):
        gang.run((CHIEF,), lambda _: ClusterSpec(), work, LIMITS)


def test_a_task_that_does_not_join_in_time_is_named():
    def work(cluster, reporter, attempt):
        if cluster.task == SECOND:
            time.sleep(60)
        while True:
            reporter.alive()
            time.sleep(0.1)

    pattern = r"^Worker-1 did not join for 0.8 s\. .*start_timeout"
    with pytest.raises(UserError, match=pattern):
        run(work, CHIEF, FIRST, SECOND, start_timeout=0.8, max_restarts=0)


def test_a_gang_that_gets_further_is_restarted_more_often_than_max_restarts():
    def work(cluster, reporter, attempt):
        if attempt == 3:
            return {}
        reporter.step(attempt + 1)
        os.kill(os.getpid(), signal.SIGKILL)

    assert run(work, CHIEF, FIRST, max_restarts=1)["restarts"] == 3


def test_a_step_done_just_before_a_death_is_no_progress_of_the_restart(capfd):
    def work(cluster, reporter, attempt):
        for step in (1, 2) if attempt == 0 else (2,):  # resumes after the first
            reporter.step(step)
        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(UserError, match="restarted 1 time without progress"):
        run(work, CHIEF, FIRST, max_restarts=1)
    assert capfd.readouterr().err.count("restarting the gang") == 1


def test_a_hanging_task_is_noticed_dumped_and_all_start_again(capfd):
    def work(cluster, reporter, attempt):
        def hang_here():
            time.sleep(60)

        reporter.step(1)
        if attempt == 1:
            return {}
        if cluster.task == FIRST:
            hang_here()
        while True:
            reporter.step(2)
            time.sleep(0.05)

    assert run(work, stall_timeout=1)["restarts"] == 1
    log = capfd.readouterr().err
    assert "worker-0 did no step for 1 s: restarting the gang (1 of 1)" in log
    assert "hang_here" in log


def test_a_stopped_task_is_ended_as_well(tmp_path, running):
    def work(cluster, reporter, attempt):
        if attempt == 1:
            return {}
        reporter.step(1)
        if cluster.task == FIRST:
            (tmp_path / "stopped").write_text(str(os.getpid()))
            os.kill(os.getpid(), signal.SIGSTOP)
        tick(tmp_path / "ticks", reporter)

    assert run(work, stall_timeout=1)["restarts"] == 1
    assert not running(int((tmp_path / "stopped").read_text()))


def test_the_first_step_may_take_longer_than_others():
    def work(cluster, reporter, attempt):
        reporter.joined()
        time.sleep(0.8)
        reporter.step(1)
        return {}

    assert run(work, stall_timeout=0.3)["restarts"] == 0


def test_tasks_that_serve_a_coordinator_need_no_steps_and_are_ended(tmp_path):
    def work(cluster, reporter, attempt):
        reporter.joined()
        if cluster.task != CHIEF:
            tick(tmp_path / cluster.task.name)
        for step in range(20):
            reporter.step(step)
            time.sleep(0.1)
        return {"done": True}

    answer = run(work, CHIEF, FIRST, PS, stall_timeout=0.7)
    assert answer == {"done": True, "restarts": 0}
    assert not alive(tmp_path / "ps-0") and not alive(tmp_path / "worker-0")


def test_a_task_stays_until_the_chief_is_done(tmp_path, running, wait_for):
    def work(cluster, reporter, attempt):
        if cluster.task == FIRST:
            (tmp_path / "worker").write_text(str(os.getpid()))
            return {}
        worker = int(wait_for(tmp_path / "worker"))
        time.sleep(0.5)
        return {"there": running(worker)}

    assert run(work)["there"]


def test_the_chief_stays_until_the_others_are_done_but_not_for_ever(
    tmp_path, running, wait_for
):
    def work(cluster, reporter, attempt):
        if cluster.task == CHIEF:
            (tmp_path / "chief").write_text(str(os.getpid()))
            return {}
        chief = int(wait_for(tmp_path / "chief"))
        time.sleep(0.3)
        (tmp_path / "seen").write_text(str(running(chief)))
        tick(tmp_path / "ticks")

    began = time.monotonic()
    assert run(work, farewell=1) == {"restarts": 0}
    assert time.monotonic() - began < 30  # does not wait for the ticking task
    assert (tmp_path / "seen").read_text() == "True"
    assert not alive(tmp_path / "ticks")
