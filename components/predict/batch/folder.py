"""The folder of predictions: whole if it has a manifest, resumed if it has none.

    predictions-00000-of-00012.parquet   a file for each shard of the data
    _rejected/00003.jsonl                rows that cannot be read, if they are set aside
    _manifest.json                       written last
    .predicting-KEY/                     until then: the files so far, with a record for
                                         each that is complete

Readers of a folder of data files (Arrow, pandas, Spark) ignore names that begin with an
underscore or a dot. KEY stands for all that the predictions depend on: the same command
goes on after a kill, and another one begins anew.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import os
import time
from collections.abc import Iterator, Mapping
from typing import Any

from strategos.components.data_files.findings import rejected
from strategos.components.errors import BadInputError, UserError
from strategos.components.files import filesystems, listing, object_stores, storage
from strategos.components.push_targets.predictions import MANIFEST, lost

REJECTED = "_rejected"
_STAGING = ".predicting-"
_LOCK = ".predicting.lock"
_NAME = "predictions"


@dataclasses.dataclass(frozen=True)
class OutputFolder:
    """A folder for the predictions of one command.

    Attributes:
      path: Absolute path or URL.
      key: Hash of all that the predictions depend on.
      suffix: End of the names of the files.
    """

    path: str
    key: str
    suffix: str

    @classmethod
    def below(cls, parent: str, key: str, suffix: str) -> OutputFolder:
        """The folder for predictions in a folder that has those of many runs.

        Args:
          parent: Absolute path or URL; its folders are named by time and key.
          key: As above. Predictions that are there already, or that were begun, keep
            their folder.
          suffix: As above.

        Raises:
          BadInputError: `parent` is no folder.
        """
        now = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
        made = cls(f"{parent}/{now}-{key}", key, suffix)
        for name in reversed(cls(parent, key, suffix)._entries()):
            known = cls(f"{parent}/{name}", key, suffix)
            is_ours = name.endswith(f"-{key}")
            if is_ours and (known._is_begun() or not lost(known.path)):
                return known
        return made

    def check(self) -> None:
        """Rejects a folder with other files, or one that cannot be written.

        Raises:
          BadInputError: Names the folder and one of its files.
        """
        for name in self._entries():
            if name.startswith(_STAGING) or name == _LOCK:
                continue
            ours = name.startswith(f"{_NAME}-") or name == REJECTED
            if ours and self._is_begun():
                continue  # killed while it published
            what = f"`{name}`"
            if listing.exists(f"{self.path}/{MANIFEST}"):
                what = "the predictions of an earlier command"
            raise BadInputError(
                f"the folder has {what}",
                key="--output",
                received=self.path,
                remedy="Name a new or empty folder, or remove this one.",
            )
        try:
            storage.write(f"{self.staging}/key", self.key)
        except OSError as error:
            raise BadInputError(
                f"the folder cannot be written: {error.strerror or error}",
                key="--output",
                received=self.path,
            ) from error

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Keeps other processes of this machine from the folder, during the block.

        Raises:
          BadInputError: Another process predicts into the folder.
        """
        if filesystems.is_remote(self.path):
            yield
            return
        with open(f"{self.path}/{_LOCK}", "ab") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise BadInputError(
                    "another command predicts into the folder",
                    key="--output",
                    received=self.path,
                    remedy="Wait for it, or name another folder.",
                ) from None
            yield
            with contextlib.suppress(OSError):
                os.unlink(lock.name)

    def begin(self) -> None:
        """Removes the staged files of commands with another key."""
        for name in self._entries():
            if name.startswith(_STAGING) and f"{self.path}/{name}" != self.staging:
                storage.remove(f"{self.path}/{name}")

    def discard(self) -> None:
        """Removes the files of this command, as it cannot be completed."""
        with contextlib.suppress(OSError):
            storage.remove(self.staging)
        if not filesystems.is_remote(self.path):
            with contextlib.suppress(OSError):  # has other files
                os.unlink(f"{self.path}/{_LOCK}")
                os.rmdir(self.path)

    @property
    def staging(self) -> str:
        """The folder for files that are not complete."""
        return f"{self.path}/{_STAGING}{self.key}"

    def part(self, shard: int) -> str:
        """The file of a shard, until it is published.

        Args:
          shard: Number of the shard.
        """
        return f"{self.staging}/part-{shard:05}"

    def record(self, shard: int) -> dict[str, Any] | None:
        """The facts of a shard from `complete`; None if it is not complete.

        Args:
          shard: Number of the shard.
        """
        path = f"{self.staging}/{shard:05}.json"
        if not listing.exists(path, patient=True):
            return None
        recorded: dict[str, Any] = json.loads(storage.read(path, patient=True))
        return recorded

    def complete(self, shard: int, about: Mapping[str, Any]) -> None:
        """Records that the file of a shard is complete.

        Args:
          shard: Number of the shard.
          about: JSON-able facts of the file.
        """
        storage.write(f"{self.staging}/{shard:05}.json", json.dumps(about))

    def publish(self, shards: int, manifest: Mapping[str, Any]) -> list[str]:
        """Gives all files their final names, and writes the manifest.

        Args:
          shards: Number of shards, all of them complete.
          manifest: JSON-able facts of the predictions; `files` gets the size of each.

        Returns:
          The names of the files.

        Raises:
          UserError: A file is missing: another command has used the folder.
        """
        moves = [(self.part(n), self.name(n, shards)) for n in range(shards)]
        for file in listing.listed(f"{self.staging}/{rejected.FOLDER}"):
            moves.append((file, f"{REJECTED}/{os.path.basename(file)}"))
        if not filesystems.is_remote(self.path):
            os.makedirs(f"{self.path}/{REJECTED}", exist_ok=True)
        object_stores.each(self._move, moves)
        if not filesystems.is_remote(self.path):
            with contextlib.suppress(OSError):  # rows were rejected
                os.rmdir(f"{self.path}/{REJECTED}")
        names = [name for _, name in moves[:shards]]
        sizes = storage.statuses([f"{self.path}/{name}" for name in names])
        files = [
            {"name": name, **about, "bytes": size.size}
            for name, about, size in zip(names, manifest["files"], sizes, strict=True)
        ]
        content = json.dumps({**manifest, "files": files}, indent=1)
        storage.write(f"{self.path}/{MANIFEST}", content + "\n")
        storage.remove(self.staging)
        return names

    def name(self, shard: int, shards: int) -> str:
        """The final name of a file.

        Args:
          shard: Number of the shard.
          shards: Number of all shards.
        """
        return f"{_NAME}-{shard:05}-of-{shards:05}{self.suffix}"

    def _move(self, names: tuple[str, str]) -> None:
        source, target = names[0], f"{self.path}/{names[1]}"
        if listing.exists(source, patient=True):
            storage.move(source, target)
        elif not listing.exists(target, patient=True):
            raise UserError(
                f"{target} is missing: another command has written to the folder",
                key="--output",
                remedy="Predict into a folder of its own.",
            )

    def _is_begun(self) -> bool:
        return listing.exists(f"{self.staging}/key")

    def _entries(self) -> list[str]:
        """Names in the folder; [] if it is missing."""
        if filesystems.is_remote(self.path):
            with object_stores.problems_of(self.path, "--output", "read"):
                below = listing.objects(self.path)
            start = len(object_stores.path_of(self.path)) + 1
            return sorted({each.path[start:].partition("/")[0] for each in below})
        try:
            return sorted(os.listdir(self.path))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise BadInputError(
                f"is no folder: {error.strerror}",
                key="--output",
                received=self.path,
            ) from error
