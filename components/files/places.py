"""Folders and files by path or URL, with the operations of `pathlib.Path`.

For code that keeps small files in a folder that may be in an object store. Objects are
read and written by TensorFlow, which sees each change at once. A mounted bucket
(Cloud Storage FUSE) does not: by default it shows other machines' changes of a file
only after a minute.
"""

from __future__ import annotations

import contextlib
import fnmatch
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path

from strategos.components.files import filesystems


class RemotePath:
    """A URL with those operations of `pathlib.Path` that exist for objects.

    Args:
      url: `gs://…` or `s3://…`.
    """

    def __init__(self, url: str):
        filesystems.register(url)
        self._url = url.rstrip("/")

    def __str__(self) -> str:
        """The URL."""
        return self._url

    def __truediv__(self, name: str) -> RemotePath:
        """The URL of something in this folder."""
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
        """Whether there is such an object or folder."""
        with _problems() as gfile:
            return gfile.exists(self._url)

    def mkdir(self, parents: bool = False, exist_ok: bool = False) -> None:
        """Does nothing: folders exist with their objects."""

    def glob(self, pattern: str) -> list[RemotePath]:
        """The objects and folders in this folder whose names fit `pattern`."""
        try:
            with _problems() as gfile:
                names = [name.rstrip("/") for name in gfile.listdir(self._url)]
        except FileNotFoundError:
            return []
        return [self / name for name in fnmatch.filter(names, pattern)]

    def read_text(self) -> str:
        """The content of the object.

        Raises:
          OSError: It does not exist, or the store does not answer.
        """
        with _problems() as gfile, gfile.GFile(self._url) as file:
            return file.read()

    def write_text(self, text: str) -> None:
        """Writes the object, which appears as a whole.

        Raises:
          OSError: The store rejects that, or does not answer.
        """
        with _problems() as gfile, gfile.GFile(self._url, "w") as file:
            file.write(text)


Place = Path | RemotePath
"""A folder or file, local or in an object store."""


def at(path: str) -> Place:
    """The folder or file at a path or URL."""
    return RemotePath(path) if filesystems.is_remote(path) else Path(path)


def replace_text(place: Place, text: str) -> None:
    """Replaces a file as a whole: readers see the old or the new content.

    Args:
      place: The file; its folder exists.
      text: The new content.
    """
    if isinstance(place, RemotePath):
        place.write_text(text)
        return
    aside = place.with_name(f".{place.stem}-{uuid.uuid4().hex}")
    aside.write_text(text)
    aside.replace(place)


def remove(place: Place) -> None:
    """Removes a folder with all that it contains, as far as that is possible.

    Args:
      place: The folder; it may be missing.
    """
    if isinstance(place, RemotePath):
        with contextlib.suppress(OSError), _problems() as gfile:
            gfile.rmtree(str(place))
    else:
        shutil.rmtree(place, ignore_errors=True)


@contextlib.contextmanager
def _problems() -> Iterator:
    """TensorFlow's `gfile`, whose errors in the block become those of Python."""
    import tensorflow as tf

    try:
        yield tf.io.gfile
    except tf.errors.NotFoundError as error:
        raise FileNotFoundError(error.message) from None
    except tf.errors.OpError as error:
        raise OSError(error.message) from None
