"""Checkpoints of a training run in an object store that TensorFlow cannot open."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator

from strategos.components.files import places, storage
from strategos.components.trainer import stored_checkpoints
from strategos.components.trainer.loop.checkpoints import Checkpoints, step_of


class CopiedCheckpoints(Checkpoints):
    """Writes each checkpoint to a local folder and uploads it from there.

    All workers of a gang download the checkpoint from which they resume.

    Args:
      folder: URL of the checkpoints' folder, e.g. `s3://bucket/run/checkpoints`.
      keep: Number of checkpoints to keep, the newest ones.
      is_chief: Whether this process uploads its copy.
    """

    def __init__(self, folder: str, *, keep: int, is_chief: bool):
        super().__init__(folder, keep=keep, is_chief=is_chief)
        self._copy: tempfile.TemporaryDirectory | None = None

    def steps(self) -> list[int]:
        """Steps of the complete checkpoints, ascending."""
        return sorted(map(step_of, stored_checkpoints.complete(self._folder)))

    def _begun(self) -> list[int]:
        found = places.at(self._folder).glob("step-*")
        return sorted(step_of(each.name) for each in found)

    def _remove(self, step: int) -> None:
        places.remove(places.at(self._path(step)))

    def _readable(self, step: int) -> str:
        """Downloads a checkpoint; keeps the copy until the next checkpoint is written.

        TensorFlow reads the values of variables that do not exist yet later, when the
        first step creates them.
        """
        self._copy = tempfile.TemporaryDirectory(prefix="checkpoint-")
        storage.get(self._path(step), self._copy.name)
        return self._copy.name

    @contextlib.contextmanager
    def _written_to(self, step: int) -> Iterator[str]:
        self._copy = None
        with tempfile.TemporaryDirectory(prefix="copy-") as aside:
            with self._no_space_reported(step, os.path.dirname(aside)):
                yield aside
            if self.is_chief:
                stored_checkpoints.upload(aside, self._path(step))
