"""The live view of a run, in a terminal and in a file."""

from __future__ import annotations

import io
import json
import re
import time

import pytest
from rich.console import Console

from strategos.components.errors import GateStoppedError, UserError
from strategos.pipeline.view import live, report, terminal

_START = 1_795_278_914.0
_NODES = ["ExampleGen", "StatisticsGen", "Trainer", "Evaluator"]


class Script:
    """An event file like a run's, with times that the test sets."""

    def __init__(self, path):
        self.path = path

    def __call__(self, event, at=0.0, **fields):
        record = {"event": event, "time": _START + at, **fields}
        with self.path.open("a") as file:
            file.write(json.dumps(record) + "\n")


@pytest.fixture
def emit(tmp_path):
    return Script(tmp_path / "events.jsonl")


def plain(path, now=0):
    """The output of a live view in a file, without the time of each line."""
    file = io.StringIO()
    console = terminal.console(file)
    with report.LiveView(path, console=console, clock=lambda: _START + now):
        pass
    return [line[9:] for line in file.getvalue().splitlines()]


def in_terminal(path, now, width=80):
    """The output of a live view in a terminal, and its frames that show a run."""
    file = io.StringIO()
    # Independent of the terminal that the test runs in.
    screen = dict(force_terminal=True, color_system=None, _environ={})
    console = Console(file=file, width=width, height=40, **screen)
    with report.LiveView(path, console=console, clock=lambda: _START + now):
        pass
    frames = re.findall("\x1b7(.*?)\x1b8", file.getvalue(), re.DOTALL)
    return file.getvalue(), [frame.replace("\r\x1b[B", "\n") for frame in frames]


def start(emit):
    emit("run_started", run_id="1", pipeline="flights", nodes=_NODES, runner="local")


def test_outside_a_terminal_each_thing_that_happens_is_a_line(emit):
    emit("note", message="compiling the pipeline")
    start(emit)
    emit("node_started", node="ExampleGen")
    emit("rows", 8, node="ExampleGen", rows=336_776, total=336_776)
    emit("node_finished", 8.1, node="ExampleGen", state="complete", seconds=8.1)
    emit("node_started", 8.2, node="StatisticsGen")
    emit("node_finished", 8.3, node="StatisticsGen", state="cached", seconds=0.1)
    emit("warning", 8.4, node="Trainer", message="slow disk")
    assert plain(emit.path) == [
        "compiling the pipeline",
        "flights, run 1",
        "ExampleGen     started",
        "ExampleGen     complete  8.1 s  336,776 rows",
        "StatisticsGen  started",
        "StatisticsGen  cached",
        "Trainer        warning: slow disk",
    ]


def test_lines_carry_the_local_time_of_their_event(emit):
    file = io.StringIO()
    emit("note", message="hello")
    with report.LiveView(emit.path, console=terminal.console(file)):
        pass
    clock = time.strftime("%H:%M:%S", time.localtime(_START))
    assert file.getvalue() == f"{clock} hello\n"


def test_progress_lines_of_a_node_are_ten_seconds_apart(emit):
    start(emit)
    emit("node_started", node="Trainer")
    for second in range(1, 25):
        emit("progress", second, node="Trainer", message=f"epoch {second}")
    assert plain(emit.path)[2:] == [
        "Trainer        epoch 10",
        "Trainer        epoch 20",
    ]


def test_progress_that_nothing_follows_is_shown_after_ten_seconds(emit):
    start(emit)
    emit("node_started", node="Trainer")
    emit("progress", 3, node="Trainer", message="Unschedulable")
    assert plain(emit.path, now=9)[2:] == []
    assert plain(emit.path, now=10)[2:] == ["Trainer        Unschedulable"]
    emit("node_finished", 5, node="Trainer", state="complete", seconds=5.0)
    assert plain(emit.path, now=60)[2:] == ["Trainer        complete  5.0 s"]


def test_node_that_no_longer_waits_has_no_line_without_a_text(emit):
    start(emit)
    emit("node_started", node="Trainer")
    emit("progress", 3, node="Trainer", message="Unschedulable")
    emit("progress", 4, node="Trainer", message="")
    assert plain(emit.path, now=60)[2:] == []


