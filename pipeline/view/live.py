"""The live view of a run: follows the run's event file.

In a terminal it draws a table and updates it; elsewhere it prints lines, for logs.
"""

from __future__ import annotations

import dataclasses
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from strategos.components import errors
from strategos.components.errors import ExitCode, first_line
from strategos.components.events import NewEvents
from strategos.components.wording import duration
from strategos.pipeline.view import terminal
from strategos.pipeline.view.frame import Frame

_SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_REFRESH = 0.125  # Seconds between two reads of the file, and two spinner frames.
_QUIET = 10.0  # Seconds between two progress lines of a node outside a terminal.
_NOTE = ""  # The key of notes among the names of nodes.


@dataclasses.dataclass
class NodeState:
    """The state of one node, as reported so far.

    Attributes:
      state: pending, running, complete, cached, failed or stopped.
      started: Unix seconds; None before the start.
      seconds: Duration; None before the end.
      rows: Number of rows processed; None if not reported.
      total: Number of rows to process; None if unknown.
      message: The last message that the node reported.
    """

    state: str = "pending"
    started: float | None = None
    seconds: float | None = None
    rows: int | None = None
    total: int | None = None
    message: str = ""

    def detail(self) -> str:
        """Rows and last message, as one line."""
        parts = []
        if self.rows is not None:
            of = f" of {self.total:,}" if self._has_more() else ""
            parts.append(f"{self.rows:,}{of} rows")
        if self.message:
            parts.append(self.message)
        return "  ".join(parts)

    def _has_more(self) -> bool:
        return self.total is not None and self.state == "running"


class RunProgress:
    """The state of a run, from its events.

    Attributes:
      run: Fields of the run's first event: run_id, pipeline, runner, …
      nodes: State by node, in the order in which they will run.
    """

    def __init__(self) -> None:
        self.run: dict[str, Any] = {}
        self.nodes: dict[str, NodeState] = {}

    def apply(self, event: dict[str, Any]) -> None:
        """Updates the state by one event; ignores unknown kinds."""
        kind = event.get("event")
        if kind == "run_started":
            self.run = event
            self.nodes = {name: NodeState() for name in event.get("nodes", ())}
        elif event.get("node"):
            node = self.nodes.setdefault(event["node"], NodeState())
            self._apply_to(node, kind, event)

    def _apply_to(self, node: NodeState, kind: str | None, event: dict) -> None:
        if kind == "node_started":
            node.state, node.started = "running", event["time"]
        elif kind == "node_finished":
            node.state, node.message = event.get("state", "complete"), ""
            node.seconds = event.get("seconds")
        elif kind == "node_failed":
            error = errors.from_json(event["error"])
            stopped = error.exit_code == ExitCode.STOPPED
            node.state = "stopped" if stopped else "failed"
            node.seconds = event.get("seconds")
            node.message = first_line(error)
        elif kind == "rows":
            node.rows, node.total = event.get("rows"), event.get("total")
        elif kind == "progress":
            node.message = first_line(event.get("message"))


class LiveView:
    """Shows a run from its event file: `with LiveView(path): …`.

    Leaving the block shows the rest of the file first. In a terminal the table is then
    erased; notes and warnings stay.
    """

    def __init__(
        self,
        events: str | Path,
        *,
        console: Console | None = None,
        clock: Callable[[], float] = time.time,
    ):
        """Reads and draws nothing before the block is entered.

        Args:
          events: The run's event file; it may not exist yet.
          console: Where to draw; standard error by default.
          clock: Returns Unix seconds.
        """
        console = console or terminal.console(sys.stderr)
        moving = console.is_terminal and not console.is_dumb_terminal
        self._view = (_Table if moving else _Lines)(console, clock)
        self._events = NewEvents(Path(events))
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)

    def __enter__(self) -> LiveView:
        self._view.start()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._done.set()
            self._thread.join()
        finally:
            self._view.stop()

    def _follow(self) -> None:
        while True:
            last = self._done.is_set()
            for event in self._events.read():
                self._view.show(event)
            self._view.refresh()
            if last:
                return
            self._done.wait(_REFRESH)


