"""What a node reports while it works, as JSON lines in the run's event file.

Any process of a run appends (the orchestrator, the warm executor process, a training
worker); the orchestrator alone reads, and draws the live view from it. A line is
written by one `write` call on a file opened for appending, so lines of several
processes never mix.
"""

from __future__ import annotations

import json
import os
import time
from typing import Any

_sink: int | None = None
_context: dict[str, Any] = {}


def open_sink(path: str | None, **context: Any) -> None:
    """Sends this process's events to `path`; without a path they go nowhere.

    Args:
      path: The run's event file, created where missing.
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


def sink_path() -> str | None:
    """The event file of this process, to hand on to a process that it starts."""
    return _context.get("sink")


def current_node() -> str | None:
    """The node whose executor this process runs."""
    return _context.get("node")


def set_node(node: str | None) -> None:
    """Marks the events that follow as those of `node`."""
    _context["node"] = node


def emit(event: str, **fields: Any) -> None:
    """Reports `event` ("rows", "progress", "note", …) with JSON-able `fields`."""
    if _sink is None:
        return
    record = {"event": event, "time": time.time(), **fields}
    record.setdefault("node", _context.get("node"))
    os.write(_sink, (json.dumps(record, default=str) + "\n").encode())
