"""Targets of pushes in an object store; imported by `targets` when one is a URL."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from strategos.components import exported
from strategos.components.errors import BadInputError, UserError
from strategos.components.files.arrow_files import (
    connect,
    files_below,
    path_of,
    problems_of,
    remove,
    upload_file,
)
from strategos.components.pusher.targets import Target, local, version_of

if TYPE_CHECKING:
    from pyarrow import fs

_KEY = "pusher.to"


class ObjectStore(Target):
    """A folder in an object store, which has no atomic rename.

    `saved_model.pb` is written last and removed first: model servers and `serves` take
    a version as complete while that object exists. One process at a time pushes.
    """

    is_remote = True

    def __init__(self, uri: str, clock: Callable[[], float] = time.time):
        """See `targets.of`."""
        self.uri = uri.rstrip("/")
        self._clock = clock
        self._path = path_of(self.uri)

    def versions(self) -> list[int]:
        """See `Target`."""
        with problems_of(self.uri, _KEY, "read"):
            # Arrow sees a folder on `gs://` only if an empty object stands for it.
            found = files_below(self.uri)
            if not found:
                _check_bucket(connect(self.uri), self.uri)
        below = (each.path[len(self._path) + 1 :].partition("/") for each in found)
        numbers = {version_of(name) for name, _, rest in below if rest}
        return sorted(numbers - {None})

    def serves(self, version: int) -> bool:
        """See `Target`."""
        from pyarrow import fs

        with problems_of(self.uri, _KEY, "read"):
            path = f"{self._path}/{version}/{exported.SAVED_MODEL}"
            (found,) = connect(self.uri).get_file_info([path])
        return found.type == fs.FileType.File

    def remove(self, version: int) -> None:
        """See `Target`."""
        first = f"{self._path}/{version}/{exported.SAVED_MODEL}"
        with problems_of(self.uri, _KEY, "removed"):
            with contextlib.suppress(FileNotFoundError):
                connect(self.uri).delete_file(first)
            remove(self.path(version))

    def read(self, version: int, name: str) -> bytes | None:
        """See `Target`."""
        with problems_of(self.uri, _KEY, "read"):
            try:
                path = f"{self._path}/{version}/{name}"
                with connect(self.uri).open_input_stream(path) as file:
                    return file.read()
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
                self._upload(Path(folder), version, manifest)
            except BaseException:
                with contextlib.suppress(UserError):
                    self.remove(version)
                raise
        self.prune(keep)
        return version

    def _upload(
        self, model: Path, version: int, manifest: Mapping[str, Any] | None
    ) -> None:
        files, folder = connect(self.uri), f"{self._path}/{version}"
        names = {str(p.relative_to(model)) for p in model.rglob("*") if p.is_file()}
        for name in sorted(names - {exported.SAVED_MODEL, exported.MANIFEST}):
            upload_file(model / name, f"{self.uri}/{version}/{name}")
        if manifest is not None:
            about = json.dumps(manifest, indent=2).encode()
            _write(about, files, f"{folder}/{exported.MANIFEST}")
        elif exported.MANIFEST in names:
            place = f"{self.uri}/{version}/{exported.MANIFEST}"
            upload_file(model / exported.MANIFEST, place)
        last = (model / exported.SAVED_MODEL).read_bytes()
        _write(last, files, f"{folder}/{exported.SAVED_MODEL}")


def _check_bucket(files: fs.FileSystem, uri: str) -> None:
    from pyarrow import fs

    bucket = path_of(uri).partition("/")[0]
    (found,) = files.get_file_info([bucket])
    if found.type == fs.FileType.NotFound:
        raise BadInputError(
            f"but there is no bucket `{bucket}`",
            key=_KEY,
            received=uri,
            remedy="Create it, or name another one.",
        )


def _write(content: bytes, files: fs.FileSystem, path: str) -> None:
    with files.open_output_stream(path) as out:
        out.write(content)
