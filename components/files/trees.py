"""Trees of files, local or in an object store: folders, sizes and ages."""

from __future__ import annotations

import abc
import os
import posixpath
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

from strategos.components.files import filesystems, listing, object_stores, storage


class Tree(abc.ABC):
    """The folders and files below a root.

    Attributes:
      root: Canonical path or URL of the root, without a slash at its end.
    """

    root: str

    @abc.abstractmethod
    def folders(self, path: str) -> list[str]:
        """The folders in a folder, as paths or URLs; [] if it is missing.

        Args:
          path: The root, or a path or URL below it.
        """

    @abc.abstractmethod
    def size(self, path: str) -> int:
        """Bytes of all files at or below a path or URL."""

    @abc.abstractmethod
    def touched(self, path: str) -> float:
        """The newest change at or below a path or URL, Unix seconds."""


def of(root: str) -> Tree:
    """The tree below a root.

    Args:
      root: A path or a URL.

    Raises:
      UserError: The object store cannot be read.
    """
    return (ObjectTree if filesystems.is_remote(root) else LocalTree)(root)


def remove(path: str) -> None:
    """Removes a file, a link or a folder, if it exists.

    Args:
      path: A path or a URL.

    Raises:
      UserError: The object store rejects the request or does not answer.
    """
    with object_stores.problems_of(path, "run.root", "removed"):
        storage.remove(path)


class LocalTree(Tree):
    """A folder of this machine; links are not followed."""

    def __init__(self, root: str):
        """See `of`."""
        self.root = os.path.realpath(root)

    def folders(self, path: str) -> list[str]:
        """See `Tree`."""
        folder = Path(path)
        if not folder.is_dir():
            return []
        return [str(each) for each in folder.iterdir() if each.is_dir()]

    def size(self, path: str) -> int:
        """See `Tree`."""
        files = _at_or_below(Path(path))
        return sum(each.lstat().st_size for each in files if os.path.lexists(each))

    def touched(self, path: str) -> float:
        """See `Tree`."""
        return max(each.lstat().st_mtime for each in _at_or_below(Path(path)))


class ObjectTree(Tree):
    """Objects below a URL, as they were when the tree was made.

    Folders without objects do not exist, even if an empty object stands for them.
    """

    def __init__(self, root: str):
        """See `of`."""
        self.root = root.rstrip("/")
        self._folders: dict[str, set[str]] = defaultdict(set)
        self._sizes: Counter[str] = Counter()
        self._touched: dict[str, float] = {}
        with object_stores.problems_of(self.root, "run.root", "read"):
            objects = listing.objects(self.root)
        scheme = self.root.partition("://")[0]
        for each in objects:
            self._add(f"{scheme}://{each.path}", each.size, each.mtime.timestamp())

    def _add(self, path: str, size: int, touched: float) -> None:
        """Adds an object, and its size and time to the folders above it."""
        is_folder = False
        while path != self.root:
            self._sizes[path] += size
            self._touched[path] = max(self._touched.get(path, 0.0), touched)
            folder = posixpath.dirname(path)
            if is_folder:
                self._folders[folder].add(path)
            path, is_folder = folder, True

    def folders(self, path: str) -> list[str]:
        """See `Tree`."""
        return sorted(self._folders[path])

    def size(self, path: str) -> int:
        """See `Tree`."""
        return self._sizes[path]

    def touched(self, path: str) -> float:
        """See `Tree`."""
        return self._touched.get(path, 0.0)


def _at_or_below(path: Path) -> Iterator[Path]:
    yield path
    if path.is_dir() and not path.is_symlink():
        yield from path.rglob("*")
