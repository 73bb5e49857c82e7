"""Files that users name and runs only read, on this machine or in an object store.

Objects are read by Arrow, which needs no TensorFlow and works on both stacks. Errors
are of the types that a local file has, with `filename` and `strerror`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import io
import itertools
import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO

from strategos.components.errors import first_line
from strategos.components.files import arrow_files, filesystems

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow import fs

_BUFFER = 1 << 20  # bytes that one request for an object reads at least


@dataclasses.dataclass(frozen=True)
class Status:
    """Size and age of a file.

    Attributes:
      size: Bytes.
      changed: Nanoseconds since 1970 of the last change. No program can set that of an
        object.
    """

    size: int
    changed: int


def open_binary(path: str) -> BinaryIO:
    """Opens a file for reading.

    Args:
      path: A path or URL.

    Raises:
      OSError: It cannot be opened.
    """
    if not filesystems.is_remote(path):
        return open(path, "rb")
    return io.BufferedReader(open_arrow(path), _BUFFER)


def open_arrow(path: str) -> pa.NativeFile:
    """Opens a file for Arrow's readers, which may read it at any place.

    Args:
      path: A path or URL.

    Raises:
      OSError: It cannot be opened.
    """
    import pyarrow as pa

    if not filesystems.is_remote(path):
        return pa.OSFile(path)
    with _problems(path):
        return arrow_files.connect(path).open_input_file(arrow_files.path_of(path))


def read_bytes(path: str) -> bytes:
    """The content of a file.

    Args:
      path: A path or URL.

    Raises:
      OSError: It cannot be read.
    """
    with _problems(path), open_binary(path) as file:
        return file.read()


def statuses(paths: Sequence[str]) -> list[Status]:
    """Size and age of each file.

    Args:
      paths: Paths; or URLs, all of one kind of object store.

    Raises:
      FileNotFoundError: A file does not exist.
      OSError: The object store does not answer, or rejects that.
    """
    if not paths or not filesystems.is_remote(paths[0]):
        found = map(os.stat, paths)
        return [Status(each.st_size, each.st_mtime_ns) for each in found]
    with _problems(paths[0]):
        inside = [arrow_files.path_of(path) for path in paths]
        infos = arrow_files.connect(paths[0]).get_file_info(inside)
    for path, info in zip(paths, infos, strict=True):
        if info.mtime_ns is None:
            raise FileNotFoundError(errno.ENOENT, "there is no such object", path)
    return [Status(info.size, info.mtime_ns) for info in infos]


def below(url: str, depth: int | None = None) -> tuple[list[str], list[str]]:
    """The URLs of objects and of folders below a URL, sorted, but no hidden ones.

    As for a glob, a name that begins with a dot hides an object or a folder.

    Args:
      url: `s3://BUCKET/FOLDER` or `gs://BUCKET/FOLDER`.
      depth: Levels of folders that are opened below this one; None for all.

    Raises:
      OSError: The object store does not answer, or rejects that.
    """
    if url.startswith("gs://"):
        return _below_by_names(url, None if depth is None else depth + 1)
    from pyarrow import fs

    scheme, path = url.partition("://")[0], arrow_files.path_of(url)
    store = arrow_files.connect(url)
    kinds: dict[Any, list[str]] = {fs.FileType.File: [], fs.FileType.Directory: []}

    def listed(folder: str) -> list[fs.FileInfo]:
        how = {"allow_not_found": True, "recursive": depth is None}
        found = store.get_file_info(fs.FileSelector(folder, **how))
        return [
            info
            for info in found
            if "/." not in info.path[len(path) :] and info.path.rstrip("/") != folder
        ]

    level = [path]
    with _problems(url):
        for _ in range(1 + (depth or 0)):
            infos = list(itertools.chain.from_iterable(arrow_files.each(listed, level)))
            level = [i.path for i in infos if i.type == fs.FileType.Directory]
            for info in infos:
                kinds[info.type].append(f"{scheme}://{info.path}")
    files, folders = map(sorted, kinds.values())
    return files, folders


def _below_by_names(url: str, levels: int | None) -> tuple[list[str], list[str]]:
    """`below` on Cloud Storage, where Arrow lists no folders but those with a marker.

    Args:
      url: `gs://BUCKET/FOLDER`.
      levels: Most names in a path below the URL; None for any number.
    """
    base, start = url.rstrip("/"), len(arrow_files.path_of(url)) + 1
    files, folders = [], set()
    with _problems(url):
        found = arrow_files.files_below(url)
    for info in found:
        names = info.path[start:].split("/")
        most = len(names) if levels is None else levels
        shown = [*itertools.takewhile(lambda name: name[:1] != ".", names)]
        for count in range(1, min(most, len(shown), len(names) - 1) + 1):
            folders.add(f"{base}/{'/'.join(names[:count])}")
        if len(shown) == len(names) <= most:
            files.append(f"{base}/{'/'.join(names)}")
    return sorted(files), sorted(folders)


@contextlib.contextmanager
def _problems(path: str) -> Iterator[Any]:
    """Fills in the errors of Arrow for an object: they have a text only."""
    try:
        yield
    except FileNotFoundError as error:
        if not filesystems.is_remote(path):
            raise
        missing = "there is no such object"
        raise FileNotFoundError(errno.ENOENT, missing, path) from error
    except OSError as error:
        if not filesystems.is_remote(path):
            raise
        text = (
            f"{first_line(str(error))} (check the bucket, and the credentials: "
            f"{filesystems.credentials(path)})"
        )
        raise OSError(errno.EIO, text, path) from error
