"""Records the files and environment variables that the user's code really uses.

`fingerprint` reads names from source text, which cannot be complete: a name may be
computed. While the user's code runs, each file that it opens or imports, each folder
that it lists and each environment variable that it reads is reported once, as a `used`
event. The orchestrator stores these beside the execution (`pipeline.root.uses`).

Files that Python opens and imports are seen by an audit hook; files that TensorFlow,
Arrow and HDF5 open in C++ by wrapped functions (`library_files`); environment variables
by a subclass of the class of `os.environ`. Everything but the hook, which cannot be
removed, ends with the block. Not seen: subprocesses, other C extensions, the network.
"""

from __future__ import annotations

import contextlib
import glob
import importlib.util
import os
import sys
import sysconfig
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from strategos.components import events, worker_process
from strategos.components.files import patterns
from strategos.components.user_code import library_files, modules

EVENT = "used"
FILE, WRITTEN, FOLDER, NAME = "file", "written", "folder", "variable"
"""Kinds of uses, the fields of the event."""

_OURS = frozenset(
    (
        *("TMPDIR", "TEMP", "TMP", "PYTHONWARNINGS", "TF_CONFIG", "CLUSTER_SPEC"),
        *(*worker_process.TENSORFLOW, *worker_process.NO_GPU),
        *worker_process.ONE_THREAD,
    )
)
"""Variables that Strategos sets for its own processes."""

_PACKAGE = Path(__file__).parents[2]
_INSTALLED = ("/site-packages/", "/dist-packages/")
_STANDARD = sysconfig.get_path("stdlib")
_LIBRARY = (f"{_STANDARD}/", "<frozen ")
_IMPORTS = (f"{_STANDARD}/importlib/", "<frozen importlib")
_OF_NOBODY = (
    *("/proc/", "/sys/", "/dev/", *_LIBRARY),
    *(f"{_PACKAGE}/{x}" for x in ("components/", "pipeline/", "__init__.py")),
    *([f"{sys.prefix}/"] if sys.prefix != sys.base_prefix else []),
)
_AUTOGRAPH = "/tensorflow/python/autograph/"

_lock = threading.RLock()
_depth = 0
_is_hooked = False
_temporary = ""
_scanned: set[tuple[str | None, str | None]] = set()
_reported: set[tuple[str | None, str | None, str, str]] = set()


@contextlib.contextmanager
def recording() -> Iterator[None]:
    """Reports files and variables that this process uses while the block runs.

    Covers all threads. Modules of the user that were imported before count as used.
    Blocks may be nested, and entered by several threads.
    """
    global _depth
    with _lock:
        _depth += 1
        if _depth == 1:
            _start()
    try:
        yield
    finally:
        with _lock:
            _depth -= 1
            if _depth == 0:
                _stop()


def _start() -> None:
    global _is_hooked, _temporary
    _temporary = f"{tempfile.gettempdir()}{os.sep}"
    os.environ.__class__ = _Environ
    library_files.wrap(opened, read, globbed, listed)
    if not _is_hooked:
        _is_hooked = True
        sys.addaudithook(_hook)
    run = events.sink_path(), events.current_node()
    if run not in _scanned:
        _scanned.add(run)
        _report_imported()


def _report_imported() -> None:
    for module in list(sys.modules.values()):
        # Not `getattr`, by which TensorFlow's lazy modules would be imported.
        source = getattr(module, "__dict__", {}).get("__file__")
        # Of thousands of modules, the cheap tests come first.
        if (
            isinstance(source, str)
            and "-packages/" not in source
            and not source.startswith(_OF_NOBODY)
        ):
            opened(source)


def _stop() -> None:
    os.environ.__class__ = os._Environ
    library_files.unwrap()


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if _depth and event in _HANDLERS:
        # An exception would make the user's operation fail.
        with contextlib.suppress(Exception):
            _HANDLERS[event](arguments)


def opened(path: Any, writes: bool = False) -> None:
    """Reports a file.

    Args:
      path: Text, bytes or a path object; anything else is ignored.
      writes: Whether the file was opened to be written.
    """
    if isinstance(path, (str, bytes, os.PathLike)) and "://" not in _text(path):
        name = os.path.abspath(_text(path))
        if not _is_nobodys(name):
            _report(WRITTEN if writes else FILE, _source(name))


