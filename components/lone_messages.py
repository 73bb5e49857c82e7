"""Imports protobuf messages of a package without the rest of the package.

The orchestrator reads and writes messages of TensorFlow and TFMA, and imports neither.
An evaluation writes TFMA's messages, and TFMA's metrics take half a second to import.
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
    """Lets the block import modules of messages (`*_pb2`) of a package.

    Without effect if the package is imported already. During the block, an empty module
    stands in for the package, so that its `__init__` does not run. Afterwards the
    package is as before, hidden or not imported yet; the modules of messages stay
    imported.

    Args:
      package: Name of the package, without a dot.
    """
    with _LOCK:
        is_there = package in sys.modules
        spec = None if is_there else PathFinder.find_spec(package)
        if spec is None:
            yield
            return
        sys.modules[package] = importlib.util.module_from_spec(spec)
        try:
            yield
        finally:
            del sys.modules[package]
