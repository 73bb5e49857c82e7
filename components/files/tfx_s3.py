"""S3 for TFX's Launcher: a file-system plugin."""

from __future__ import annotations

import contextlib
import fnmatch
import functools
from collections.abc import Iterator

from tfx.dsl.io import filesystem, filesystem_registry

from strategos.components.errors import UserError
from strategos.components.files import filesystems, object_stores
from strategos.components.files.object_stores import connect, path_of
from strategos.components.slow_imports import fs


def register(uri: str) -> None:
    """Lets TFX's Launcher use a path or URL, and see empty folders on S3.

    TFX creates the folder of each output beforehand, and reuses an output from the
    cache only if its folder still exists. S3 has objects only, and a folder is a common
    prefix of their names. So an empty object stands for the folder, as in S3's own
    console.

    Args:
      uri: Path or URL.
    """
    if filesystems.needs_copies(uri):
        _plug_in()


@functools.cache
def _plug_in() -> None:
    filesystem_registry.DEFAULT_FILESYSTEM_REGISTRY.register(S3, priority=0)


class S3(filesystem.Filesystem):
    """The operations of TFX's file systems that its Launcher calls, by Arrow.

    Raises:
      UserError: In each operation, if the store rejects it or does not answer.
    """

    SUPPORTED_SCHEMES = ["s3://"]

    @staticmethod
    def exists(path: str) -> bool:
        """Whether an object or folder exists."""
        return _kind(path) != "NotFound"

    @staticmethod
    def isdir(path: str) -> bool:
        """Whether a URL has objects below it, or an object stands for the folder."""
        return _kind(path) == "Directory"

    @staticmethod
    def listdir(path: str) -> list[str]:
        """The names in a folder; [] if it is missing."""
        selector = fs.FileSelector(path_of(path), allow_not_found=True)
        with _problems(path, "read"):
            return [each.base_name for each in connect(path).get_file_info(selector)]

    @staticmethod
    def glob(pattern: str) -> list[str]:
        """The URLs that fit a pattern."""
        above, _, name = pattern.rpartition("/")
        folders = S3.glob(above) if "*" in above else [above]
        return [
            f"{folder}/{match}"
            for folder in folders
            for match in fnmatch.filter(S3.listdir(folder), name)
        ]

    @staticmethod
    def makedirs(path: str) -> None:
        """Writes the empty objects that stand for a folder and its parents."""
        with _problems(path, "written"):
            connect(path).create_dir(path_of(path))

    mkdir = makedirs

    @staticmethod
    def remove(path: str) -> None:
        """Removes an object."""
        with _problems(path, "removed"):
            connect(path).delete_file(path_of(path))

    @staticmethod
    def rmtree(path: str) -> None:
        """Removes a folder with its content."""
        with _problems(path, "removed"):
            connect(path).delete_dir(path_of(path))


def _kind(path: str) -> str:
    with _problems(path, "read"):
        (info,) = connect(path).get_file_info([path_of(path)])
    return info.type.name


@contextlib.contextmanager
def _problems(path: str, done: str) -> Iterator[None]:
    """Converts errors of Arrow to TFX's NotFoundError, or to a UserError."""
    try:
        with object_stores.problems_of(path, "run.root", done):
            yield
    except UserError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            raise filesystem.NotFoundError(path) from error
        raise