def read(path: Any) -> None:
    """Reports a file, or each file below a folder.

    Args:
      path: As for `opened`.
    """
    if isinstance(path, (str, bytes, os.PathLike)) and os.path.isdir(path):
        for folder, _, files in os.walk(_text(path)):
            listed(folder)
            for file in files:
                opened(os.path.join(folder, file))
    else:
        opened(path)


def globbed(pattern: Any) -> None:
    """Reports the files that a pattern matches, and the folder that it begins with.

    Args:
      pattern: As for `opened`.
    """
    if isinstance(pattern, (str, bytes, os.PathLike)) and "://" not in _text(pattern):
        listed(patterns.fixed_folder(_text(pattern)))
        for path in glob.glob(_text(pattern), recursive=True):
            opened(path)


def listed(folder: Any) -> None:
    """Reports a folder that was listed.

    Args:
      folder: As for `opened`.
    """
    if isinstance(folder, (str, bytes, os.PathLike)) and "://" not in _text(folder):
        name = os.path.abspath(_text(folder))
        if not _is_nobodys(name):
            _report(FOLDER, name)


def _text(path: Any) -> str:
    return os.fsdecode(os.fspath(path))


def _source(path: str) -> str:
    """The source of a compiled module; `path` itself for other files."""
    if path.endswith(".pyc"):
        with contextlib.suppress(ValueError, NotImplementedError):
            source = importlib.util.source_from_cache(path)
            return source if os.path.exists(source) else path
    return path


def _is_nobodys(path: str) -> bool:
    """Whether a file is installed, temporary, of the system, or of Strategos."""
    if _is_installed(path):
        return True
    home, folder = modules.active(), f"{path}{os.sep}"
    return folder.startswith(_temporary) and not (home and folder.startswith(home))


def _is_installed(path: str) -> bool:
    path = f"{path}{os.sep}"
    return path.startswith(_OF_NOBODY) or any(part in path for part in _INSTALLED)


def _report(kind: str, name: str) -> None:
    key = (events.sink_path(), events.current_node(), kind, name)
    if key not in _reported:
        _reported.add(key)
        events.emit(EVENT, **{kind: name, "base": modules.active()})


def _on_open(arguments: tuple[Any, ...]) -> None:
    path, _, flags = arguments
    opened(path, bool((flags or 0) & os.O_ACCMODE == os.O_WRONLY))


def _on_import(arguments: tuple[Any, ...]) -> None:
    opened(arguments[1])  # of an extension module; None for others


def _on_list(arguments: tuple[Any, ...]) -> None:
    if _is_users(sys._getframe(2)):
        listed(arguments[0] or ".")


def _on_database(arguments: tuple[Any, ...]) -> None:
    if arguments[0] != ":memory:":
        opened(arguments[0])


_HANDLERS = {
    "open": _on_open,
    "import": _on_import,
    "os.listdir": _on_list,
    "os.scandir": _on_list,
    "sqlite3.connect": _on_database,
}


def _is_users(frame: FrameType | None) -> bool:
    """Whether the user's code calls, directly or through the standard library.

    Installed packages list folders and read variables for purposes of their own, and
    `importlib` lists each folder on the import path.
    """
    while frame is not None:
        file = frame.f_code.co_filename
        if file.startswith(_IMPORTS):
            return False
        if not (file.startswith(_LIBRARY) or _AUTOGRAPH in file):
            return not _is_installed(file)
        frame = frame.f_back
    return False


class _Iterated(str):
    """A name that iteration gave: a copy of the whole environment uses no variable."""


class _Environ(os._Environ):
    """The class of `os.environ` while uses are recorded, whatever name it has."""

    def __getitem__(self, key: Any) -> Any:
        ours = key in _OURS or str(key).startswith("STRATEGOS_")
        if not (isinstance(key, _Iterated) or ours) and _is_users(sys._getframe(1)):
            _report(NAME, str(key))
        return super().__getitem__(key)

    def __iter__(self) -> Iterator[Any]:
        return map(_Iterated, super().__iter__())
