"""SIGTERM as a wish: save, then end.

Platforms that take a machine back say so by SIGTERM some seconds before. TensorFlow's
own notifier swallows the signal under MultiWorkerMirroredStrategy, so the handler is
installed after the strategy is built.
"""

from __future__ import annotations

import signal

_requested = False


class Preempted(Exception):
    """Training ended on request, at a step that all workers have saved."""


def install_handler() -> None:
    """Notes SIGTERM from now on. Called in the main thread."""
    signal.signal(signal.SIGTERM, _note)


def requested() -> bool:
    """Whether SIGTERM came."""
    return _requested


def _note(*_: object) -> None:
    global _requested
    _requested = True
