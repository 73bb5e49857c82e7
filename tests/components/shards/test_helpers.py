"""Threads of a fold that go on in processes: the same results, and nothing is left."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import psutil
import pytest

from strategos.components import events, fork_server
from strategos.components.errors import UserError
from strategos.components.shards import fold as folds
from strategos.components.shards import helpers, progress, threads
from strategos.components.shards.engine import Engine

MIB = 1 << 20


@pytest.fixture
def server(monkeypatch):
    """A fork server; threads get helpers at once."""
    monkeypatch.setattr(fork_server, "_channel", None)
    with monkeypatch.context() as plain:  # the fork's output is not pytest's
        plain.setattr(sys, "stdout", sys.__stdout__)
        plain.setattr(sys, "stderr", sys.__stderr__)
        fork_server.start()
    monkeypatch.setattr(threads, "_PACE_SECONDS", 0.0)
    monkeypatch.setattr(threads, "_LEAST_SECONDS", 0.0)


@pytest.fixture
def fold(server, tmp_path):
    """Folds shards in three threads, two of which have helpers."""

    def call(shards, work, merge=join):
        return folds.fold(Engine(workers=3), shards, work, merge, str(tmp_path))

    return call


def join(earlier, later):
    return earlier + later


def which_process(shard):
    time.sleep(0.02)
    return [(shard, os.getpid(), os.environ.get("A_TEST"), sys.path)]


def test_results_are_in_order_and_most_come_from_helpers(fold, monkeypatch):
    monkeypatch.setenv("A_TEST", "ä = 1")
    monkeypatch.setattr(sys, "path", [*sys.path, "/of/a/test"])
    found = fold(range(40), which_process)
    assert [shard for shard, *_ in found] == list(range(40))
    pids = [pid for _, pid, *_ in found]
    assert len(set(pids)) == 3
    assert pids.count(os.getpid()) < 25
    assert {(variable, path[-1]) for *_, variable, path in found} == {
        ("ä = 1", "/of/a/test")
    }
    _await_end_of(set(pids) - {os.getpid()}, time.monotonic() + 10)


class Work:
    """Work that has something to load in each process."""

    def __call__(self, shard):
        time.sleep(0.02)
        self.loaded = getattr(self, "loaded", None) or f"{os.getpid()}, {shard}"
        return [self.loaded]

    def __reduce__(self):
        return Work, ()


def test_what_work_loads_is_kept_from_shard_to_shard(fold):
    assert len(set(fold(range(40), Work()))) == 3


def thirty_is_bad(shard):
    time.sleep(0.02)
    if shard == 30:
        raise UserError("is bad", key="data.examples", received=str(shard))
    for _ in range(6000 if shard > 30 else 0):  # a large shard: a minute
        progress.add(1)
        time.sleep(0.01)
    return [os.getpid()]


# In a process of its own: a fork of one that has executed TensorFlow hangs in it.
THREADS = """
import os, time

def threads(shard):
    import tensorflow as tf
    time.sleep(0.02)
    before = len(os.listdir("/proc/self/task"))
    tf.reduce_sum(tf.ones((1000, 1000))).numpy()
    return [(os.getpid(), len(os.listdir("/proc/self/task")) - before)]

if __name__ == "__main__":
    import operator, sys, threads_of_tensorflow
    from strategos.components import fork_server
    from strategos.components.shards import fold
    from strategos.components.shards.engine import Engine

    fork_server.start()
    work = threads_of_tensorflow.threads
    found = fold.fold(Engine(workers=2), range(20), work, operator.add, sys.argv[1])
    print(max(number for pid, number in found if pid != os.getpid()))
