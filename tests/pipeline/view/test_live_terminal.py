"""The live view in a real terminal: its screen after resizes, keys and Ctrl-C."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time

import pytest

_NODES = [
    *("ExampleGen", "ImportSchemaGen", "StatisticsGen", "ExampleValidator"),
    *("AnomalyGate", "Transform", "Trainer", "BaselineModel", "Evaluator"),
    *("EvaluationGate", "InfraValidator", "Pusher"),
]
_VIEW = """
import sys, time, pathlib
from strategos.pipeline.view import report
print("before")
try:
    with report.LiveView(sys.argv[1]):
        print("printed")
        while not pathlib.Path(sys.argv[2]).exists():
            time.sleep(0.01)
except KeyboardInterrupt:
    pass
print("after")
time.sleep(600)
"""
_LEFT = ["before", "printed", "after"]
pytestmark = pytest.mark.skipif(not shutil.which("tmux"), reason="tmux is missing")


class Window:
    """A live view in a terminal of tmux."""

    def __init__(self, folder, width, height):
        self._events, self._end = folder / "events.jsonl", folder / "end"
        self._tmux = ["tmux", "-f", "/dev/null", "-S", str(folder / "tmux")]
        script = folder / "view.py"
        script.write_text(_VIEW)
        command = [sys.executable, str(script), str(self._events), str(self._end)]
        size = ["-x", str(width), "-y", str(height)]
        self.tmux("new-session", "-d", *size, *command)
        self.emit("run_started", run_id="1", pipeline="flights", nodes=_NODES)
        self.wait_for("run 1")

    def tmux(self, *words):
        environment = {**os.environ, "LC_ALL": "C.UTF-8", "TERM": "xterm-256color"}
        for name in ("LINES", "COLUMNS"):  # readline exports them to pytest's workers
            environment.pop(name, None)
        return subprocess.run(
            [*self._tmux, *words],
            capture_output=True,
            text=True,
            check=True,
            env=environment,
        ).stdout

    def emit(self, event, **fields):
        record = {"event": event, "time": time.time(), **fields}
        with self._events.open("a") as file:
            file.write(json.dumps(record) + "\n")

    def run_node(self, name, message=""):
        for node in _NODES[: _NODES.index(name)]:
            self.emit("node_finished", node=node, state="complete", seconds=1.0)
        self.emit("node_started", node=name)
        self.emit("progress", node=name, message=message or f"at work in {name}")
        self.wait_for(f"at work in {name}")

    def resize(self, width, height):
        self.tmux("resize-window", "-x", str(width), "-y", str(height))
        time.sleep(0.5)  # some frames

    def lines(self):
        """The terminal's screen with its history, not in the midst of a frame."""
        shown, before = self._captured(), None
        while shown != before:
            time.sleep(0.02)
            shown, before = self._captured(), shown
        return shown

    def _captured(self):
        text = self.tmux("capture-pane", "-p", "-S", "-")
        return [line.rstrip() for line in text.rstrip().splitlines()]

    def wait_for(self, text):
        deadline = time.monotonic() + 15
        while text not in "\n".join(self.lines()):
            assert time.monotonic() < deadline, "\n".join(self.lines())
            time.sleep(0.05)

    def end(self):
        self._end.touch()
        self.wait_for("after")
        return self.lines()


@pytest.fixture
def window(tmp_path):
    opened = []

    def open_window(width=100, height=24):
        opened.append(Window(tmp_path, width, height))
        return opened[0]

    yield open_window
    for each in opened:
        each.tmux("kill-server")


def test_nothing_stays_after_ctrl_c(window):
    shown = window()
    shown.run_node("Trainer", "at work in Trainer " + "x" * 100)
    shown.tmux("send-keys", "C-c")
    shown.wait_for("after")
    assert shown.lines() == _LEFT


@pytest.mark.parametrize("sizes", [[(50, 24)], [(100, 10)], [(50, 10), (120, 30)]])
def test_nothing_stays_after_the_window_was_resized(window, sizes):
    shown = window()
    shown.run_node("Trainer", "at work in Trainer " + "x" * 100)
    for size in sizes:
        shown.resize(*size)
    assert len([line for line in shown.lines() if "ExampleGen" in line]) <= 1
    assert shown.end() == _LEFT


def test_warnings_and_what_is_printed_stay_above_the_table(window):
    shown = window(60, 10)
    warnings = [f"warning: Trainer: slow disk {'y' * 50} {n}" for n in range(4)]
    for number, line in enumerate(warnings):
        shown.emit("warning", node="Trainer", message=line.partition("Trainer: ")[2])
        shown.wait_for(line[-9:])
        shown.run_node(_NODES[number + 3])
    # The terminal keeps or drops the blank at which a line wraps.
    joined = "".join(shown.end()).replace(" ", "")
    expected = "".join(["before", "printed", *warnings, "after"])
    assert joined == expected.replace(" ", "")


def test_the_terminal_is_given_back_as_it_was(window):
    shown = window()
    assert shown.tmux("display", "-p", "#{cursor_flag}") == "0\n"
    shown.end()
    assert shown.tmux("display", "-p", "#{cursor_flag}") == "1\n"
    shown.tmux("send-keys", "echoed")
    shown.wait_for("echoed")


def test_typed_lines_leave_the_table_as_it_is(window):
    shown = window()
    shown.run_node("Trainer")
    for _ in range(3):
        shown.tmux("send-keys", "ls", "Enter")
        time.sleep(0.2)
    assert shown.end() == _LEFT


@pytest.mark.parametrize("node", [_NODES[0], _NODES[6], _NODES[-1]])
@pytest.mark.parametrize("height", [10, 4, 2])
def test_the_running_node_is_in_sight_of_a_small_window(window, node, height):
    shown = window(60, height)
    shown.run_node(node)
    assert f"at work in {node}" in "\n".join(shown.lines())
    assert shown.end() == _LEFT
