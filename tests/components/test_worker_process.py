from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import psutil
import pytest

from strategos.components import fork_server, worker_process
from strategos.components.errors import GateStoppedError, Place, UserError
from strategos.components.worker_process import WorkerError

CHILD = """
import os, signal, subprocess, sys, time
from strategos.components.errors import GateStoppedError, Place
from strategos.components.worker_process import serve

def work(request):
    if request["do"] == "answer":
        print("thinking")
        about = {"parent": os.getppid(), "leads": os.getsid(0) == os.getpid()}
        about |= {"cwd": os.getcwd(), "main": __name__, "path": sys.path[0]}
        about |= {"tmp": os.environ["TMPDIR"], "handler": str(signal.getsignal(15))}
        return {"doubled": request["number"] * 2, **about}
    if request["do"] == "stop":
        place, key = Place("data.csv", 3), "trainer.epochs"
        fields = {"place": place, "key": key, "received": "0", "remedy": "Raise it."}
        raise GateStoppedError("not good enough", **fields)
    if request["do"] == "fail":
        raise KeyError("who")
    if request["do"] == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if request["do"] == "exit":
        os._exit(7)
    if request["do"] == "sleep":
        open(request["pids"], "w").write(f"{os.getpid()} {os.getppid()}.")
        time.sleep(60)

serve(work)
"""


@pytest.fixture(params=[pytest.param("cold", marks=pytest.mark.cold), "forked"])
def start(request, tmp_path, monkeypatch):
    """How workers start: `python -m`, or in a fork of a server."""
    (tmp_path / "worker_child.py").write_text(CHILD)
    monkeypatch.setattr(sys, "path", ["", str(tmp_path), *sys.path])
    monkeypatch.setattr(fork_server, "_channel", None)
    # With the seed that what uses TensorFlow sets for this process, workers start cold.
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    if request.param == "forked":
        with monkeypatch.context() as plain:  # the fork's output is not pytest's
            plain.setattr(sys, "stdout", sys.__stdout__)
            plain.setattr(sys, "stderr", sys.__stderr__)
            fork_server.start()
    return request.param


@pytest.fixture
def ask(start, tmp_path):

    def call(do, **request):
        env = {"PYTHONPATH": str(tmp_path)}
        return worker_process.run(
            "worker_child", {"do": do, **request}, name="child", env=env
        )

    return call


def _gone(pid: int, within: float) -> bool:
    until = time.monotonic() + within
    while time.monotonic() < until:
        try:  # it may be dead, although no process in this container waits for it
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.05)
    return False


def _wait_for(path: Path) -> list[int]:
    """The ids of a sleeping worker and its parent."""
    until = time.monotonic() + 30
    while not (path.exists() and path.read_text().endswith(".")):
        assert time.monotonic() < until
        time.sleep(0.05)
    return [int(word) for word in path.read_text().rstrip(".").split()]


def test_the_answer_comes_back_and_prints_come_with_a_prefix(ask, capfd):
    answer = ask("answer", number=21)
    assert answer["doubled"] == 42
    assert "[child] thinking" in capfd.readouterr().err
    assert not Path(answer["tmp"]).exists()


def test_a_worker_is_the_same_cold_and_forked(ask, start):
    first, second = ask("answer", number=1), ask("answer", number=2)
    for answer in (first, second):
        assert (answer["parent"] == os.getpid()) == (start == "cold")
        assert answer["cwd"] == answer["path"] == answer["tmp"]
        assert (answer["leads"], answer["main"]) == (True, "__main__")
        assert answer["handler"] == str(signal.SIG_DFL)
    assert first["tmp"] != second["tmp"]


@pytest.mark.parametrize("start", ["forked"], indirect=True)
def test_workers_start_cold_after_the_server_was_killed(ask):
    server = ask("answer", number=1)["parent"]
    assert server != os.getpid()  # which would be killed
    os.kill(server, signal.SIGKILL)
    os.waitpid(server, 0)
    for _ in range(2):
        assert ask("answer", number=1)["parent"] == os.getpid()


@pytest.mark.parametrize("start", ["forked"], indirect=True)
def test_a_worker_ends_with_its_server(ask, tmp_path):
    server = ask("answer", number=1)["parent"]
    assert server != os.getpid()  # which would be killed
    pids = tmp_path / "pids"
    killing = threading.Thread(
        target=lambda: _wait_for(pids) and os.kill(server, signal.SIGKILL)
    )
    killing.start()
    with pytest.raises(UserError, match="child process was killed"):
        ask("sleep", pids=str(pids))
    killing.join()
    assert _gone(_wait_for(pids)[0], within=10)


def test_an_error_of_ours_keeps_its_class_and_fields(ask, capfd):
    with pytest.raises(GateStoppedError) as stopped:
        ask("stop")
    error = stopped.value
    assert (error.message, error.key) == ("not good enough", "trainer.epochs")
    assert (error.place, error.remedy) == (Place("data.csv", 3), "Raise it.")
    assert str(error) == (
        "data.csv:3: trainer.epochs: received 0; not good enough\n    Raise it."
    )
    assert "Traceback" not in capfd.readouterr().err


def test_any_other_error_is_named_and_its_traceback_printed(ask, capfd):
    with pytest.raises(WorkerError, match="^KeyError: 'who'$"):
        ask("fail")
    assert "Traceback" in capfd.readouterr().err


def test_a_process_killed_from_outside_does_not_hint_at_memory(ask):
    message = r"child process was killed \(SIGKILL\)\. The SIGKILL came from outside"
    with pytest.raises(UserError, match=message):
        ask("die")


def test_a_process_that_ends_without_an_answer_is_told(ask):
    with pytest.raises(WorkerError, match="exit code 7, without an answer"):
        ask("exit")


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("prepare", ["", "fork_server.start()"])
def test_no_process_outlives_the_one_that_started_it(tmp_path, how, prepare):
    (tmp_path / "worker_child.py").write_text(CHILD)
    pids = tmp_path / "pids"
    parent = textwrap.dedent(
        f"""
        from strategos.components import fork_server, worker_process
        {prepare}
        request = {{"do": "sleep", "pids": {str(pids)!r}}}
        worker_process.run("worker_child", request, name="child")
        """
    )
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    process = subprocess.Popen(
        [sys.executable, "-c", parent],
        env=env,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    child, server = _wait_for(pids)
    os.killpg(process.pid, how)  # the server receives it too
    process.wait(10)
    assert _gone(child, within=10)
    assert _gone(server, within=10)


@pytest.mark.parametrize("swallowed", ["raise RuntimeError", "pass"])
def test_termination_that_a_library_replaces_by_an_exception_ends_the_process(
    swallowed,
):
    code = f"""
import os, signal
from strategos.components import worker_process

with worker_process.terminated_last():
    try:
        os.kill(os.getpid(), signal.SIGTERM)
    except BaseException:
        {swallowed}
print("went on")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (-signal.SIGTERM, "")
