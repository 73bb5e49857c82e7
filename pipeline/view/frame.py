"""A block of lines at the end of a terminal's output, redrawn in place."""

from __future__ import annotations

import contextlib
import os
import sys
import termios
from typing import IO

from rich.console import Console, ConsoleOptions, Group, RenderHook, RenderResult
from rich.console import ConsoleRenderable as Renderable
from rich.control import Control
from rich.file_proxy import FileProxy
from rich.segment import ControlType, Segment

from strategos.pipeline.view import terminal

# From the cursor's line to the end of the screen. Not from its first cell: in the top
# line that erases the whole screen, which tmux then keeps as history.
_ERASE = "\r\x1b[K\x1b[C\x1b[J\r"
_WRAP_OFF, _WRAP_ON = "\x1b[?7l", "\x1b[?7h"
_SAVE_CURSOR, _RESTORE_CURSOR = "\x1b7", "\x1b8"
_CODES = [(ControlType.CARRIAGE_RETURN,)]  # Any code marks a segment as control codes.
_DOWN = "\r\x1b[B"


class Frame(RenderHook):
    """Shows lines below all other output, and erases them at the end.

    The cursor rests at the start of the first line; with `rich.live.Live` it rests at
    the end of the last line. A resized terminal may wrap and drop lines, but they all
    stay below the cursor, so erasing them needs no count of lines.
    """

    def __init__(self, console: Console):
        """Writes nothing before `start`.

        Args:
          console: A terminal. While the frame is shown, standard output and standard
            error are printed through it, if they are terminals too.
        """
        self._console = console
        self._content: Renderable = Group()
        self._echoed = False
        self._streams: dict[str, IO[str]] = {}
        self._room = 0  # Lines below the first that need no scrolling.
        self._size = console.size

    def start(self) -> None:
        """Hides the cursor and typed text: a typed line would scroll the frame."""
        self._console.show_cursor(False)
        self._echoed = _switch_echo(self._console.file, on=False)
        for name in ("stdout", "stderr"):
            stream = getattr(sys, name)
            if stream.isatty():
                self._streams[name] = stream
                setattr(sys, name, FileProxy(self._console, stream))
        self._console.push_render_hook(self)

    def stop(self) -> None:
        """Erases the lines and restores the terminal."""
        self._console.pop_render_hook()
        for name, stream in self._streams.items():
            getattr(sys, name).flush()
            setattr(sys, name, stream)
        self._console.control(_control(_ERASE))
        self._console.show_cursor(True)
        if self._echoed:
            _switch_echo(self._console.file, on=True)

    def update(self, content: Renderable) -> None:
        """Shows `content` in place of the former, cut at the height of the window."""
        self._content = content
        self._console.print(Control())

    def process_renderables(self, renderables: list[Renderable]) -> list[Renderable]:
        """Prints `renderables` above the frame; called by rich, see `RenderHook`."""
        if any(not isinstance(each, Control) for each in renderables):
            self._room = 0
        return [_control(_ERASE), *renderables, self]

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> RenderResult:
        """Draws the lines, without blanks at their ends, and returns to the first.

        The window is scrolled only to make room. A window that is being made smaller
        reports its old size for a while: scrolling it for every frame would move lines
        out at its top, where nothing can erase them.
        """
        lines = console.render_lines(self._content, options, pad=False)
        lines = lines[: options.size.height]
        below = max(0, len(lines) - 1)
        if below > self._room or options.size != self._size:
            self._room, self._size = below, options.size
            yield _control("\n" * below + f"\x1b[{below}A" * bool(below))
        yield _control(_WRAP_OFF + _SAVE_CURSOR)
        for index, line in enumerate(lines):
            if index:
                yield _control(_DOWN)
            # As codes: rich treats lines without line feeds as one line, and cuts it.
            for text, style, _ in terminal.trimmed(line):
                yield Segment(text, style, _CODES)
        yield _control(_RESTORE_CURSOR + _WRAP_ON)


def _control(codes: str) -> Control:
    """Makes a control of terminal codes that rich has no names for."""
    control = Control()
    control.segment = Segment(codes, None, _CODES)
    return control


def _switch_echo(screen: IO[str], *, on: bool) -> bool:
    """Switches the echo of a terminal; returns whether it was on before."""
    with contextlib.suppress(OSError, termios.error):
        number = screen.fileno()
        if os.tcgetpgrp(number) != os.getpgrp():
            return False  # In the background this would stop the process.
        modes = termios.tcgetattr(number)
        echoed = bool(modes[3] & termios.ECHO)
        modes[3] = modes[3] | termios.ECHO if on else modes[3] & ~termios.ECHO
        termios.tcsetattr(number, termios.TCSANOW, modes)
        return echoed
    return False
