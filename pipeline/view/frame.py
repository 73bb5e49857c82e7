"""A block of lines at the end of a terminal's output, redrawn where it stands."""

from __future__ import annotations

import contextlib
import os
import sys
import termios
from typing import TextIO

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
_CODES = [(ControlType.CARRIAGE_RETURN,)]  # Any: that there are some is what counts.
_DOWN = "\r\x1b[B"


class Frame(RenderHook):
    """Lines below all that is printed while it is shown; nothing of them stays.

    The cursor rests at the start of the first line; that of `rich.live.Live` rests at
    the end of the last one. A terminal that is resized wraps and drops lines as it
    likes, but all of them stay below the cursor: erasing them needs no count of them.
    """

    def __init__(self, console: Console):
        """Nothing is written before `start`.

        Args:
          console: A terminal. What is printed to standard output and standard error
            goes through it while the frame is shown, if they are terminals too.
        """
        self._console = console
        self._content: Renderable = Group()
        self._echoed = False
        self._streams: dict[str, TextIO] = {}
        self._room = 0  # Lines below the first that need no scrolling.
        self._size = console.size

    def start(self) -> None:
        """Hides the cursor and what is typed: a typed line would scroll the frame."""
        self._console.show_cursor(False)
        self._echoed = _switch_echo(self._console.file, on=False)
        for name in ("stdout", "stderr"):
            stream = getattr(sys, name)
            if stream.isatty():
                self._streams[name] = stream
                setattr(sys, name, FileProxy(self._console, stream))
        self._console.push_render_hook(self)

    def stop(self) -> None:
        """Takes the lines away and gives the terminal back as it was."""
        self._console.pop_render_hook()
        for name, stream in self._streams.items():
            getattr(sys, name).flush()
            setattr(sys, name, stream)
        self._console.control(_control(_ERASE))
        self._console.show_cursor(True)
        if self._echoed:
            _switch_echo(self._console.file, on=True)

    def update(self, content: Renderable) -> None:
        """Shows `content` instead, as far as the window is high enough for it."""
        self._content = content
        self._console.print(Control())

    def process_renderables(self, renderables: list[Renderable]) -> list[Renderable]:
        """See `RenderHook`: puts what is printed above the frame."""
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
            # As codes: rich takes lines without line feeds for one, and would cut that.
            for text, style, _ in terminal.trimmed(line):
                yield Segment(text, style, _CODES)
        yield _control(_RESTORE_CURSOR + _WRAP_ON)


def _control(codes: str) -> Control:
    """Codes that take no room; rich has no names for these."""
    control = Control()
    control.segment = Segment(codes, None, _CODES)
    return control


def _switch_echo(screen: TextIO, *, on: bool) -> bool:
    """Switches whether a terminal shows what is typed; returns whether it did."""
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
