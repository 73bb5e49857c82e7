from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

from strategos.components import processes
from strategos.pipeline.interruption import Interruption
from strategos.pipeline.runners.executor_client import ExecutorClient


@pytest.mark.parametrize("sig", [signal.SIGINT, signal.SIGTERM])
def test_what_fails_after_an_interrupt_is_the_interrupt(sig):
    with pytest.raises(KeyboardInterrupt), Interruption() as interruption:
        try:
            signal.raise_signal(sig)
        except KeyboardInterrupt:  # as a library may
            raise AttributeError("half made") from None
    assert interruption.came


def test_what_fails_of_itself_stays_what_it_is():
    with pytest.raises(AttributeError), Interruption() as interruption:
        raise AttributeError("a fault")
    assert not interruption.came


def test_interrupt_at_any_moment_of_its_start_leaves_no_executor_process(tmp_path):
    lines = _lines_of(ExecutorClient._start)
    assert len(lines) > 5
    before = _living_children()
    for line in lines:
        client = ExecutorClient(tmp_path / "log.txt", tmp_path / "events.jsonl")
        sys.settrace(_interrupt_before(line, ExecutorClient._start))
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


def _living_children() -> set[int]:
    # What other tests have left this process with may be there, or be a zombie.
    return {pid for pid in processes.children() if _lives(pid)}


def _lives(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"
