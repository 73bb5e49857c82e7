"""Files by path or URL: open, read, write, stat, get, put, remove.

Errors are of the types that local files have, with `filename` and `strerror`;
`object_stores.problems_of` makes them errors for users.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import errno
import io
import os
import shutil
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from strategos.components.files import commit, filesystems, listing
from strategos.components.files.object_stores import (
    connect,
    each,
    errors_of,
    path_of,
)
from strategos.components.slow_imports import fs, pa

CHUNK = 1 << 22
"""Bytes of a file that are in memory at once."""

_BUFFER = 1 << 20  # bytes that one request for an object reads at least


@dataclasses.dataclass(frozen=True)
class Status:
    """Size and age of a file.

    Attributes:
      size: Bytes.
      changed: Time of the last change, in nanoseconds since 1970. No program can set
        the time of an object.
    """

    size: int
    changed: int


def open_binary(path: str, *, patient: bool = False) -> BinaryIO:
    """Opens a file for reading.

    Args:
      path: A path or URL.
      patient: As for `connect`.

    Raises:
      OSError: It cannot be opened.
    """
    if not filesystems.is_remote(path):
        return open(path, "rb")
    return io.BufferedReader(open_arrow(path, patient=patient), _BUFFER)


def open_arrow(path: str, *, patient: bool = False) -> pa.NativeFile:
    """Opens a file for Arrow's readers, which may read it at any place.

    Args:
      path: A path or URL.
      patient: As for `connect`.

    Raises:
      OSError: It cannot be opened.
    """
    if not filesystems.is_remote(path):
        return pa.OSFile(path)
    with errors_of(path):
        return connect(path, patient=patient).open_input_file(path_of(path))


def open_stream(path: str, *, gzip: bool, patient: bool = False) -> pa.NativeFile:
    """Opens a file to be read once, from its start to its end.

    Args:
      path: A path or URL.
      gzip: Whether its content is decompressed.
      patient: As for `connect`.

    Raises:
      OSError: It cannot be opened.
    """
    how = "gzip" if gzip else None
    if not filesystems.is_remote(path):
        return pa.input_stream(path, compression=how)
    with errors_of(path):
        files = connect(path, patient=patient)
        # By default, Arrow decompresses objects by their names.
        return files.open_input_stream(path_of(path), how, buffer_size=CHUNK)


def read(path: str, *, patient: bool = False) -> bytes:
    """The content of a file.

    Args:
      path: A path or URL.
      patient: As for `connect`.

    Raises:
      OSError: The file cannot be read.
    """
    if not filesystems.is_remote(path):
        return Path(path).read_bytes()
    with errors_of(path):
        files = connect(path, patient=patient)
        with files.open_input_stream(path_of(path), compression=None) as file:
            return file.read()


def write(path: str, content: str | bytes) -> None:
    """Replaces a file: readers see the old content or the new.

    Args:
      path: A path (its folder is created if missing) or a URL.
      content: The new content; text becomes UTF-8.

    Raises:
      OSError: The file cannot be written.
    """
    with create(path) as out:
        out.write(content.encode() if isinstance(content, str) else content)


@contextlib.contextmanager
def create(path: str) -> Iterator[BinaryIO]:
    """Opens a file for writing; it appears, or replaces an earlier one, as a whole.

    If the block fails, or the process ends in it, no file appears, and an earlier one
    stays as it was.

    Args:
      path: A path (its folder is created if missing) or a URL.

    Raises:
      OSError: The file cannot be written.
    """
    if not filesystems.is_remote(path):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with commit.aside(path) as made, made.open("wb") as file:
            yield file
        return
    with errors_of(path):
        files = connect(path, patient=True)
        # By default, Arrow compresses objects named `.gz`.
        out = files.open_output_stream(path_of(path), compression=None)
        # Arrow cannot abort an upload: closing or deleting its stream completes it. The
        # stream of a block that fails is never deleted, not even when Python ends.
        kept = ctypes.py_object(out)
        ctypes.pythonapi.Py_IncRef(kept)
        try:
            yield out
        except BaseException:
            with contextlib.suppress(OSError):
                out.flush()  # Arrow crashes if Python ends while a part is sent
            raise
        out.close()
        ctypes.pythonapi.Py_DecRef(kept)


def move(source: str, target: str) -> None:
    """Renames a file; another file at the new place is replaced.

    Args:
      source: A path or URL.
      target: A path, in an existing folder, or a URL of the same store.

    Raises:
      OSError: The file cannot be renamed.
    """
    if not filesystems.is_remote(source):
        os.replace(source, target)
        return
    with errors_of(source):
        connect(source, patient=True).move(path_of(source), path_of(target))


def statuses(paths: Sequence[str]) -> list[Status]:
    """Size and age of each file.

    Args:
      paths: Paths; or URLs, all of one kind of object store.

    Raises:
      FileNotFoundError: A file does not exist.
      OSError: The object store does not answer, or rejects that.
    """
    if not paths or not filesystems.is_remote(paths[0]):
        stats = map(os.stat, paths)
        return [Status(each.st_size, each.st_mtime_ns) for each in stats]
    with errors_of(paths[0]):
        infos = connect(paths[0]).get_file_info([path_of(path) for path in paths])
    for path, info in zip(paths, infos, strict=True):
        if info.mtime_ns is None:
            raise FileNotFoundError(errno.ENOENT, "object not found", path)
    return [Status(info.size, info.mtime_ns) for info in infos]


def get(uri: str, target: str) -> None:
    """Copies an object to a file, or everything below a URL into a folder.

    Args:
      uri: `s3://…` or `gs://…`.
      target: A local file or folder, created with the folders above it.

    Raises:
      FileNotFoundError: No objects exist.
      OSError: The object store does not answer, or rejects that.
    """
    files, path = connect(uri, patient=True), path_of(uri)

    def fetch(info: fs.FileInfo) -> None:
        file = Path(target + info.path[len(path) :])
        file.parent.mkdir(parents=True, exist_ok=True)
        with (
            files.open_input_stream(info.path, compression=None) as source,
            file.open("wb") as out,
        ):
            shutil.copyfileobj(source, out, CHUNK)

    with errors_of(uri):
        infos = [files.get_file_info(path)]
        if infos[0].type != fs.FileType.File:
            infos = listing.objects(uri, patient=True)
        if not infos:
            raise FileNotFoundError
        each(fetch, infos)


def put(
    source: str | Path,
    uri: str,
    *,
    left_out: Collection[str] = (),
    last: str | None = None,
) -> None:
    """Copies a file, or all files below a folder, to a URL.

    An object appears as a whole. Links to folders are not followed.

    Args:
      source: A local file or folder.
      uri: `s3://…` or `gs://…`.
      left_out: Files in the folder that are not copied.
      last: The file in the folder that is copied after all others, so that an object
        of its name stands for a complete copy.

    Raises:
      OSError: A file cannot be read, or the object store does not answer or rejects
        that.
    """
    uri, names = uri.rstrip("/"), _names(source)

    def send(name: str) -> None:
        target = f"{uri}/{name}" if name else uri
        with Path(source, name).open("rb") as file, create(target) as out:
            shutil.copyfileobj(file, out, CHUNK)

    each(send, [name for name in names if name not in {*left_out, last}])
    if last is not None:
        send(last)


def _names(source: str | Path) -> list[str]:
    """The files below a folder, by their paths in it; a file itself is "" in it."""
    if not os.path.isdir(source):
        return [""]
    walk = () if os.path.islink(source) else os.walk(source)
    return [
        os.path.relpath(os.path.join(parent, name), source)
        for parent, _, names in walk
        for name in names
    ]


def remove(path: str) -> None:
    """Removes a file, a link, or a folder with its content, if it exists.

    Args:
      path: A path or URL.

    Raises:
      OSError: The path cannot be removed.
    """
    if not filesystems.is_remote(path):
        commit.remove(path)
        return
    files, inside = connect(path, patient=True), path_of(path)
    with errors_of(path):
        is_file = files.get_file_info(inside).is_file
        try:
            (files.delete_file if is_file else files.delete_dir)(inside)
        except FileNotFoundError:
            pass
        except OSError:  # newer Arrows raise it for a missing folder on Cloud Storage
            if listing.objects(path, patient=True):
                raise