class _Table:
    """A table in a terminal, updated in place."""

    def __init__(self, console: Console, clock: Callable[[], float]):
        self._console, self._clock = console, clock
        self._progress = RunProgress()
        self._note = "starting"
        self._begun = clock()
        self._frame = Frame(console)

    def start(self) -> None:
        self._frame.start()

    def stop(self) -> None:
        self._frame.stop()

    def show(self, event: dict[str, Any]) -> None:
        self._progress.apply(event)
        message = first_line(event.get("message"))
        if event["event"] == "note":
            self._note = message
        elif event["event"] == "warning":
            where = f"{event['node']}: " if event.get("node") else ""
            self._console.print(Text(f"warning: {where}{message}", style="yellow"))

    def refresh(self) -> None:
        self._frame.update(self._draw())

    def _draw(self) -> Group:
        run, now = self._progress.run, self._clock()
        elapsed = duration(max(0.0, now - self._begun))
        if not run:
            return Group(_line(f"{self._spin(now)} {self._note}  {elapsed}"))
        head = _line(run.get("pipeline", ""), "bold")
        head.append(f"  {elapsed}  run {run.get('run_id', '')}", style="not bold dim")
        table = Table.grid(padding=(0, 2, 0, 0), expand=True)
        table.add_column(no_wrap=True, width=1)
        table.add_column(no_wrap=True)
        table.add_column(no_wrap=True, justify="right", min_width=8)
        table.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
        nodes = self._progress.nodes
        shown = _in_sight(nodes, self._console.height - 1)
        for name in shown:
            table.add_row(*self._row(name, nodes[name], now))
        if len(shown) == len(nodes):
            return Group(head, table)
        rest = _line(f"…  {len(nodes) - len(shown)} of {len(nodes)} nodes are hidden")
        return Group(head, table, rest)

    def _row(self, name: str, node: NodeState, now: float) -> tuple[Text, ...]:
        sign = terminal.symbol(node.state, self._console)
        spent, faint = duration(node.seconds), terminal.style(node.state)
        if node.state == "running":
            sign = Text(self._spin(now), style=faint)
            spent = duration(max(0.0, now - (node.started or now)))
        elif node.state == "cached":
            spent = "cached"
        quiet = faint if node.state in ("cached", "pending") else ""
        return sign, Text(name, quiet), Text(spent, quiet), Text(node.detail(), quiet)

    def _spin(self, now: float) -> str:
        if self._console.options.ascii_only:
            return "|/-\\"[int(now / _REFRESH) % 4]
        return _SPINNER[int(now / _REFRESH) % len(_SPINNER)]


def _line(text: str, style: str = "") -> Text:
    """Text that is cut at the edge of the window, not wrapped."""
    return Text(text, style, no_wrap=True, overflow="ellipsis")


def _in_sight(nodes: dict[str, NodeState], lines: int) -> list[str]:
    """Names of the nodes that fit into `lines` lines, the running one among them.

    If not all fit, one line is left free for the number of hidden nodes.
    """
    names = list(nodes)
    if len(names) <= lines:
        return names
    begun = [i for i, name in enumerate(names) if nodes[name].state != "pending"]
    running = [i for i in begun if nodes[names[i]].state == "running"]
    centre = (running or begun[-1:] or [0])[0]
    room = max(1, lines - 1)
    first = min(max(0, centre - room // 2), len(names) - room)
    return names[first : first + room]


class _Lines:
    """One line per event, for logs: `12:31:05 Transform started`."""

    def __init__(self, console: Console, clock: Callable[[], float]):
        self._file, self._clock = console.file, clock
        self._progress = RunProgress()
        self._shown: dict[str, float] = {}  # When a node's progress was shown last.
        self._later: dict[str, dict[str, Any]] = {}  # Progress that came too soon.
        self._note = ("", 0.0)  # The last event if it is a note, and when it came.

    def start(self) -> None:
        """Nothing to set up."""

    def stop(self) -> None:
        """Nothing to take down."""

    def refresh(self) -> None:
        self._repeat_note()
        for name, event in list(self._later.items()):
            if self._clock() - self._shown[name] >= _QUIET:
                del self._later[name]
                if detail := self._progress.nodes[name].detail():
                    self._write(event, detail)
                    self._shown[name] = self._clock()
        self._file.flush()

    def show(self, event: dict[str, Any]) -> None:
        self._progress.apply(event)
        name = event.get("node") or ""
        is_note = event["event"] == "note" and not name
        self._note = (first_line(event.get("message")) * is_note, self._clock())
        self._shown[_NOTE] = self._clock()
        self._later.pop(name, None)
        text = self._text(event, self._progress.nodes.get(name, NodeState()))
        if text:
            self._write(event, text)

    def _repeat_note(self) -> None:
        """Shows the last note again, with the time since, if nothing follows it."""
        now = self._clock()
        message, since = self._note
        if message and now - self._shown[_NOTE] >= _QUIET:
            self._write({"time": now}, f"{message}: {duration(now - since)} so far")
            self._shown[_NOTE] = now

    def _write(self, event: dict[str, Any], text: str) -> None:
        name = event.get("node") or ""
        clock = time.strftime("%H:%M:%S", time.localtime(event["time"]))
        width = max(map(len, self._progress.nodes), default=0)
        label = f"{name:{width}}  " if name else ""
        self._file.write(f"{clock} {label}{text}\n")

    def _text(self, event: dict[str, Any], node: NodeState) -> str:
        kind = event["event"]
        if kind == "run_started":
            return f"{event.get('pipeline', '')}, run {event.get('run_id', '')}"
        if kind == "node_started":
            self._shown[event["node"]] = event["time"]
            return "started"
        if kind == "node_finished":
            spent = "" if node.state == "cached" else duration(node.seconds)
            return "  ".join(filter(None, [node.state, spent, node.detail()]))
        if kind == "node_failed":
            spent = duration(node.seconds)
            return f"{node.state} after {spent}: {node.message}"
        if kind in ("note", "warning"):
            mark = "warning: " * (kind == "warning")
            return mark + first_line(event.get("message"))
        if kind in ("rows", "progress") and self._is_time(event):
            return node.detail()
        return ""

    def _is_time(self, event: dict[str, Any]) -> bool:
        name = event.get("node") or ""
        if event["time"] - self._shown.get(name, 0.0) < _QUIET:
            if name in self._progress.nodes:
                self._later[name] = event
            return False
        self._shown[name] = event["time"]
        return True
