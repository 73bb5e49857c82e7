"""Targets of a push: folders of numbered versions; model servers load the newest.

The scheme of `pusher.to` selects a class of `TARGETS`. `strategos validate` imports
this module, so that heavy packages are imported in functions.

Usage, in a package with the entry point `registry = "package.module:Models"` in the
group `strategos.targets`, for `pusher.to: registry://HOST/NAME`:

    class Models(Target):
        is_remote = True

        def versions(self) -> list[int]:
            return sorted(client(self.uri).versions())
"""

from __future__ import annotations

import abc
import contextlib
import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, ClassVar

from strategos.components import events, exported
from strategos.components.errors import UserError
from strategos.components.files import filesystems, object_stores, storage
from strategos.components.plugins import Registry
from strategos.components.wording import listed

_LARGEST = 2**63 - 1
"""The largest number that TensorFlow Serving takes as a version."""


class Target(abc.ABC):
    """Numbered versions of a model in one folder.

    Args:
      uri: The value of `pusher.to`.
      clock: Returns unix seconds.

    Attributes:
      uri: Canonical path or URL of the folder, without a slash at its end.
      is_remote: Whether the folder is elsewhere than on this machine.
      MANIFEST: Path of the manifest, a JSON file, in the folder of a version.
    """

    MANIFEST: ClassVar[str] = exported.MANIFEST

    uri: str
    is_remote: bool

    def __init__(self, uri: str, clock: Callable[[], float] = time.time):
        self.uri, self._clock = uri.rstrip("/"), clock

    @classmethod
    def check(cls, uri: str) -> None:
        """Rejects a value of `pusher.to` before a run.

        Args:
          uri: The value.

        Raises:
          UserError: The value names no place of this kind.
        """
        del uri  # all are accepted by default

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

    def download(self, version: int, folder: str) -> None:
        """Copies the files of a version to an empty local folder.

        Raises:
          UserError: The version cannot be read.
        """
        raise UserError(f"{self.path(version)}: versions there cannot be copied")

    def newest(self) -> int | None:
        """The version that model servers load: the newest complete one."""
        numbers = reversed(self.versions())
        return next((number for number in numbers if self.serves(number)), None)

    def manifest(self, version: int) -> dict[str, Any]:
        """The manifest of a version, see `manifest.of`; `{}` if it has none."""
        try:
            manifest = json.loads(self.read(version, self.MANIFEST) or b"{}")
        except ValueError:
            return {}
        return manifest if isinstance(manifest, dict) else {}

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

    def next_version(self, taken: Iterable[str], now: float) -> int:
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

    def prune(self, keep: int) -> None:
        """Removes old versions; warns about a version that cannot be removed."""
        for old in self._outdated(keep):
            try:
                self.remove(old)
            except (OSError, UserError) as error:
                warn_kept(self.path(old), error)

    def _outdated(self, keep: int) -> list[int]:
        """The versions to remove.

        The `keep` newest versions stay, and the first and the last version of each of
        the `keep` newest models: copies by rollbacks displace no other model.
        """
        numbers = self.versions()
        kept: dict[Any, list[int]] = {}
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


TARGETS: Registry[Any] = Registry(
    "strategos.targets",
    Target,
    {
        "file": "strategos.components.push_targets.folder:Folder",
        "s3": "strategos.components.push_targets.object_store:ObjectStore",
        "gs": "strategos.components.push_targets.object_store:ObjectStore",
    },
    classes=True,
)
"""Subclasses of `Target` by the scheme of `pusher.to`; `file` for a path."""


def of(uri: str, clock: Callable[[], float] = time.time) -> Target:
    """The target for a value of `pusher.to`.

    Args:
      uri: A local folder, or a URL with a scheme of `TARGETS`.
      clock: Returns unix seconds.
    """
    return kind_of(uri)(uri, clock)


def scheme(uri: str) -> str:
    """The name in `TARGETS` of the class for a value of `pusher.to`."""
    return uri.partition("://")[0] if filesystems.is_remote(uri) else "file"


def kind_of(uri: str) -> type[Target]:
    """The class of target for a value of `pusher.to`.

    Args:
      uri: A local folder, or a URL with a scheme of `TARGETS`.

    Raises:
      UserError: No target has the scheme.
    """
    try:
        return TARGETS[scheme(uri)]
    except KeyError:
        others = listed([f"{name}://" for name in TARGETS if name != "file"], "or")
        raise UserError(
            f"{scheme(uri)}:// is not known",
            key="pusher.to",
            received=uri,
            expected=f"a folder, {others}",
        ) from None


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
    """Whether a version was pushed to a target, or may have been.

    A version may have been moved to the target if its folder is gone.

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
      model: A folder; or its URL, which is copied to a temporary folder.

    Raises:
      UserError: The URL cannot be read.
    """
    if not filesystems.is_remote(model):
        yield model
        return
    with tempfile.TemporaryDirectory() as folder:
        if filesystems.unknown(model):
            parent, _, version = model.rpartition("/")
            of(parent).download(int(version), folder)
        else:
            with object_stores.problems_of(model, "", "read"):
                storage.get(model, folder)
        yield folder


def warn_kept(path: str, error: Exception) -> None:
    """Reports a version that cannot be removed."""
    inside = os.path.basename(getattr(error, "filename", None) or path)
    because = f" because of {inside} in it" * (inside != os.path.basename(path))
    cause = getattr(error, "strerror", None) or error
    message = f"{path} cannot be removed{because}: {cause}. Remove it by hand."
    if events.sink_path():
        events.emit("warning", message=message)
    else:
        print(f"strategos: {message}", file=sys.stderr)
