"""Converts Ctrl-C and SIGTERM to a KeyboardInterrupt that cannot get lost."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

_REPEAT_SECONDS = 1.0  # supervisors send both signals, and keys bounce
_RESEND_SECONDS = 0.1  # long enough to leave the code that cannot raise


class Interruption:
    """While entered, signals raise a KeyboardInterrupt, and the object remembers it.

    The interrupt may hit any statement, inside TFX too: there it can turn into another
    exception, or leave an incomplete object that fails later. So any exception that
    leaves the block after an interrupt is replaced by a KeyboardInterrupt. Where Python
    cannot raise, e.g. in a callback of an import, the signal is sent again 0.1 s later.

    A second signal within a second is ignored. A later one raises a KeyboardInterrupt
    again: the user is impatient, or the first one was lost.

    Args:
      signals: The signals to handle; SIGINT and SIGTERM by default.
      clock: Returns monotonic seconds.

    Attributes:
      came: Whether a signal was received.
    """

    def __init__(
        self,
        *signals: signal.Signals,
        clock: Callable[[], float] = time.monotonic,
    ):
        self._signals = signals or (signal.SIGINT, signal.SIGTERM)
        self._clock = clock
        self.came = False
        self._last: int = signal.SIGINT
        self._raised = float("-inf")
        self._held_off = False
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Interruption:
        """Handles the signals, except ignored ones. Call it in the main thread."""
        self._hook, sys.unraisablehook = sys.unraisablehook, self._note_unraisable
        for each in self._signals:
            if signal.getsignal(each) is not signal.SIG_IGN:  # as a shell's `&` does
                self._before[each] = signal.signal(each, self._note)
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, _: Any) -> None:
        """Restores the handlers, unless a signal came: then the process soon ends."""
        sys.unraisablehook = self._hook
        for each, handler in self._before.items():
            if not self.came:
                signal.signal(each, handler)
        if self.came and isinstance(error, Exception):
            raise KeyboardInterrupt from error

    @contextlib.contextmanager
    def held_off(self) -> Iterator[None]:
        """Only remembers signals while the block runs, so that the block completes."""
        self._held_off = True
        try:
            yield
        finally:
            self._held_off = False

    def _note(self, number: int, _: Any) -> None:
        self.came, self._last = True, number
        now = self._clock()
        if not self._held_off and now - self._raised > _REPEAT_SECONDS:
            self._raised = now
            raise KeyboardInterrupt

    def _note_unraisable(self, unraisable: Any) -> None:
        if not issubclass(unraisable.exc_type, KeyboardInterrupt):
            self._hook(unraisable)
            return
        self._raised = float("-inf")
        again = (os.getpid(), self._last)
        timer = threading.Timer(_RESEND_SECONDS, os.kill, again)
        timer.daemon = True
        timer.start()
