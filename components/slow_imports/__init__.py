"""Packages that take long to import: each is imported when a name of it is first used.

    from strategos.components.slow_imports import np

A module that imports a package at its top instead makes each command wait that imports
the module. Type checkers and editors see the packages themselves.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__all__ = ["fs", "np", "pa", "tf"]


class _Package:
    """Stands for a package.

    Args:
      name: Name of the package.
      submodules: Names of its modules that importing the package does not import.
    """

    def __init__(self, name: str, submodules: tuple[str, ...] = ()):
        self._name, self._submodules = name, submodules

    def __getattr__(self, name: str) -> Any:
        # Inspection, not code, asks for such names, except for TensorFlow's own one.
        if name.startswith("__") and name != "__internal__":
            raise AttributeError(name)
        if name in self._submodules:
            value: Any = importlib.import_module(f"{self._name}.{name}")
        else:
            value = getattr(importlib.import_module(self._name), name)
        self.__dict__[name] = value  # found there from now on, as fast as in a module
        return value


if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.json
    import pyarrow.orc
    import pyarrow.parquet  # noqa: F401
    import tensorflow as tf
    from pyarrow import fs
else:
    fs = _Package("pyarrow.fs")
    np, tf = _Package("numpy"), _Package("tensorflow")
    pa = _Package("pyarrow", ("csv", "json", "orc", "parquet"))
