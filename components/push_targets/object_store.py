"""Targets of pushes in an object store; imported by `targets` when one is a URL."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from typing import Any

from strategos.components import exported
from strategos.components.errors import BadInputError, UserError
from strategos.components.files import listing, storage
from strategos.components.files.object_stores import connect, path_of, problems_of
from strategos.components.push_targets import reports
from strategos.components.push_targets.targets import Target, local, version_of
from strategos.components.slow_imports import fs

_KEY = "pusher.to"


class ObjectStore(Target):
    """A folder in an object store, which has no atomic rename.

    `saved_model.pb` is written last and removed first: model servers and `serves` take
    a version as complete while that object exists. One process at a time pushes.
    """

    is_remote = True

    def versions(self) -> list[int]:
        """See `Target`."""
        with problems_of(self.uri, _KEY, "read"):
            # Arrow sees a folder on `gs://` only if an empty object stands for it.
            objects = listing.objects(self.uri)
            if not objects:
                _check_bucket(self.uri)
        start = len(path_of(self.uri)) + 1
        below = (each.path[start:].partition("/") for each in objects)
        numbers = {version_of(name) for name, _, rest in below if rest}
        return sorted(number for number in numbers if number is not None)

    def serves(self, version: int) -> bool:
        """See `Target`."""
        with problems_of(self.uri, _KEY, "read"):
            return listing.exists(f"{self.path(version)}/{exported.SAVED_MODEL}")

    def remove(self, version: int) -> None:
        """See `Target`."""
        first = f"{self.path(version)}/{exported.SAVED_MODEL}"
        with problems_of(self.uri, _KEY, "removed"):
            reports.remove(self.uri, version)
            with contextlib.suppress(FileNotFoundError):
                connect(first).delete_file(path_of(first))
            storage.remove(self.path(version))

    def read(self, version: int, name: str) -> bytes | None:
        """See `Target`."""
        with problems_of(self.uri, _KEY, "read"):
            try:
                return storage.read(f"{self.path(version)}/{name}")
            except FileNotFoundError:
                return None

    def push(
        self,
        model: str,
        keep: int,
        manifest: Mapping[str, Any] | None = None,
        after: int | None = None,
    ) -> int:
        """See `Target`."""
        self.reject_newer(after)
        version = self.next_version(map(str, self.versions()), self._clock())
        with local(model) as folder, problems_of(self.uri, _KEY, "written"):
            try:
                self._upload(folder, version, manifest)
            except BaseException:
                with contextlib.suppress(UserError):
                    self.remove(version)
                raise
        self.prune(keep)
        return version

    def _upload(
        self, model: str, version: int, manifest: Mapping[str, Any] | None
    ) -> None:
        own = [] if manifest is None else [self.MANIFEST]
        url = self.path(version)
        for name in own:
            storage.write(f"{url}/{name}", json.dumps(manifest, indent=2))
        storage.put(model, url, left_out=own, last=exported.SAVED_MODEL)


def _check_bucket(uri: str) -> None:
    bucket = path_of(uri).partition("/")[0]
    (info,) = connect(uri).get_file_info([bucket])
    if info.type == fs.FileType.NotFound:
        raise BadInputError(
            f"bucket `{bucket}` does not exist",
            key=_KEY,
            received=uri,
            remedy="Create it, or name another one.",
        )
