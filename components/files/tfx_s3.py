"""S3 for TFX's Launcher, where TensorFlow cannot open it: a file-system plugin of TFX.

Executors never use it: they work on local copies.
"""

from __future__ import annotations

import contextlib
import fnmatch
from collections.abc import Iterator

from tfx.dsl.io import filesystem

from strategos.components.errors import UserError
from strategos.components.files import arrow_files
from strategos.components.files.arrow_files import connect, path_of


class S3(filesystem.Filesystem):
    """Those operations of TFX's file systems that its Launcher calls.

    Raises:
      UserError: In each operation, if the store rejects it or does not answer.
    """

    SUPPORTED_SCHEMES = ["s3://"]

    @staticmethod
    def exists(path: str) -> bool:
        """Whether there is such an object or folder."""
        return _kind(path) != "NotFound"

    @staticmethod
    def isdir(path: str) -> bool:
        """Whether there are objects below a URL, or one that stands for the folder."""
        return _kind(path) == "Directory"

    @staticmethod
    def listdir(path: str) -> list[str]:
        """The names in a folder; [] if it is missing."""
        from pyarrow import fs

        selector = fs.FileSelector(path_of(path), allow_not_found=True)
        with _problems(path, "read"):
            return [each.base_name for each in connect(path).get_file_info(selector)]

    @staticmethod
    def glob(pattern: str) -> list[str]:
        """The URLs that fit a pattern."""
        above, _, name = pattern.rpartition("/")
        folders = S3.glob(above) if "*" in above else [above]
        return [
            f"{folder}/{found}"
            for folder in folders
            for found in fnmatch.filter(S3.listdir(folder), name)
        ]

    @staticmethod
    def makedirs(path: str) -> None:
        """Writes the empty objects that stand for a folder and those above it."""
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
        """Removes a folder with all that it contains."""
        with _problems(path, "removed"):
            connect(path).delete_dir(path_of(path))


def _kind(path: str) -> str:
    with _problems(path, "read"):
        (found,) = connect(path).get_file_info([path_of(path)])
    return found.type.name


@contextlib.contextmanager
def _problems(path: str, done: str) -> Iterator[None]:
    """Converts errors of Arrow to those that TFX catches, or to ones for users."""
    try:
        with arrow_files.problems_of(path, "run.root", done):
            yield
    except UserError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            raise filesystem.NotFoundError(path) from error
        raise
