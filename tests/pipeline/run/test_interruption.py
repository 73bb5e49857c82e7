from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time

import psutil
import pytest

from strategos.components import processes
from strategos.pipeline.run.interruption import Interruption
from strategos.pipeline.runners.executor_client import ExecutorClient

PREPARE = """
import os
import subprocess
from pathlib import Path

def prepare(folder):
    download = subprocess.Popen(["sleep", "300"])
    Path(folder, "pids").write_text(f"{os.getpid()} {download.pid}\\n")
    download.wait()
"""


@pytest.fixture(autouse=True)
def handlers():
    before = {sig: signal.getsignal(sig) for sig in (signal.SIGINT, signal.SIGTERM)}
    yield
    for sig, handler in before.items():
        signal.signal(sig, handler)


@pytest.mark.parametrize("sig", [signal.SIGINT, signal.SIGTERM])
def test_what_fails_after_an_interrupt_is_the_interrupt(sig):
    with pytest.raises(KeyboardInterrupt), Interruption() as interruption:
        try:
            signal.raise_signal(sig)
        except KeyboardInterrupt:  # as a library may
            raise AttributeError("half made") from None
    assert interruption.came


def test_interrupt_that_a_library_turns_into_an_error_of_its_own_is_one():
    """A signal before the run starts, for example while settings are read."""
    program = (
        "import signal; from strategos.pipeline import cli, commands\n"
        "def doctor(_):\n"
        "    try: signal.raise_signal(signal.SIGINT)\n"
        "    except KeyboardInterrupt: raise ValueError('half made') from None\n"
        "commands.doctor = doctor\n"
        "cli.main(['doctor'])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True)
    assert (done.returncode, done.stderr) == (130, b"strategos: interrupted\n")


def test_what_fails_of_itself_stays_what_it_is():
    with pytest.raises(AttributeError), Interruption() as interruption:
        raise AttributeError("a bug")
    assert not interruption.came


@pytest.mark.parametrize("second", [signal.SIGINT, signal.SIGTERM])
def test_signal_right_after_an_interrupt_disturbs_nothing(second):
    with pytest.raises(KeyboardInterrupt), Interruption():
        try:
            signal.raise_signal(signal.SIGINT)
        finally:
            signal.raise_signal(second)
            ended = "in order"
    assert ended == "in order"


def test_later_signal_interrupts_again():
    """The first signal may have been lost, or its handling may take too long."""
    times = iter([100.0, 110.0])
    with Interruption(clock=lambda: next(times)):
        for _ in range(2):
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)


def test_interrupt_where_nothing_can_be_raised_comes_again():
    class Callback:
        def __del__(self):
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt), Interruption():
        Callback()
        time.sleep(20)


def test_what_holds_signals_off_is_done_in_full():
    with Interruption() as interruption:
        with interruption.held_off():
            signal.raise_signal(signal.SIGTERM)
            done = True
        assert done
        assert interruption.came


def test_command_that_was_interrupted_can_still_be_interrupted_by_either_signal():
    with pytest.raises(KeyboardInterrupt), Interruption():
        signal.raise_signal(signal.SIGINT)
    assert callable(signal.getsignal(signal.SIGTERM))


@pytest.mark.parametrize(
    ("sig", "code"),
    [
        pytest.param(signal.SIGINT, 130, marks=pytest.mark.long),
        (signal.SIGTERM, 130),
        pytest.param(signal.SIGKILL, -signal.SIGKILL, marks=pytest.mark.long),
    ],
)
def test_end_of_a_run_ends_the_making_of_its_data(workload, sig, code):
    shutil.rmtree(workload.parent / "data")
    workload.with_name("download.py").write_text(PREPARE)
    program = [sys.executable, "-m", "strategos.pipeline.cli"]
    run = subprocess.Popen(
        [*program, "run", workload, "--set", "data.prepare=download"],
        stderr=subprocess.PIPE,
        text=True,
    )
    pids = workload.with_name("pids")
    _wait_for(lambda: pids.exists() and pids.read_text().endswith("\n"), seconds=60)
    run.send_signal(sig)
    assert "Traceback" not in run.communicate(timeout=20)[1]
    assert run.returncode == code
    _wait_for(lambda: not any(map(_lives, map(int, pids.read_text().split()))), 10)


def test_interrupt_at_any_moment_of_its_start_leaves_no_executor_process(tmp_path):
    lines = _lines_of(ExecutorClient.start)
    assert len(lines) > 5
    before = _living_children()
    for line in lines:
        client = ExecutorClient(tmp_path / "log.txt", tmp_path / "events.jsonl")
        sys.settrace(_interrupt_before(line, ExecutorClient.start))
        with pytest.raises(KeyboardInterrupt), client:
            client.compile(None, None, {}, tmp_path / "ir")
        sys.settrace(None)
        assert not _living_children() - before


def _lines_of(function) -> list[int]:
    # Not the first, which is its head.
    return sorted({line for *_, line in function.__code__.co_lines() if line})[1:]


def _interrupt_before(line: int, function):
    def trace(frame, event, _):
        if frame.f_code is not function.__code__:
            return None
        if event == "line" and frame.f_lineno == line:
            raise KeyboardInterrupt
        return trace

    return trace


def _wait_for(condition, seconds):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"not true after {seconds} s"
        time.sleep(0.05)


def _living_children() -> set[int]:
    # Children of earlier tests may still exist, or be zombies.
    return {pid for pid in processes.children() if _lives(pid)}


def _lives(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
