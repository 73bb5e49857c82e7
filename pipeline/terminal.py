"""How things look in a terminal: the console, durations, symbols of states."""

from __future__ import annotations

import datetime
import os
import sys
from typing import TextIO

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.text import Text

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


def duration(seconds: float | None) -> str:
    """`8.1 s`, `42 s`, `1 min 42 s`, `2 h 05 min`; "" for None."""
    if seconds is None:
        return ""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes == 0:
        return f"{rest} s"
    if minutes < 60:
        return f"{minutes} min {rest:02} s"
    return f"{minutes // 60} h {minutes % 60:02} min"


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
    """Prints a table; into a file or a pipe without blanks at the ends of lines."""
    padded = Padding(renderable, (0, 0, 0, indent), expand=False)
    if to.is_terminal:
        to.print(padded)
        return
    with to.capture() as captured:
        to.print(padded)
    for line in captured.get().splitlines():
        to.file.write(line.rstrip() + "\n")


def path(name: str) -> str:
    """A path as its reader would type it here: relative where that is shorter."""
    relative = os.path.relpath(name) if os.path.isabs(name) else name
    return name if relative.startswith("..") else relative


def first_line(text: str | None) -> str:
    """The first line of a cause that may have several."""
    return (text or "").strip().partition("\n")[0]