def test_rows_and_their_total_are_shown_while_a_node_runs(emit):
    start(emit)
    emit("node_started", node="ExampleGen")
    emit("rows", 11, node="ExampleGen", rows=120_000, total=336_776)
    assert plain(emit.path)[-1] == "ExampleGen     120,000 of 336,776 rows"


@pytest.mark.parametrize(
    ("kind", "word"), [(UserError, "failed"), (GateStoppedError, "stopped")]
)
def test_a_failure_is_reported_with_the_first_line_of_its_cause(emit, kind, word):
    start(emit)
    emit("node_started", node="Trainer")
    emit(
        "node_failed",
        2,
        node="Trainer",
        error=kind("model.py: no loss", remedy="Return one.").to_json(),
        seconds=2.0,
    )
    assert plain(emit.path)[-1] == (
        f"Trainer        {word} after 2.0 s: model.py: no loss"
    )


def test_a_long_message_stays_one_line_outside_a_terminal(emit):
    emit("warning", message="word " * 60)
    assert len(plain(emit.path)) == 1


def test_damaged_and_unfinished_lines_are_passed_over(emit):
    emit.path.write_text('nonsense\n{"event": 3}\n[]\n\n{"event": "note", "time": 1}\n')
    emit("note", message="still here")
    with emit.path.open("a") as file:
        file.write('{"event": "note", "ti')
    assert plain(emit.path)[-1] == "still here"


def test_a_missing_event_file_is_waited_for(tmp_path):
    assert plain(tmp_path / "not-yet.jsonl") == []


def test_what_is_written_while_the_view_is_open_is_shown(emit):
    file = io.StringIO()
    with report.LiveView(emit.path, console=terminal.console(file)):
        emit("note", message="early")
        deadline = time.monotonic() + 5
        while "early" not in file.getvalue() and time.monotonic() < deadline:
            time.sleep(0.01)
        assert "early" in file.getvalue()
        emit("note", message="late")
    assert file.getvalue().count("\n") == 2


def test_the_terminal_shows_all_nodes_with_state_time_and_rows(emit):
    start(emit)
    emit("node_started", node="ExampleGen")
    emit("rows", 2, node="ExampleGen", rows=336_776, total=336_776)
    emit("node_finished", 2.4, node="ExampleGen", state="complete", seconds=2.4)
    emit("node_finished", 2.5, node="StatisticsGen", state="cached", seconds=0.1)
    emit("node_started", 3, node="Trainer")
    emit("progress", 4, node="Trainer", message="epoch 2/5  auc 0.731 " + "x" * 80)
    _, frames = in_terminal(emit.path, now=15)
    lines = frames[-1].splitlines()
    assert "✓  ExampleGen        2.4 s  336,776 rows" in lines
    assert "✓  StatisticsGen    cached" in lines
    assert "·  Evaluator" in lines
    (trainer,) = [line for line in lines if "Trainer" in line]
    assert "Trainer            12 s  epoch 2/5  auc 0.731 xx" in trainer
    assert trainer.endswith("…") and len(trainer) <= 80


def test_outside_a_terminal_a_note_is_repeated_until_something_follows(emit):
    now = _START
    file = io.StringIO()
    view = live._Lines(terminal.console(file), lambda: now)
    view.show({"event": "note", "time": _START, "message": "compiling the pipeline"})
    for later in (5, 9, 11, 15, 20, 22):
        now = _START + later
        view.refresh()
    view.show({"event": "run_started", "time": _START + 23, "pipeline": "p"})
    now = _START + 60
    view.refresh()
    assert [line.partition(" ")[2] for line in file.getvalue().splitlines()] == [
        "compiling the pipeline",
        "compiling the pipeline: 11 s so far",
        "compiling the pipeline: 22 s so far",
        "p, run ",
    ]


def test_the_terminal_reports_what_it_waits_for_before_the_nodes_are_known(emit):
    emit("note", message="compiling the pipeline")
    written, _ = in_terminal(emit.path, now=3)
    assert "compiling the pipeline" in written
