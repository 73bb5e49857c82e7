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
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from strategos.components import events, exported
from strategos.components.errors import PassingError, UserError
from strategos.components.files import commit, filesystems, full_disk

ASIDE = ".tmp-"

_LARGEST = 2**63 - 1
"""The largest number that TensorFlow Serving takes as a version."""


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
          keep: Number of models to keep, the new one included; see `_outdated`. A
            version that cannot be removed is reported as a warning.
          manifest: From `manifest.of`; None if `model` has its own.
          after: The version that must be live until the push, 0 for none; by default
            any.

        Returns:
          The version's number: unix seconds, at least one more than the newest version.

        Raises:
          UserError: The folder cannot be written, a newer version than `after` is
            live, or no number is left for a newer one.
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

    def _next(self, taken: Iterable[str], now: float) -> int:
        """The number of a new version.

        Args:
          taken: Names in the folder.
          now: Unix seconds.

        Raises:
          UserError: No larger number is left.
        """
        newest = max((_number(name) or 0 for name in taken), default=0)
        if newest == _LARGEST:
            raise UserError(
                f"{self.path(newest)} has the largest number that TensorFlow Serving "
                "takes as a version, so no newer one can follow",
                key="pusher.to",
                remedy="Rename it.",
            )
        return max(int(now), newest + 1)

    def _prune(self, keep: int) -> None:
        """Removes old versions; one that cannot be removed is reported."""
        for old in self._outdated(keep):
            try:
                self.remove(old)
            except (OSError, UserError) as error:
                _warn_kept(self.path(old), error)

    def _outdated(self, keep: int) -> list[int]:
        """The versions to remove.

        The `keep` newest versions stay, and the first and the last version of each of
        the `keep` newest models: copies by rollbacks displace no other model.
        """
        numbers, kept = self.versions(), {}
        complete = [each for each in numbers if self.serves(each)]
        for number in reversed(complete):
            model = identity(self.manifest(number))
            if model in kept or len(kept) < keep:
                kept.setdefault(model, []).append(number)
        staying = set(complete[-keep:])
        staying.update(*(of_one[:1] + of_one[-1:] for of_one in kept.values()))
        oldest = min(staying, default=0)
        return [
            each
            for each in numbers
            if each not in staying and (each < oldest or each in complete)
        ]


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


def version_of(name: str) -> int | None:
    """The version of a subfolder by its name; None if its name is no version."""
    number = _number(name)
    return number if number is not None and name == str(number) else None


def _number(name: str) -> int | None:
    """The version that TensorFlow Serving reads from a name; `007` is 7."""
    number = int(name) if re.fullmatch("[0-9]+", name) else None
    return None if number is None or number > _LARGEST else number


def identity(about: Mapping[str, Any]) -> tuple[Any, ...]:
    """The values that differ between two models, from their manifests."""
    number, fingerprint = about.get("model"), about.get("fingerprint")
    if number or not (about.get("run_id") and fingerprint):
        return (number, fingerprint) if number else (object(),)
    return about["run_id"], fingerprint  # pushed on a cluster


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
            version
            for path in folder.iterdir()
            if (version := version_of(path.name)) is not None and path.is_dir()
        )

    def remove(self, version: int) -> None:
        """See `Target`."""
        # Rename first, so that a server never reads half of a version.
        folder = Path(self.path(version))
        _remove(folder.rename(folder.with_name(ASIDE + folder.name)))

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
            try:
                _remove(remains)
            except OSError as error:
                _warn_kept(str(remains), error)
        version = self._next(os.listdir(folder), self._clock())
        _copy(model, Path(self.path(version)), manifest)
        self._prune(keep)
        return version


def _remove(path: Path) -> None:
    """Removes a folder, or a link or a file; the target of a link stays."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def _warn_kept(path: str, error: Exception) -> None:
    inside = os.path.basename(getattr(error, "filename", None) or path)
    because = f" because of {inside} in it" * (inside != os.path.basename(path))
    cause = getattr(error, "strerror", None) or error
    message = f"{path} cannot be removed{because}: {cause}. Remove it by hand."
    if events.sink_path():
        events.emit("warning", message=message)
    else:
        print(f"strategos: {message}", file=sys.stderr)


def _unwritable(folder: str, error: OSError) -> UserError:
    if full_disk.is_reported(str(error)):
        return PassingError(
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
    with commit.aside(folder, ASIDE + folder.name) as aside:
        shutil.copytree(model, aside)
        if manifest is not None:
            place = aside / exported.MANIFEST
            place.parent.mkdir(exist_ok=True)
            place.write_text(json.dumps(manifest, indent=2))
