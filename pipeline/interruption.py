"""Ctrl-C and SIGTERM end a run alike, wherever in the code they find it."""

from __future__ import annotations

import signal
from typing import Any

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interruption:
    """While entered, either signal is a KeyboardInterrupt, and is remembered as one.

    It may come in the middle of any statement, of TFX's too, where it can end up as
    another exception, or leave a thing half made that fails later. What fails after it
    leaves the block as the KeyboardInterrupt that it was.
    """

    def __init__(self) -> None:
        """Takes over nothing yet."""
        self.came = False
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Interruption:
        """Takes over both signals, if nobody ignores them. In the main thread."""
        for each in _SIGNALS:
            if signal.getsignal(each) is not signal.SIG_IGN:  # as a shell's `&` does
                self._before[each] = signal.signal(each, self._note)
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, _: Any) -> None:
        """Gives them back."""
        for each, handler in self._before.items():
            signal.signal(each, handler)
        if self.came and isinstance(error, Exception):
            raise KeyboardInterrupt from error

    def _note(self, *_: object) -> None:
        self.came = True
        raise KeyboardInterrupt
