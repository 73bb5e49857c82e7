"""Which files exist, by path or URL.

Errors are of the types that local files have, as in `storage`.
"""

from __future__ import annotations

import glob
import itertools
import os
from typing import Any

from strategos.components.files import filesystems
from strategos.components.files.object_stores import (
    connect,
    each,
    errors_of,
    path_of,
    problems_of,
)
from strategos.components.slow_imports import fs


def exists(path: str, *, patient: bool = False) -> bool:
    """Whether a file or folder exists.

    Args:
      path: A path or URL.
      patient: As for `connect`.

    Raises:
      OSError: The object store does not answer, or rejects that.
    """
    if not filesystems.is_remote(path):
        return os.path.exists(path)
    with errors_of(path):
        info = connect(path, patient=patient).get_file_info(path_of(path))
    # A folder in Cloud Storage is no more than a part of names.
    return info.type.name != "NotFound" or bool(objects(path, patient=patient))


def objects(uri: str, *, patient: bool = False) -> list[fs.FileInfo]:
    """Lists all objects below a URL; [] if none exist.

    Args:
      uri: `s3://…` or `gs://…`.
      patient: As for `connect`.

    Raises:
      OSError: The object store does not answer, or rejects that.
    """
    return [each for each in _all_below(uri, patient=patient) if each.is_file]


def _all_below(uri: str, *, patient: bool = False) -> list[fs.FileInfo]:
    """Like `objects`, with the empty objects that stand for folders."""
    below = fs.FileSelector(path_of(uri), allow_not_found=True, recursive=True)
    with errors_of(uri):
        return connect(uri, patient=patient).get_file_info(below)


def below(
    url: str, depth: int | None = None, *, patient: bool = False
) -> tuple[list[str], list[str]]:
    """The URLs of objects and of folders below a URL, sorted, without hidden ones.

    As in a glob, a name that begins with a dot hides an object or a folder.

    Args:
      url: `s3://BUCKET/FOLDER` or `gs://BUCKET/FOLDER`.
      depth: Levels of folders to open below the URL; None for all.
      patient: As for `connect`.

    Raises:
      OSError: The object store does not answer, or rejects that.
    """
    if url.startswith("gs://"):
        levels = None if depth is None else depth + 1
        return _below_by_names(url, levels, patient=patient)
    scheme, path = url.partition("://")[0], path_of(url)
    kinds: dict[Any, list[str]] = {fs.FileType.File: [], fs.FileType.Directory: []}

    def listed(folder: str) -> list[fs.FileInfo]:
        how = {"allow_not_found": True, "recursive": depth is None}
        selector = fs.FileSelector(folder, **how)
        entries = connect(url, patient=patient).get_file_info(selector)
        return [
            info
            for info in entries
            if "/." not in info.path[len(path) :] and info.path.rstrip("/") != folder
        ]

    level = [path]
    with errors_of(url):
        for _ in range(1 + (depth or 0)):
            infos = list(itertools.chain.from_iterable(each(listed, level)))
            level = [i.path for i in infos if i.type == fs.FileType.Directory]
            for info in infos:
                kinds[info.type].append(f"{scheme}://{info.path}")
    files, folders = map(sorted, kinds.values())
    return files, folders


def _below_by_names(
    url: str, levels: int | None, *, patient: bool
) -> tuple[list[str], list[str]]:
    """`below` on Cloud Storage, where Arrow lists only folders with a marker.

    Args:
      url: `gs://BUCKET/FOLDER`.
      levels: Most names in a path below the URL; None for any number.
      patient: As for `connect`.
    """
    base, start = url.rstrip("/"), len(path_of(url)) + 1
    files, folders = [], set()
    for info in _all_below(url, patient=patient):
        names = info.path[start:].rstrip("/").split("/")
        most = len(names) if levels is None else levels
        shown = [*itertools.takewhile(lambda name: name[:1] != ".", names)]
        above = len(names) - info.is_file  # names of folders
        for count in range(1, min(most, len(shown), above) + 1):
            folders.add(f"{base}/{'/'.join(names[:count])}")
        if info.is_file and len(shown) == len(names) <= most:
            files.append(f"{base}/{'/'.join(names)}")
    return sorted(files), sorted(folders)


def listed(folder: str, *, patient: bool = False) -> list[str]:
    """The files in a folder, sorted, without hidden ones; [] if it is missing.

    Args:
      folder: A path or URL.
      patient: As for `connect`.

    Raises:
      UserError: The object store does not answer, or rejects that.
    """
    if filesystems.is_remote(folder):
        with problems_of(folder, "run.root", "read"):
            return below(folder, depth=0, patient=patient)[0]
    matches = glob.glob(os.path.join(glob.escape(folder), "*"))
    return sorted(filter(os.path.isfile, matches))
