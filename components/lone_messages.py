"""Imports protobuf messages of a package without the rest of the package.

The orchestrator reads and writes messages of TensorFlow and TFMA, and imports neither.
"""

from __future__ import annotations

import contextlib
import importlib.util
import sys
import threading
from collections.abc import Iterator
from importlib.machinery import PathFinder

_LOCK = threading.RLock()


@contextlib.contextmanager
def of(package: str) -> Iterator[None]:
    """Lets the block import modules of messages (`*_pb2`) of a hidden package.

    Without effect in a process that can import the package (all but the orchestrator,
    see `pipeline.runners.light`). During the block, an empty module stands in for the
    package, so that its `__init__` does not run. Afterwards the package is hidden
    again; the modules of messages stay imported.

    Args:
      package: Name of the package, without a dot.
    """
    with _LOCK:
        spec = PathFinder.find_spec(package) if _is_hidden(package) else None
        if spec is None:
            yield
            return
        sys.modules[package] = importlib.util.module_from_spec(spec)
        try:
            yield
        finally:
            del sys.modules[package]


def _is_hidden(package: str) -> bool:
    """Whether a finder rejects the package."""
    if package in sys.modules:
        return False
    try:
        importlib.util.find_spec(package)
    except ModuleNotFoundError:
        return True
    return False
