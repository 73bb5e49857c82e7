from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from strategos.components import worker_process
from strategos.components.errors import GateStoppedError, Place, UserError
from strategos.components.worker_process import WorkerError

CHILD = """
import os, signal, subprocess, sys, time
from strategos.components.errors import GateStoppedError, Place
from strategos.components.worker_process import serve

def work(request):
    if request["do"] == "answer":
        print("thinking")
        return {"doubled": request["number"] * 2, "tmp": os.environ["TMPDIR"]}
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
        open(request["pids"], "w").write(str(os.getpid()))
        time.sleep(60)

serve(work)
"""


@pytest.fixture
def ask(tmp_path):
    (tmp_path / "worker_child.py").write_text(CHILD)

    def call(do, **request):
        env = {"PYTHONPATH": str(tmp_path)}
        return worker_process.run(
            "worker_child", {"do": do, **request}, name="child", env=env
        )

    return call


def _gone(pid: int, within: float) -> bool:
    until = time.monotonic() + within
    while time.monotonic() < until:
        try:
            stat = Path(f"/proc/{pid}/stat").read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            return True
        state = stat.rpartition(b")")[2].split()[0]
        if state == b"Z":  # dead, although no process in this container waits for it
            return True
        time.sleep(0.05)
    return False


def _wait_for(path: Path) -> int:
    until = time.monotonic() + 30
    while not (path.exists() and path.read_text()):
        assert time.monotonic() < until
        time.sleep(0.05)
    return int(path.read_text())


def test_the_answer_comes_back_and_prints_come_with_a_prefix(ask, capfd):
    answer = ask("answer", number=21)
    assert answer["doubled"] == 42
    assert "[child] thinking" in capfd.readouterr().err
    assert not Path(answer["tmp"]).exists()


def test_an_error_of_ours_keeps_its_class_and_fields(ask, capfd):
    with pytest.raises(GateStoppedError) as stopped:
        ask("stop")
    error = stopped.value
    assert (error.message, error.key) == ("not good enough", "trainer.epochs")
    assert (error.place, error.remedy) == (Place("data.csv", 3), "Raise it.")
    assert str(error) == (
        "data.csv:3: trainer.epochs: received 0, not good enough\n    Raise it."
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
def test_no_process_outlives_the_one_that_started_it(tmp_path, how):
    (tmp_path / "worker_child.py").write_text(CHILD)
    pids = tmp_path / "pids"
    parent = textwrap.dedent(
        f"""
        from strategos.components import worker_process
        request = {{"do": "sleep", "pids": {str(pids)!r}}}
        worker_process.run("worker_child", request, name="child")
        """
    )
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    process = subprocess.Popen(
        [sys.executable, "-c", parent], env=env, stderr=subprocess.DEVNULL
    )
    child = _wait_for(pids)
    process.send_signal(how)
    process.wait(10)
    assert _gone(child, within=10)
