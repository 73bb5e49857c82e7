"""SIGTERM as a request to save a checkpoint and end.

Platforms that reclaim a machine send SIGTERM some seconds before. TensorFlow's own
notifier swallows the signal under MultiWorkerMirroredStrategy, so the handler is
installed after the strategy is built.
"""

from __future__ import annotations

import signal

_requested = False


class Preempted(Exception):
    """Training ended on request, at a step that all workers have saved."""


def install_handler() -> None:
    """Records SIGTERM from now on. Must be called in the main thread."""
    signal.signal(signal.SIGTERM, _note)


def requested() -> bool:
    """Whether this process has received SIGTERM."""
    return _requested


def _note(*_: object) -> None:
    global _requested
    _requested = True
