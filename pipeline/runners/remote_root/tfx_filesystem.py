"""Object stores for TFX's Launcher: a file-system plug-in."""

from __future__ import annotations

import contextlib
import fnmatch
import functools
import itertools
import posixpath
from collections.abc import Iterator

from tfx.dsl.io import filesystem, filesystem_registry

from strategos.components.errors import UserError
from strategos.components.files import filesystems, listing, object_stores, storage
from strategos.components.files.object_stores import connect, path_of


def register(uri: str) -> None:
    """Lets TFX's Launcher use a path or URL, and see empty folders in object stores.

    TFX creates the folder of each output beforehand, and reuses an output from the
    cache only if its folder still exists. Stores have objects only, and a folder is a
    common prefix of their names. So an empty object stands for the folder, as in the
    stores' own consoles.

    Args:
      uri: Path or URL.
    """
    if filesystems.is_remote(uri):
        _plug_in()


@functools.cache
def _plug_in() -> None:
    registry = filesystem_registry.DEFAULT_FILESYSTEM_REGISTRY
    registry.register(ObjectStores, priority=0)


class ObjectStores(filesystem.Filesystem):
    """The operations of TFX's file systems that its Launcher calls, by Arrow.

    Raises:
      UserError: In each operation, if the store rejects it or does not answer.
    """

    SUPPORTED_SCHEMES = ["s3://", "gs://"]

    @staticmethod
    def exists(path: str) -> bool:
        """Whether an object or folder exists."""
        with _problems(path, "read"):
            return listing.exists(path)

    @staticmethod
    def isdir(path: str) -> bool:
        """Whether a URL has objects below it, or an object stands for the folder."""
        with _problems(path, "read"):
            (info,) = connect(path).get_file_info([path_of(path)])
            return not info.is_file and listing.exists(path)

    @staticmethod
    def listdir(path: str) -> list[str]:
        """The names in a folder, without hidden ones; [] if it is missing."""
        with _problems(path, "read"):
            urls = itertools.chain(*listing.below(path, depth=0))
            return [posixpath.basename(url) for url in urls]

    @staticmethod
    def glob(pattern: str) -> list[str]:
        """The URLs that fit a pattern."""
        above, _, name = pattern.rpartition("/")
        folders = ObjectStores.glob(above) if "*" in above else [above]
        return [
            f"{folder}/{match}"
            for folder in folders
            for match in fnmatch.filter(ObjectStores.listdir(folder), name)
        ]

    @staticmethod
    def makedirs(path: str) -> None:
        """Writes the empty objects that stand for a folder and its parents.

        On Cloud Storage, Arrow makes a missing bucket, too; so `check_writable` first.
        """
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
        if not ObjectStores.exists(path):
            raise filesystem.NotFoundError(path)
        with _problems(path, "removed"):
            storage.remove(path)


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
