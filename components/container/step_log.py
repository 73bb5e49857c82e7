"""The events of a step: its warnings for the table, its progress in the pod's log.

A step has no live view beside it. So its event file is followed by a thread, which
prints warnings, notes and, every few seconds, the last progress, with the end of each
epoch.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from strategos.components import events
from strategos.components.errors import first_line
from strategos.components.files import temporary

PROGRESS = "progress: "
"""Begins a line of progress in the log of a step."""

_SECONDS = 10.0  # Between two looks, and so between two lines of progress.
_SHOWN = ("warning", "note")


@contextlib.contextmanager
def opened(seconds: float = _SECONDS) -> Iterator[Path]:
    """Opens an event file for this process, and prints its events as progress.

    Args:
      seconds: Time between two looks at the file.

    Yields:
      The event file.
    """
    with temporary.folder() as folder:
        path, ended = Path(folder, "events.jsonl"), threading.Event()
        events.open_sink(str(path))
        lines = ProgressLines(path, sys.stderr)

        def follow() -> None:
            while not ended.wait(seconds):
                lines.print()

        thread = threading.Thread(target=follow, daemon=True)
        thread.start()
        try:
            yield path
        finally:
            ended.set()
            thread.join()
            events.open_sink(None)
            lines.print()


class ProgressLines:
    """Prints an event file as lines of a log.

    Args:
      path: The event file.
      out: The stream to print to.
    """

    def __init__(self, path: Path, out: TextIO):
        self._events, self._out = events.NewEvents(path), out

    def print(self) -> None:
        """Prints the warnings and notes since the last call, and the last progress.

        Of several epochs since then, each has a line.
        """
        last: dict[str, str] = {}
        for event in self._events.read():
            text = first_line(event.get("message"))
            if event["event"] in _SHOWN:
                self._out.write(f"{event['event']}: {text}\n")
            elif event["event"] == "progress":
                last[text.partition("  ")[0]] = text  # such as `epoch 2/5`
        for text in last.values():
            self._out.write(f"{PROGRESS}{text}\n")
        self._out.flush()


def last_progress(log: str) -> str:
    """The last progress in the log of a step; "" without any.

    Args:
      log: The log, or its end.
    """
    lines = [line for line in log.splitlines() if line.startswith(PROGRESS)]
    return lines[-1].removeprefix(PROGRESS) if lines else ""
