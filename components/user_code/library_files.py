"""Wraps the functions by which libraries open files in C++, to see the files' names.

Such an open raises no audit event. Only attributes of modules that this process has
imported are replaced, and only until `unwrap`. A class stays the same class: its
`__init__` is wrapped.
"""

from __future__ import annotations

import contextlib
import functools
import glob
import importlib
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

Report = Callable[..., None]

_MODE, _TREE, _PATTERN, _STEM, _NAMES_OF = "mode", "tree", "pattern", "stem", "names"
_FILE_IO = "tensorflow.python.lib.io.file_io"
_READERS = "tensorflow.python.data.ops.readers"
_IO_OPS = "tensorflow.python.ops.gen_io_ops"
_CHECKPOINTS = "tensorflow.python.training.py_checkpoint_reader"

# Functions (module, attribute) by the kind of path that their first argument names.
_WRAPPED = {
    _MODE: (  # one file, with a mode as the second argument
        *((_FILE_IO, "FileIO.__init__"), ("h5py", "File.__init__")),
        *(("pyarrow", "OSFile"), ("pyarrow", "memory_map")),
    ),
    _PATTERN: (
        *((_FILE_IO, "get_matching_files"), (_FILE_IO, "get_matching_files_v2")),
        *((_IO_OPS, "matching_files"), ("tensorflow", "io.matching_files")),
        ("tensorflow", "io.gfile.glob"),
    ),
    _STEM: ((_CHECKPOINTS, "NewCheckpointReader"),),
    _NAMES_OF: (  # a folder; walking through one lists each folder below
        *((_FILE_IO, "list_directory"), (_FILE_IO, "list_directory_v2")),
        ("tensorflow", "io.gfile.listdir"),
    ),
    _TREE: (  # files, and folders with all that is in them
        *((_FILE_IO, "copy_v2"), (_IO_OPS, "read_file")),
        *(("tensorflow", f"io.{x}") for x in ("read_file", "gfile.copy")),
        ("tensorflow.python.ops.lookup_ops", "TextFileInitializer.__init__"),
        (_READERS, "TextLineDatasetV2.__init__"),
        (_READERS, "TFRecordDatasetV2.__init__"),
        (_READERS, "FixedLengthRecordDatasetV2.__init__"),
        ("tensorflow.python.data.experimental.ops.readers", "CsvDatasetV2.__init__"),
        ("pyarrow", "input_stream"),
        *(("pyarrow.csv", x) for x in ("read_csv", "open_csv")),
        *(("pyarrow.json", "read_json"), ("pyarrow.feather", "read_table")),
        *(("pyarrow.dataset", "dataset"), ("pyarrow.orc", "ORCFile.__init__")),
        *(("pyarrow.parquet", x) for x in ("read_table", "read_metadata")),
        ("pyarrow.parquet.core", "ParquetFile.__init__"),
        ("pyarrow.parquet.core", "ParquetDataset.__init__"),
        ("pyarrow.parquet.core", "ParquetDataset.__new__"),
        ("pyarrow.parquet.core", "read_table"),
    ),
}
# Imported before, so that parts that the user's code imports later are wrapped too.
_ARROW = ("csv", "json", "feather", "dataset", "orc", "parquet")
_NAMES = (
    *("filename", "filenames", "filepattern", "input_file", "path_or_paths", "path"),
    *("pattern", "source", "where", "src", "dirname", "top", "name"),
)

_originals: list[tuple[Any, str, Any]] = []


def wrap(opened: Report, read: Report, globbed: Report, listed: Report) -> None:
    """Replaces the functions until `unwrap`.

    Args:
      opened: Called with the path of a file, and whether it is opened for writing.
      read: Called with the path of a file or folder.
      globbed: Called with a pattern.
      listed: Called with the path of a folder that is listed.
    """
    for name in _ARROW if "pyarrow" in sys.modules else ():
        with contextlib.suppress(ImportError):  # a build of Arrow without this part
            importlib.import_module(f"pyarrow.{name}")
    reports = {
        _MODE: opened,
        _TREE: lambda value, _: read(value),
        _PATTERN: lambda value, _: globbed(value),
        _NAMES_OF: lambda value, _: listed(value),
        _STEM: lambda value, _: _of_stem(value, opened),
    }
    for kind, functions in _WRAPPED.items():
        for module, name in functions:
            _replace(module, name, reports[kind])


def unwrap() -> None:
    """Restores all that `wrap` has replaced."""
    while _originals:
        setattr(*_originals.pop())


def _replace(module: str, name: str, report: Report) -> None:
    owner: Any = sys.modules.get(module)
    *parents, attribute = name.split(".")
    for parent in parents:
        owner = getattr(owner, parent, None)
    if owner is None or attribute not in vars(owner):
        return  # not imported, or not in this version
    original = vars(owner)[attribute]
    _originals.append((owner, attribute, original))
    setattr(owner, attribute, _wrapper(original, attribute, report))


def _wrapper(original: Any, attribute: str, report: Report) -> Any:
    is_method = attribute in ("__init__", "__new__")
    if isinstance(original, type):
        return _subclass(original, report)
    function = original.__func__ if isinstance(original, staticmethod) else original

    @functools.wraps(function)
    def wrapped(*arguments: Any, **named: Any) -> Any:
        with contextlib.suppress(
            Exception
        ):  # the function itself reports a wrong argument
            _report(arguments[is_method:], named, report)
        return function(*arguments, **named)

    return staticmethod(wrapped) if attribute == "__new__" else wrapped


def _subclass(original: Any, report: Report) -> Any:
    """A subclass that reports each instance when it is made; for classes in C."""

    def new(cls: Any, *arguments: Any, **named: Any) -> Any:
        with contextlib.suppress(Exception):
            _report(arguments, named, report)
        return original.__new__(cls, *arguments, **named)

    return type(original.__name__, (original,), {"__new__": new})


def _report(arguments: tuple[Any, ...], named: dict[str, Any], report: Report) -> None:
    paths = arguments or [named[x] for x in _NAMES if x in named][:1]
    mode = arguments[1] if len(arguments) > 1 else named.get("mode", "r")
    writes = isinstance(mode, str) and mode.startswith(("w", "a", "x"))
    for value in _paths(paths[0]):
        report(value, writes)


def _paths(value: Any) -> Iterator[Any]:
    """The paths in an argument; none in a tensor without a static value."""
    if isinstance(value, (str, bytes, os.PathLike)):
        yield value
    elif isinstance(value, (list, tuple, set)):
        for each in value:
            yield from _paths(each)
    elif hasattr(value, "tolist"):
        yield from _paths(value.tolist())
    elif hasattr(value, "graph") or hasattr(value, "numpy"):
        import tensorflow as tf

        yield from _paths(tf.get_static_value(value))


def _of_stem(value: Any, opened: Report) -> None:
    for path in glob.glob(f"{glob.escape(os.fsdecode(value))}.*"):
        opened(path)
