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
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import ModuleType
from typing import Any

_LOCK = threading.RLock()
_STAND_INS: dict[str, ModuleType] = {}


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
        if _Finder not in sys.meta_path:  # before the finder of files
            sys.meta_path.insert(sys.meta_path.index(PathFinder), _Finder)
        stand_in = _STAND_INS.get(package) or importlib.util.module_from_spec(spec)
        sys.modules[package] = stand_in
        try:
            yield
        finally:
            del sys.modules[package]
            _STAND_INS[package] = stand_in


class _Finder(PathFinder):
    """Finds the packages that had a stand-in, for a later import of the whole package.

    The package takes the place of its stand-in, which has the imported submodules as
    attributes: Python sets these only when it imports a submodule.
    """

    @classmethod
    def find_spec(cls, fullname: str, *args: Any, **kwargs: Any) -> ModuleSpec | None:
        if fullname not in _STAND_INS:
            return None
        spec = super().find_spec(fullname, *args, **kwargs)
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _Loader(spec.loader.name, spec.loader.path)
        return spec


class _Loader(SourceFileLoader):
    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return _STAND_INS.pop(spec.name, None)
