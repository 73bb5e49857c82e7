"""Rows that the workers of a fold have read, for the live view.

Workers that share the executor's process add to one count, whatever their number;
those on other machines report nothing here.
"""

from __future__ import annotations

import threading
import time

from strategos.components import events
from strategos.components.shards import threads

_lock = threading.Lock()
_rows = 0
_total: int | None = None
_reported = 0.0


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
    threads.check()
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
      rows: All rows, also those that workers on other machines have read.
    """
    events.emit("rows", rows=rows, total=rows)
