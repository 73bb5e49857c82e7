"""Pushes to a folder with one ZIP file for each version: `zips:///srv/models`."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from strategos import Target, UserError


class Zips(Target):
    """ZIP files, named by their versions."""

    is_remote = True

    @classmethod
    def check(cls, uri: str) -> None:
        if not uri.startswith("zips:///"):
            raise UserError("zips:// needs an absolute path, as in zips:///srv/models")

    def versions(self) -> list[int]:
        return sorted(int(path.stem) for path in self._folder.glob("*.zip"))

    def push(
        self,
        model: str,
        keep: int,
        manifest: Mapping[str, Any] | None = None,
        after: int | None = None,
    ) -> int:
        self.reject_newer(after)
        self._folder.mkdir(parents=True, exist_ok=True)
        version = self.next_version(map(str, self.versions()), self._clock())
        with tempfile.TemporaryDirectory() as scratch:
            made = shutil.make_archive(f"{scratch}/version", "zip", model)
            if manifest is not None:
                with zipfile.ZipFile(made, "a") as archive:
                    archive.writestr(self.MANIFEST, json.dumps(manifest))
            aside = shutil.move(made, self._folder / f".{version}")
        os.rename(aside, self._file(version))
        self.prune(keep)
        return version

    def remove(self, version: int) -> None:
        self._file(version).unlink()

    def serves(self, version: int) -> bool:
        return self._file(version).exists()

    def read(self, version: int, name: str) -> bytes | None:
        with zipfile.ZipFile(self._file(version)) as archive:
            return archive.read(name) if name in archive.namelist() else None

    def download(self, version: int, folder: str) -> None:
        shutil.unpack_archive(self._file(version), folder)

    @property
    def _folder(self) -> Path:
        return Path(self.uri.removeprefix("zips://"))

    def _file(self, version: int) -> Path:
        return self._folder / f"{version}.zip"
