"""Rows that the workers of a fold have read, for the live view.

Workers that are threads of the executor's process, or its helpers, add to one count,
whatever their number; workers on other machines report nothing here.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from strategos.components import events

_lock = threading.Lock()
_rows = 0
_total: int | None = None
_reported = 0.0
_forward: Callable[[int], None] | None = None
_thread = threading.local()


class EndedError(Exception):
    """The fold that a thread works for has ended with the error of another shard."""


def work_for(ended: threading.Event) -> None:
    """Has `add` end the work of this thread once its fold has ended.

    Args:
      ended: Set when the fold has ended.
    """
    _thread.ended = ended


def forward(send: Callable[[int], None]) -> None:
    """Has the executor's process count the rows that this process, its helper, adds.

    Args:
      send: Sends a number of rows there.
    """
    global _forward
    _forward = send


def begin(total: int | None) -> None:
    """Counts from 0.

    Args:
      total: Rows to expect, if known.
    """
    global _rows, _total, _reported
    with _lock:
        _rows, _total, _reported = 0, total, 0.0


def add(rows: int) -> None:
    """Counts `rows` more, and reports now and then.

    Raises:
      EndedError: The fold has ended; the caller must not catch it.
    """
    global _rows, _reported
    if _forward is not None:
        _forward(rows)
        return
    if (ended := getattr(_thread, "ended", None)) and ended.is_set():
        raise EndedError
    with _lock:
        _rows += rows
        now = time.monotonic()
        if now - _reported < events.PROGRESS_SECONDS:
            return
        _reported = now
        events.emit("rows", rows=_rows, total=_total)


def end(rows: int) -> None:
    """Reports the last count.

    Args:
      rows: All rows, including rows that workers on other machines have read.
    """
    events.emit("rows", rows=rows, total=rows)


def say(message: str) -> None:
    """Reports progress after all rows are read, now and then.

    Args:
      message: The activity and its progress, e.g. "writing origin: 65,536 tokens".
    """
    global _reported
    with _lock:
        now = time.monotonic()
        if now - _reported < events.PROGRESS_SECONDS:
            return
        _reported = now
    events.emit("progress", message=message)
