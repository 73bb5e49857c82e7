"""Formatting for terminals: the console, symbols of states, times, numbers, tables."""

from __future__ import annotations

import datetime
import sys
from collections.abc import Iterator, Sequence
from typing import TextIO

from rich.console import Console, RenderableType
from rich.measure import Measurement
from rich.padding import Padding
from rich.segment import Segment, Segments
from rich.table import Table
from rich.text import Text

from strategos.components.wording import counted

_WIDE = 1000  # Wider than any table.
PLAIN_WIDTH = 100  # Of tables that go into a file or a pipe.
NUMBER_WIDTH = 7  # Of a metric in a list of runs or versions, with its sign.

# State of a node or outcome of a run: symbol, the same in ASCII, style.
_LOOKS = {
    "complete": ("✓", "+", "green"),
    "cached": ("✓", "=", "dim"),
    "running": ("●", ">", "cyan"),
    "pending": ("·", ".", "dim"),
    "failed": ("✗", "x", "bold red"),
    "stopped": ("■", "!", "bold yellow"),
    "interrupted": ("■", "!", "yellow"),
    "blessed": ("✓", "+", "bold green"),
    "finished": ("✓", "+", "green"),
    "not blessed": ("✗", "x", "bold red"),
}


def console(stream: TextIO | None = None) -> Console:
    """Makes a console: as wide as its terminal, else 100 columns.

    Args:
      stream: Where to print; standard output by default.
    """
    stream = stream or sys.stdout
    if stream.isatty():
        return Console(file=stream, highlight=False)
    return Console(
        file=stream, highlight=False, width=PLAIN_WIDTH, force_terminal=False
    )


def symbol(state: str, to: Console) -> Text:
    """The symbol of a node's state or a run's outcome, in its colour.

    Args:
      state: The state or outcome; `?` is shown for an unknown one.
      to: The console, which may be limited to ASCII.
    """
    sign, ascii_sign, style = _LOOKS.get(state, ("?", "?", ""))
    return Text(ascii_sign if to.options.ascii_only else sign, style=style)


def style(state: str) -> str:
    """The colour of a node's state or a run's outcome."""
    return _LOOKS.get(state, ("", "", ""))[2]


def moment(seconds: float) -> str:
    """Formats Unix seconds as local time: `2026-11-21 16:30`."""
    return datetime.datetime.fromtimestamp(seconds).strftime("%Y-%m-%d %H:%M")


def number(value: float | None, sign: str = "") -> str:
    """Formats a metric with enough digits to compare runs; `-` if it is undefined.

    Args:
      value: The metric; None if it is undefined.
      sign: `+` to show the sign of positive values too.
    """
    if value is None:
        return "-"
    if abs(value) >= 1000:
        return f"{value:{sign},.0f}"
    if abs(value) >= 10:
        return f"{value:{sign}.2f}"
    return f"{value:{sign}.4f}"


def hidden(metrics: Sequence[str], to: Console) -> Text:
    """The line below a table that names the metrics without room in the table.

    Args:
      metrics: Their names, at least one.
      to: The console.
    """
    ways = "--json shows them"
    if to.is_terminal:
        ways = "a wider terminal or --json shows them"
    text = f"{counted(len(metrics), 'more metric')} ({', '.join(metrics)}): {ways}"
    return Text(text, style="dim")


def show(to: Console, renderable: RenderableType, indent: int = 0) -> None:
    """Prints a table without trailing blanks.

    If the columns of a table cannot wrap and the window is too narrow for them, the
    window wraps the lines: rich would cut figures.

    Args:
      to: The console.
      renderable: The table.
      indent: Number of blanks before each line.
    """
    padded = Padding(renderable, (0, 0, 0, indent), expand=False)
    options = to.options
    if isinstance(renderable, Table) and _is_rigid(renderable):
        wide = options.update_width(_WIDE)
        needed = Measurement.get(to, wide, padded).maximum
        options = options.update_width(max(options.max_width, needed))
    for line in to.render_lines(padded, options, pad=False):
        to.print(Segments([*trimmed(line), Segment.line()]), crop=False)


def _is_rigid(table: Table) -> bool:
    return not table.expand and all(column.no_wrap for column in table.columns)


def trimmed(line: list[Segment]) -> Iterator[Segment]:
    """Yields the segments of a rendered line without its trailing blanks."""
    rest = "".join(segment.text for segment in line).rstrip()
    for text, style, control in line:
        yield Segment(text[: len(rest)], style, control)
        rest = rest[len(text) :]
