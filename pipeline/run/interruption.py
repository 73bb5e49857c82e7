"""Ctrl-C and SIGTERM end a run alike, wherever in the code they find it."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

_ONE_WISH_SECONDS = 1.0  # supervisors send both signals, and keys bounce
_AGAIN_SECONDS = 0.1  # until then the code that can raise nothing is over


class Interruption:
    """While entered, these signals are a KeyboardInterrupt, and remembered as one.

    It may come in the middle of any statement, of TFX's too, where it can end up as
    another exception, or leave a thing half made that fails later. What fails after it
    leaves the block as the KeyboardInterrupt that it was. Where Python can raise
    nothing (a callback of its imports) it comes again a little later.

    One that follows at once is the same wish and does nothing. A later one is
    impatience, or the first was lost somewhere: it is a KeyboardInterrupt again.

    Args:
      signals: Which signals; both where none is named.
      clock: Seconds, ever growing.
    """

    def __init__(
        self,
        *signals: signal.Signals,
        clock: Callable[[], float] = time.monotonic,
    ):
        self._signals = signals or (signal.SIGINT, signal.SIGTERM)
        self._clock = clock
        self.came = False
        self._last = signal.SIGINT
        self._raised = float("-inf")
        self._held_off = False
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Interruption:
        """Takes over the signals, if nobody ignores them. In the main thread."""
        self._hook, sys.unraisablehook = sys.unraisablehook, self._note_unraisable
        for each in self._signals:
            if signal.getsignal(each) is not signal.SIG_IGN:  # as a shell's `&` does
                self._before[each] = signal.signal(each, self._note)
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, _: Any) -> None:
        """Gives them back, unless one came: then this process is about to end."""
        sys.unraisablehook = self._hook
        for each, handler in self._before.items():
            if not self.came:
                signal.signal(each, handler)
        if self.came and isinstance(error, Exception):
            raise KeyboardInterrupt from error

    @contextlib.contextmanager
    def held_off(self) -> Iterator[None]:
        """For what must not be left half done: signals are only remembered."""
        self._held_off = True
        try:
            yield
        finally:
            self._held_off = False

    def _note(self, number: int, _: Any) -> None:
        self.came, self._last = True, number
        now = self._clock()
        if not self._held_off and now - self._raised > _ONE_WISH_SECONDS:
            self._raised = now
            raise KeyboardInterrupt

    def _note_unraisable(self, unraisable: Any) -> None:
        if not issubclass(unraisable.exc_type, KeyboardInterrupt):
            self._hook(unraisable)
            return
        self._raised = float("-inf")
        again = (os.getpid(), self._last)
        timer = threading.Timer(_AGAIN_SECONDS, os.kill, again)
        timer.daemon = True
        timer.start()