"""


def test_tensorflow_in_a_helper_has_one_thread(warm_tensorflow, tmp_path):
    folder = str(tmp_path)
    (tmp_path / "threads_of_tensorflow.py").write_text(THREADS)
    forks = [
        warm_tensorflow.script(THREADS, folder, PYTHONPATH=folder, **variables)
        for variables in ({"TF_NUM_INTRAOP_THREADS": "5"}, {})
    ]
    five, one = (int(fork.output()) for fork in forks)
    assert five == one + 4


def gpus_of(shard):
    return [(os.getpid(), os.environ.get("CUDA_VISIBLE_DEVICES"))]


def test_helpers_see_no_gpu(fold, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    found = set(fold(range(40), gpus_of))
    assert (os.getpid(), "0") in found
    assert {gpus for pid, gpus in found if pid != os.getpid()} == {"-1"}


def test_many_shards_get_helpers_at_once(fold, monkeypatch):
    monkeypatch.setattr(threads, "_LEAST_SECONDS", math.inf)
    found = fold(range(23), which_process)
    assert {pid for _, pid, *_ in found} == {os.getpid()}
    found = fold(range(24), which_process)
    processes = [pid for _, pid, *_ in found]
    assert len(set(processes)) == 3
    assert processes.count(os.getpid()) < 12


def test_many_shards_of_paced_work_get_helpers_by_its_pace_only(
    server, tmp_path, monkeypatch
):
    def found():
        folder, engine = str(tmp_path), Engine(workers=3)
        done = folds.fold(engine, range(24), which_process, join, folder, paced=True)
        return {pid for _, pid, *_ in done}

    assert len(found()) > 1
    monkeypatch.setattr(threads, "_LEAST_SECONDS", math.inf)
    assert found() == {os.getpid()}


def test_error_of_a_helper_has_its_fields_and_ends_the_others(fold):
    began = time.monotonic()
    with pytest.raises(UserError) as error:
        fold(range(40), thirty_is_bad)
    assert (error.value.key, error.value.received) == ("data.examples", "30")
    assert time.monotonic() - began < 30
    fold(range(6), which_process)  # the server serves on


class TwoPartsError(Exception):
    def __init__(self, what, where):
        super().__init__(f"{what} in {where}")


def fails_elsewhere(parent):
    if os.getpid() == parent:
        time.sleep(0.1)
        return []
    raise TwoPartsError("bad", "a column")


def opens_nothing(parent):
    if os.getpid() == parent:
        time.sleep(0.1)
        return []
    raise FileNotFoundError(2, "No such file", "a.csv")


def test_exceptions_of_user_code_keep_message_and_traceback(fold):
    with pytest.raises(RuntimeError, match="^TwoPartsError: bad in a column$") as error:
        fold([os.getpid()] * 9, fails_elsewhere)
    assert "in fails_elsewhere" in str(error.value.__cause__)
    with pytest.raises(FileNotFoundError, match=r"a\.csv"):  # no lost connection
        fold([os.getpid()] * 9, opens_nothing)


def dies_elsewhere(parent):
    if os.getpid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.1)
    return []


def test_killed_helper_is_one_clear_error(fold):
    with pytest.raises(UserError, match=r"worked on data was killed by SIGKILL\. \w"):
        fold([os.getpid()] * 9, dies_elsewhere)


def counts(shard):
    for _ in range(10):
        progress.add(7)
        time.sleep(0.005)
    return [os.getpid()]


def test_rows_of_helpers_are_counted(fold, monkeypatch):
    seen = []
    monkeypatch.setattr(events, "PROGRESS_SECONDS", 0.0)
    monkeypatch.setattr(events, "emit", lambda kind, **how: seen.append(how["rows"]))
    progress.begin(None)
    assert len(set(fold(range(20), counts))) == 3
    assert seen[-1] == 20 * 70


def test_without_a_server_threads_work_on(tmp_path, monkeypatch):
    monkeypatch.setattr(fork_server, "_channel", None)
    monkeypatch.setattr(threads, "_PACE_SECONDS", 0.0)
    found = folds.fold(Engine(workers=3), range(9), which_process, join, str(tmp_path))
    assert [(shard, pid) for shard, pid, *_ in found] == [
        (shard, os.getpid()) for shard in range(9)
    ]


def test_short_work_starts_no_helper(server, tmp_path, monkeypatch):
    monkeypatch.setattr(threads, "_PACE_SECONDS", 60.0)
    found = folds.fold(Engine(workers=3), range(9), which_process, join, str(tmp_path))
    assert {pid for _, pid, *_ in found} == {os.getpid()}


def test_memory_of_the_run_bounds_the_helpers():
    assert Engine(memory=1_000 * MIB).helpers == 0
    assert Engine(memory=2_000 * MIB).helpers == 1
    assert Engine(memory=16_000 * MIB).helpers > 20


def test_helpers_end_with_the_process_that_is_killed(tmp_path):
    (tmp_path / "work.py").write_text(
        "import os, time\n"
        "def work(parent):\n"
        "    open(f'pids/{os.getpid()}', 'w').close()\n"
        "    time.sleep(0.1 if os.getpid() == parent else 60)\n"
        "    return 0\n"
    )
    (tmp_path / "pids").mkdir()
    code = """
        import os
        from strategos.components import fork_server
        from strategos.components.shards import threads
        from work import work
        fork_server.start()
        threads._PACE_SECONDS = threads._LEAST_SECONDS = 0.0
        threads.fold([os.getpid()] * 600, work, max, 3, 2, 32)
    """
    command = [sys.executable, "-c", textwrap.dedent(code)]
    process = subprocess.Popen(command, cwd=tmp_path)
    until = time.monotonic() + 60
    while len(pids := os.listdir(tmp_path / "pids")) < 3:
        assert time.monotonic() < until
        time.sleep(0.05)
    process.kill()
    process.wait()
    _await_end_of(pids, until)


def _await_end_of(pids, until):
    while any(map(_runs, pids)):
        assert time.monotonic() < until
        time.sleep(0.05)


def _runs(pid) -> bool:
    try:
        return psutil.Process(int(pid)).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_end_of_a_fold_does_not_wait_for_a_helper_at_work(server):
    helper = helpers.Helper.start(time.sleep)
    failed = []

    def ask():
        try:
            helper.work(60)
        except UserError as error:
            failed.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    time.sleep(0.2)
    helper.end()
    thread.join(10)
    assert not thread.is_alive()
    assert failed


def test_helper_that_starts_while_the_fold_ends_is_ended(server, monkeypatch):
    crew = threads._Crew(which_process, shards=100, workers=3, helpers=2)
    start, started = helpers.Helper.start, []

    def ended_meanwhile(work):
        helper = start(work)
        started.append(helper._process.pid)
        crew.end()
        return helper

    monkeypatch.setattr(helpers.Helper, "start", ended_meanwhile)
    with pytest.raises(UserError):
        crew.work(1)
    _await_end_of(started, time.monotonic() + 10)
