"""Folders and files by path or URL, with the operations of `pathlib.Path`.

For code that keeps small files in a folder that may be in an object store. Objects are
read and written by Arrow, which sees each change at once. A mounted bucket (Cloud
Storage FUSE) does not: by default it shows other machines' changes of a file only after
a minute.
"""

from __future__ import annotations

import contextlib
import fnmatch
import shutil
from pathlib import Path

from strategos.components.errors import UserError
from strategos.components.files import filesystems, listing, object_stores, storage


class RemotePath:
    """A URL with the operations of `pathlib.Path` that exist for objects.

    Args:
      url: `gs://…` or `s3://…`.

    Raises:
      UserError: The URL has another scheme.
    """

    def __init__(self, url: str):
        problem = filesystems.unknown(url)
        if problem:
            raise UserError(f"{url}: {problem}.")
        self._url = url.rstrip("/")

    def __str__(self) -> str:
        """The URL."""
        return self._url

    def __truediv__(self, name: str) -> RemotePath:
        """The URL of an object or folder in this folder."""
        return RemotePath(f"{self._url}/{name}")

    def __lt__(self, other: RemotePath) -> bool:
        """Orders by URL."""
        return self._url < other._url

    @property
    def name(self) -> str:
        """The last part of the URL."""
        return self._url.rpartition("/")[2]

    def absolute(self) -> RemotePath:
        """This URL."""
        return self

    def exists(self) -> bool:
        """Whether the object or folder exists.

        Raises:
          OSError: The store does not answer, or rejects that.
        """
        return listing.exists(self._url, patient=True)

    def mkdir(self, parents: bool = False, exist_ok: bool = False) -> None:
        """Does nothing: folders exist with their objects."""

    def glob(self, pattern: str) -> list[RemotePath]:
        """The objects and folders in this folder that match `pattern`, e.g. `*.json`.

        Raises:
          OSError: The store does not answer, or rejects that.
        """
        start = len(object_stores.path_of(self._url)) + 1
        below = listing.objects(self._url, patient=True)
        names = sorted({each.path[start:].partition("/")[0] for each in below})
        return [self / name for name in fnmatch.filter(names, pattern)]

    def read_text(self) -> str:
        """The content of the object.

        Raises:
          OSError: The object does not exist, or the store does not answer.
        """
        return storage.read(self._url, patient=True).decode()


Place = Path | RemotePath
"""A folder or file, local or in an object store."""


def at(path: str) -> Place:
    """The folder or file at a path or URL."""
    return RemotePath(path) if filesystems.is_remote(path) else Path(path)


def remove(place: Place) -> None:
    """Removes a folder with its content, as far as possible.

    Args:
      place: The folder; it may be missing.
    """
    if isinstance(place, RemotePath):
        with contextlib.suppress(OSError):
            storage.remove(str(place))
    else:
        shutil.rmtree(place, ignore_errors=True)
