"""Targets of a push: folders of numbered versions; model servers load the newest.

A new kind of target is a subclass of `Target`, selected by `of`. `strategos validate`
imports this module, so TFX is imported in functions.
"""

from __future__ import annotations

import abc
import contextlib
import fcntl
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from strategos.components import exported
from strategos.components.errors import UserError
from strategos.components.files import filesystems

ASIDE = ".tmp-"


class Target(abc.ABC):
    """Numbered versions of a model in one folder.

    Attributes:
      uri: Canonical path or URL of the folder, without a slash at its end.
      is_remote: Whether the folder is on an object store. Runs do not look for the
        model in production there yet.
    """

    uri: str
    is_remote: bool

    @abc.abstractmethod
    def versions(self) -> list[int]:
        """Numbers of the existing versions, ascending; [] if the folder is missing."""

    @abc.abstractmethod
    def push(
        self, model: str, keep: int, manifest: Mapping[str, Any] | None = None
    ) -> int:
        """Makes `model` the newest version.

        Args:
          model: The SavedModel's folder.
          keep: Number of versions to keep, the new one included, if the target removes
            old versions.
          manifest: From `manifest.of`; None if `model` has its own.

        Returns:
          The version's number: unix seconds, in a local folder at least one more than
          the newest version.

        Raises:
          UserError: The folder cannot be written.
        """

    @abc.abstractmethod
    def serves(self, version: int) -> bool:
        """Whether a version is complete, so that a model server would load it."""

    def path(self, version: int) -> str:
        """The folder or URL of a version."""
        return f"{self.uri}/{version}"


def of(uri: str, clock: Callable[[], float] = time.time) -> Target:
    """The target for a value of `pusher.to`.

    Args:
      uri: A local folder, or a URL that TensorFlow can write to.
      clock: Returns unix seconds.
    """
    return (RemoteFolder if filesystems.is_remote(uri) else Folder)(uri, clock)


class Folder(Target):
    """A local folder. A version appears atomically; `push` removes old versions.

    One process at a time pushes, also where a rollback meets a run: temporary folders
    found there are leftovers of a crash.
    """

    is_remote = False

    def __init__(self, uri: str, clock: Callable[[], float] = time.time):
        """See `of`."""
        self.uri = os.path.realpath(uri)
        self._clock = clock

    def versions(self) -> list[int]:
        """See `Target`."""
        folder = Path(self.uri)
        if not folder.is_dir():
            return []
        return sorted(
            int(path.name)
            for path in folder.iterdir()
            if path.name.isdecimal() and path.is_dir()
        )

    def serves(self, version: int) -> bool:
        """See `Target`."""
        return Path(self.path(version), exported.SAVED_MODEL).is_file()

    def push(
        self, model: str, keep: int, manifest: Mapping[str, Any] | None = None
    ) -> int:
        """See `Target`."""
        folder = Path(self.uri)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with _alone(folder):
                return self._push(folder, model, keep, manifest)
        except OSError as error:
            raise UserError(
                f"{self.uri}: the model cannot be written there: "
                f"{error.strerror or error}",
                key="pusher.to",
                remedy="Make it a folder that this user may write to, with space for "
                "another version.",
            ) from error

    def _push(
        self, folder: Path, model: str, keep: int, manifest: Mapping[str, Any] | None
    ) -> int:
        for remains in folder.glob(f"{ASIDE}*"):
            shutil.rmtree(remains)
        newest = max(self.versions(), default=0)
        version = max(int(self._clock()), newest + 1)
        _copy(model, Path(self.path(version)), manifest)
        for old in self.versions()[:-keep]:
            _remove(Path(self.path(old)))
        return version


class RemoteFolder(Target):
    """A folder in an object store, which has no atomic rename.

    `saved_model.pb` is written last, as TFX's Pusher does, because model servers take
    a version as complete once that file exists. No version is removed.
    """

    is_remote = True

    def __init__(self, uri: str, clock: Callable[[], float] = time.time):
        """See `of`."""
        self.uri = uri.rstrip("/")
        self._clock = clock

    def versions(self) -> list[int]:
        """See `Target`."""
        from tfx.dsl.io import fileio

        names = fileio.listdir(self.uri) if fileio.isdir(self.uri) else []
        return sorted(
            int(n) for n in (name.rstrip("/") for name in names) if n.isdecimal()
        )

    def serves(self, version: int) -> bool:
        """See `Target`."""
        from tfx.dsl.io import fileio

        return fileio.exists(f"{self.path(version)}/{exported.SAVED_MODEL}")

    def push(
        self, model: str, keep: int, manifest: Mapping[str, Any] | None = None
    ) -> int:
        """See `Target`."""
        from tfx.dsl.io import fileio
        from tfx.utils import io_utils

        version = int(self._clock())
        folder = self.path(version)
        if not fileio.exists(folder):
            last = exported.SAVED_MODEL
            io_utils.copy_dir(model, folder, deny_regex_patterns=[r"saved_model\.pb"])
            if manifest is not None:
                place = os.path.join(folder, exported.MANIFEST)
                io_utils.write_string_file(place, json.dumps(manifest, indent=2))
            io_utils.copy_file(os.path.join(model, last), os.path.join(folder, last))
        return version


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Waits for other pushes to a folder; the kernel ends the wait if one dies."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _copy(model: str, folder: Path, manifest: Mapping[str, Any] | None) -> None:
    aside = folder.with_name(ASIDE + folder.name)
    try:
        if filesystems.is_remote(model):
            from tfx.utils import io_utils

            io_utils.copy_dir(model, str(aside))
        else:
            shutil.copytree(model, aside)
        if manifest is not None:
            place = aside / exported.MANIFEST
            place.parent.mkdir(exist_ok=True)
            place.write_text(json.dumps(manifest, indent=2))
        aside.rename(folder)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _remove(folder: Path) -> None:
    # Rename first, so that a server never reads half of a version.
    shutil.rmtree(folder.rename(folder.with_name(ASIDE + folder.name)))
