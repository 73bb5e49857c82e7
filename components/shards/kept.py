"""Results of work on data in files, for later runs that would compute them again.

A file is a line of JSON, with a version, the file's name, and the digest and the size
of the pickled result that follows. A file is read only if it is whole and has its own
name, which stands for all that the result depends on. Reading makes objects of some
classes and of no others, so that a file from elsewhere runs no code.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import io
import json
import logging
import os
import pickle
import types
from importlib import metadata
from pathlib import Path
from typing import Any

from strategos.components.files import commit, digests
from strategos.components.wording import data_size

ARRAYS = frozenset(
    {
        *(("numpy", "ndarray"), ("numpy", "dtype")),
        *(
            (f"numpy.{core}.{name}", function)
            for core in ("core", "_core")
            for name, function in (
                ("multiarray", "_reconstruct"),
                ("multiarray", "scalar"),
                ("numeric", "_frombuffer"),
            )
        ),
    }
)
"""The module and name of each class and function that NumPy's arrays are made of."""


@dataclasses.dataclass(frozen=True)
class Format:
    """Files of one kind of results, in folders of their own.

    Attributes:
      version: Raised when the classes have other fields.
      classes: The module and name of each class and function of the results.
      most_files: Number of files of a folder that stay.
      most_bytes: Size of all files of a folder that stay.
    """

    version: int
    classes: frozenset[tuple[str, str]]
    most_files: int
    most_bytes: int

    def write(self, path: Path, result: Any, most: int) -> None:
        """Writes a result to a file, unless it is too large or of other classes.

        Args:
          path: The file; its folder is made if it is missing.
          result: The result.
          most: Bytes of the largest file.
        """
        try:
            pickler = _Pickler(file := _Bounded(most), self.classes)
            pickler.dump(result)
            content = file.getvalue()
            path.parent.mkdir(parents=True, exist_ok=True)
            commit.write(path, self._header(path, content) + b"\n" + content)
        except (pickle.PicklingError, TypeError, AttributeError) as error:
            logging.info("%s is not kept: %s", path, error)
        except OSError as error:
            logging.warning("%s is not kept: %s", path, error)

    def read(self, path: Path) -> Any:
        """Reads a result, and marks its file as used.

        Args:
          path: The file.

        Returns:
          The result; or None if the file is missing, damaged or from elsewhere.
        """
        try:
            line, _, content = path.read_bytes().partition(b"\n")
        except FileNotFoundError:
            return None
        except OSError as error:
            logging.warning("%s is not read: %s", path, error)
            return None
        if line != self._header(path, content):
            logging.warning("%s is damaged or of another version: not used", path)
            return None
        try:
            result = _Unpickler(io.BytesIO(content), self.classes).load()
        except Exception as error:  # pickle raises errors of many kinds
            logging.warning("%s is not used: %s", path, error)
            return None
        with contextlib.suppress(OSError):
            os.utime(path)  # `prune` and `strategos clean` go by the last use
        return result

    def prune(self, folder: Path) -> None:
        """Removes the files of a folder that were used least recently, if many.

        Args:
          folder: The folder; it may be missing.
        """
        with contextlib.suppress(OSError):  # another run removes them, too
            files = {file: file.stat() for file in folder.glob("*")}
            size = 0
            newest = sorted(files, key=lambda file: files[file].st_mtime, reverse=True)
            for number, file in enumerate(newest):
                size += files[file].st_size
                if number >= self.most_files or size > self.most_bytes:
                    commit.remove(file)

    def _header(self, path: Path, content: bytes) -> bytes:
        digest = hashlib.sha256(content).hexdigest()
        fields = {"version": self.version, "name": path.name, "sha256": digest}
        return json.dumps({**fields, "bytes": len(content)}).encode()


@functools.cache
def versions(*packages: str) -> tuple[str, ...]:
    """The code of all components, and the versions of packages.

    Args:
      packages: Their names; they may be missing.
    """
    code = digests.of_sources(Path(__file__).parents[1])
    return (code, *(f"{name} {_version(name)}" for name in packages))


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


class _Bounded(io.BytesIO):
    """A file in memory that rejects more than some bytes."""

    def __init__(self, most: int):
        super().__init__()
        self._most = most

    def write(self, data: Any) -> int:
        """See `io.BytesIO`."""
        if self.tell() + memoryview(data).nbytes > self._most:
            raise pickle.PicklingError(f"it takes more than {data_size(self._most)}")
        return super().write(data)


class _Pickler(pickle.Pickler):
    """Writes objects that `_Unpickler` makes, and no others."""

    def __init__(self, file: io.BytesIO, classes: frozenset[tuple[str, str]]):
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self._classes = classes

    def reducer_override(self, value: Any) -> Any:
        """See `pickle.Pickler`; called for each class and function, too."""
        if isinstance(value, type | types.FunctionType | types.BuiltinFunctionType):
            _check(value.__module__, value.__qualname__, self._classes)
        return NotImplemented


class _Unpickler(pickle.Unpickler):
    """Makes objects of some classes, and nothing else."""

    def __init__(self, file: io.BytesIO, classes: frozenset[tuple[str, str]]):
        super().__init__(file)
        self._classes = classes

    def find_class(self, module: str, name: str) -> Any:
        """See `pickle.Unpickler`."""
        _check(module, name, self._classes)
        return super().find_class(module, name)


def _check(module: str, name: str, classes: frozenset[tuple[str, str]]) -> None:
    if (module, name) not in classes:
        raise pickle.PicklingError(f"{module}.{name} is no part of such results")
