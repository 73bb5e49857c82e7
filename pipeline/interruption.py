"""Ctrl-C and SIGTERM end a run alike, wherever in the code they find it."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_ONE_WISH_SECONDS = 1.0  # supervisors send both signals, and keys bounce


class Interruption:
    """While entered, either signal is a KeyboardInterrupt, and is remembered as one.

    It may come in the middle of any statement, of TFX's too, where it can end up as
    another exception, or leave a thing half made that fails later. What fails after it
    leaves the block as the KeyboardInterrupt that it was.

    One that follows at once is the same wish and does nothing. A later one is
    impatience, or the first was swallowed somewhere: it is a KeyboardInterrupt again.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Takes over nothing yet."""
        self._clock = clock
        self.came = False
        self._raised = float("-inf")
        self._held_off = False
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Interruption:
        """Takes over both signals, if nobody ignores them. In the main thread."""
        for each in _SIGNALS:
            if signal.getsignal(each) is not signal.SIG_IGN:  # as a shell's `&` does
                self._before[each] = signal.signal(each, self._note)
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, _: Any) -> None:
        """Gives them back, unless one came: then this process is about to end."""
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

    def _note(self, *_: object) -> None:
        self.came = True
        now = self._clock()
        if not self._held_off and now - self._raised > _ONE_WISH_SECONDS:
            self._raised = now
            raise KeyboardInterrupt
