"""The target of pushes that is a folder of this machine; imported by `targets`."""

from __future__ import annotations

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
from strategos.components.errors import PassingError, UserError
from strategos.components.files import commit, full_disk
from strategos.components.push_targets import reports
from strategos.components.push_targets.targets import (
    Target,
    local,
    version_of,
    warn_kept,
)

ASIDE = ".tmp-"


class Folder(Target):
    """A local folder. A version appears atomically; `push` removes old versions.

    One process at a time pushes, also if a rollback meets a run; so temporary folders
    in the target are leftovers of a crash.
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
        reports.remove(self.uri, version)
        # Rename first, so that a server never reads half of a version.
        folder = Path(self.path(version))
        commit.remove(folder.rename(folder.with_name(ASIDE + folder.name)))

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
                commit.remove(remains)
            except OSError as error:
                warn_kept(str(remains), error)
        version = self.next_version(os.listdir(folder), self._clock())
        _copy(model, Path(self.path(version)), manifest)
        self.prune(keep)
        return version


def _unwritable(folder: str, error: OSError) -> UserError:
    text = str(error)
    if full_disk.is_reported(text) and full_disk.limit_of(text) is None:
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
    """Waits for other pushes to a folder; the kernel unlocks if a process dies."""
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
            place = aside / Target.MANIFEST
            place.parent.mkdir(exist_ok=True)
            place.write_text(json.dumps(manifest, indent=2))
