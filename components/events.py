"""Reports a running node's progress as JSON lines in the run's event file.

Every process of a run appends lines (the orchestrator, the warm executor process, a
training worker). The orchestrator reads the file, e.g. for the live view; on a cluster,
each step reads its own file (`container.step_log`, `container.step_record`). Each line
is one `write` call on a file opened for appending, so the lines of several processes
never mix.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

PROGRESS_SECONDS = 0.5
"""The least time between two reports of progress by one process."""

_sink: int | None = None
_context: dict[str, Any] = {}


def open_sink(path: str | None, **context: Any) -> None:
    """Opens the file for this process's events.

    Args:
      path: The run's event file, created if missing. None discards all events.
      **context: Fields added to every event, such as `node`.
    """
    global _sink
    if _sink is not None:
        os.close(_sink)
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
    _sink = os.open(path, flags, 0o644) if path else None
    _context.clear()
    _context.update(context)
    _context["sink"] = path


def join_sink(path: str | None, node: str | None) -> None:
    """Opens a run's event file in a worker, if the worker can access it.

    Without effect if this process has an event file.

    Args:
      path: The event file; None without one.
      node: Id of the node that the worker works for.
    """
    if _sink is None and path and os.path.isfile(path):
        open_sink(path, node=node)


def sink_path() -> str | None:
    """The event file of this process, to pass to a child process; None without one."""
    return _context.get("sink")


def current_node() -> str | None:
    """Id of the node that this process executes; None outside of a node."""
    return _context.get("node")


def set_node(node: str | None) -> None:
    """Sets the id of the node for the events that follow."""
    _context["node"] = node


def emit(event: str, **fields: Any) -> None:
    """Appends an event to the event file, if one is open.

    Args:
      event: Kind of the event: "rows", "progress", "note", …
      **fields: JSON-able details; values of other types are written as text.
    """
    if _sink is None:
        return
    record = {"event": event, "time": time.time(), **fields}
    record.setdefault("node", _context.get("node"))
    os.write(_sink, (json.dumps(record, default=str) + "\n").encode())


def recorded(path: str, kind: str, start: int = 0) -> list[dict[str, Any]]:
    """Reads the events of one kind; skips damaged lines.

    Args:
      path: An event file.
      kind: Kind of the events.
      start: Byte from which to read, such as an earlier `size`.
    """
    recorded_events = []
    with open(path, "rb") as file:
        file.seek(start)
        for line in file:
            if kind.encode() not in line:
                continue
            event = _parsed(line)
            if event and event["event"] == kind:
                recorded_events.append(event)
    return recorded_events


class NewLines:
    """The lines of a file that another process appends to.

    Args:
      path: The file; it may not exist yet.
    """

    def __init__(self, path: Path):
        self._path, self._position = path, 0

    def read(self) -> list[bytes]:
        """The complete lines since the last call, without their ends."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._position)
                *lines, rest = file.read().split(b"\n")
                self._position = file.tell() - len(rest)
        except FileNotFoundError:
            return []
        return lines


class NewEvents:
    """The events that other processes append to a file; skips damaged lines.

    Args:
      path: The event file; it may not exist yet.
    """

    def __init__(self, path: Path):
        self._lines = NewLines(path)

    def read(self) -> list[dict[str, Any]]:
        """The events since the last call."""
        return [event for line in self._lines.read() if (event := _parsed(line))]


def _parsed(line: bytes) -> dict[str, Any] | None:
    """The event in a line; None for a damaged line."""
    try:
        event = json.loads(line)
        known = isinstance(event["event"], str) and isinstance(event["time"], float)
        return event if known else None
    except (ValueError, TypeError, KeyError):
        return None


def size(path: str | None) -> int:
    """Bytes of an event file so far; 0 without one."""
    return os.path.getsize(path) if path else 0


def relay(record: dict[str, Any]) -> None:
    """Emits an event of another process as this process's own.

    Args:
      record: An event as `emit` wrote it.
    """
    own = {k: v for k, v in record.items() if k not in ("time", "node", "sink")}
    emit(own.pop("event"), **own)
