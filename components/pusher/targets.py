"""Targets of a push: folders of numbered versions; model servers load the newest.

A new kind of target is a subclass of `Target`, selected by `of`. `strategos validate`
imports this module, so that heavy packages are imported in functions.
"""

from __future__ import annotations

import abc
import contextlib
import fcntl
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from strategos.components import exported
from strategos.components.errors import UserError
from strategos.components.files import filesystems, full_disk

ASIDE = ".tmp-"


class Target(abc.ABC):
    """Numbered versions of a model in one folder.

    Attributes:
      uri: Canonical path or URL of the folder, without a slash at its end.
      is_remote: Whether the folder is in an object store.
    """

    uri: str
    is_remote: bool

    @abc.abstractmethod
    def versions(self) -> list[int]:
        """Numbers of the existing versions, ascending; [] if the folder is missing."""

    @abc.abstractmethod
    def push(
        self,
        model: str,
        keep: int,
        manifest: Mapping[str, Any] | None = None,
        after: int | None = None,
    ) -> int:
        """Makes `model` the newest version.

        Args:
          model: The SavedModel's folder.
          keep: Number of complete versions to keep, the new one included.
          manifest: From `manifest.of`; None if `model` has its own.
          after: The version that must be live until the push, 0 for none; by default
            any.

        Returns:
          The version's number: unix seconds, at least one more than the newest version.

        Raises:
          UserError: The folder cannot be written, or a newer version than `after` is
            live.
        """

    @abc.abstractmethod
    def remove(self, version: int) -> None:
        """Removes a version; to model servers it disappears at once."""

    @abc.abstractmethod
    def serves(self, version: int) -> bool:
        """Whether a version is complete, so that a model server would load it."""

    @abc.abstractmethod
    def read(self, version: int, name: str) -> bytes | None:
        """Reads a file of a version; None if the file is missing."""

    def newest(self) -> int | None:
        """The version that model servers load: the newest complete one."""
        numbers = reversed(self.versions())
        return next((number for number in numbers if self.serves(number)), None)

    def manifest(self, version: int) -> dict[str, Any]:
        """The manifest of a version, see `manifest.of`; `{}` if it has none."""
        try:
            found = json.loads(self.read(version, exported.MANIFEST) or b"{}")
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}

    def reject_newer(self, after: int | None) -> None:
        """Raises a UserError if a newer version than `after` is live; see `push`."""
        newest = self.newest() or 0
        if after is None or newest <= after:
            return
        raise UserError(
            f"version {newest} appeared in {self.uri} during this run, by a rollback "
            "or by another run, so the candidate was not compared with the model that "
            "is live now, and is not pushed",
            key="pusher.to",
            remedy="Run again: a new run compares with the model that is live.",
        )

    def path(self, version: int) -> str:
        """The folder or URL of a version."""
        return f"{self.uri}/{version}"


def of(uri: str, clock: Callable[[], float] = time.time) -> Target:
    """The target for a value of `pusher.to`.

    Args:
      uri: A local folder, or `s3://…` or `gs://…`.
      clock: Returns unix seconds.
    """
    if not filesystems.is_remote(uri):
        return Folder(uri, clock)
    from strategos.components.pusher.object_store import ObjectStore

    return ObjectStore(uri, clock)


def was_in(pushed: str, destination: str) -> bool:
    """Whether a version was pushed to a target, as far as can be known.

    A version whose folder is gone may have been moved to the target.

    Args:
      pushed: Folder of the version when it was pushed.
      destination: `pusher.to` or `pusher.canary`.
    """
    folder = os.path.dirname(pushed)
    if of(folder).uri == of(destination).uri:
        return True
    return not filesystems.is_remote(folder) and not os.path.isdir(folder)


@contextlib.contextmanager
def local(model: str) -> Iterator[str]:
    """Yields a local folder with a model while the block runs.

    Args:
      model: A folder, or the URL of one, which is copied to a temporary folder.

    Raises:
      UserError: The URL cannot be read.
    """
    if not filesystems.is_remote(model):
        yield model
        return
    from strategos.components.files import arrow_files

    with tempfile.TemporaryDirectory() as folder:
        with arrow_files.problems_of(model, "", "read"):
            arrow_files.download(model, folder)
        yield folder


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

    def remove(self, version: int) -> None:
        """See `Target`."""
        # Rename first, so that a server never reads half of a version.
        folder = Path(self.path(version))
        shutil.rmtree(folder.rename(folder.with_name(ASIDE + folder.name)))

    def serves(self, version: int) -> bool:
        """See `Target`."""
        return Path(self.path(version), exported.SAVED_MODEL).is_file()

    def read(self, version: int, name: str) -> bytes | None:
        """See `Target`."""
        try:
            return Path(self.path(version), name).read_bytes()
        except OSError:
            return None

    def push(
        self,
        model: str,
        keep: int,
        manifest: Mapping[str, Any] | None = None,
        after: int | None = None,
    ) -> int:
        """See `Target`."""
        folder = Path(self.uri)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with local(model) as source, _alone(folder):
                self.reject_newer(after)
                return self._push(folder, source, keep, manifest)
        except OSError as error:
            raise _unwritable(self.uri, error) from error

    def _push(
        self, folder: Path, model: str, keep: int, manifest: Mapping[str, Any] | None
    ) -> int:
        for remains in folder.glob(f"{ASIDE}*"):
            shutil.rmtree(remains)
        newest = max(self.versions(), default=0)
        version = max(int(self._clock()), newest + 1)
        _copy(model, Path(self.path(version)), manifest)
        for old in self.versions()[:-keep]:
            self.remove(old)
        return version


def _unwritable(folder: str, error: OSError) -> UserError:
    if full_disk.is_reported(str(error)):
        return UserError(
            f"{folder}: no room for another version {full_disk.free(folder)}",
            key="pusher.to",
            remedy="Make room there and run again: finished nodes are kept. The live "
            "version is as before.",
        )
    cause = error.strerror or str(error)
    if isinstance(error, shutil.Error):  # one entry for each file: from, to, why
        *_, cause = error.args[0][0]
    return UserError(
        f"{folder}: the model cannot be written there: {cause}",
        key="pusher.to",
        remedy="Make it a folder that this user may write to.",
    )


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
        shutil.copytree(model, aside)
        if manifest is not None:
            place = aside / exported.MANIFEST
            place.parent.mkdir(exist_ok=True)
            place.write_text(json.dumps(manifest, indent=2))
        aside.rename(folder)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
