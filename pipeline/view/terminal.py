"""How things look in a terminal: the console, moments, symbols of states."""

from __future__ import annotations

import datetime
import sys
from collections.abc import Iterator
from typing import TextIO

from rich.console import Console, RenderableType
from rich.measure import Measurement
from rich.padding import Padding
from rich.segment import Segment, Segments
from rich.table import Table
from rich.text import Text

_WIDE = 1000  # Wider than any table.
PLAIN_WIDTH = 100  # Of tables that go into a file or a pipe.

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
    """A console on `stream`, standard output by default.

    In a terminal as wide as that; elsewhere of a fixed width.
    """
    stream = stream or sys.stdout
    if stream.isatty():
        return Console(file=stream, highlight=False)
    return Console(
        file=stream, highlight=False, width=PLAIN_WIDTH, force_terminal=False
    )


def symbol(state: str, to: Console) -> Text:
    """The sign for a node's state or a run's outcome, in its colour."""
    sign, ascii_sign, style = _LOOKS.get(state, ("?", "?", ""))
    return Text(ascii_sign if to.options.ascii_only else sign, style=style)


def style(state: str) -> str:
    """The colour of a node's state or a run's outcome."""
    return _LOOKS.get(state, ("", "", ""))[2]


def moment(seconds: float) -> str:
    """A Unix time as local `2026-11-21 16:30`."""
    return datetime.datetime.fromtimestamp(seconds).strftime("%Y-%m-%d %H:%M")


def number(value: float | None, sign: str = "") -> str:
    """A metric with as many digits as tell runs apart; `-` where it is undefined.

    Args:
      value: The metric.
      sign: `+` to show the sign of positive values too.
    """
    if value is None:
        return "-"
    if abs(value) >= 1000:
        return f"{value:{sign},.0f}"
    if abs(value) >= 10:
        return f"{value:{sign}.2f}"
    return f"{value:{sign}.4f}"


def show(to: Console, renderable: RenderableType, indent: int = 0) -> None:
    """Prints a table, without blanks at the ends of lines.

    In a window that is too narrow for a table of columns that cannot be wrapped, the
    window wraps its lines: rich would cut figures.
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
    """A rendered line without the blanks at its end."""
    rest = "".join(segment.text for segment in line).rstrip()
    for text, style, control in line:
        yield Segment(text[: len(rest)], style, control)
        rest = rest[len(text) :]
