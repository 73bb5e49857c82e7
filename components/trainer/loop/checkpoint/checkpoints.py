"""The folder of a training's checkpoints: writes, finds and removes them.

Variables are written and read by structure (`tf.train.Checkpoint`), so that writer and
reader may build the model under different strategies. `checkpoint_callback` decides
when. A thread writes the files while training goes on.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import os
import re
import tempfile
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.io import gfile

from strategos.components.errors import UserError, required
from strategos.components.files import filesystems, places, storage
from strategos.components.trainer import remote_checkpoints
from strategos.components.trainer.compat import stored_objects
from strategos.components.trainer.loop.state import stored_variables
from strategos.components.trainer.spec import CHECKPOINT_MARK as _STATE

_ARRAYS = "arrays.npz"
_BEGUN = "begun.json"
_NAME = re.compile(r"step-(\d{10})/?")
_FULL = ("No space left", "Disk quota exceeded", "RESOURCE_EXHAUSTED")


@dataclasses.dataclass(frozen=True)
class Found:
    """A checkpoint.

    Attributes:
      place: Folder or URL of the checkpoint, for messages.
      path: Folder from which TensorFlow can read the checkpoint.
      step: Steps done when it was saved.
      state: JSON-able state of Python objects, e.g. of callbacks.
      arrays: Arrays in the state of Python objects, by name.
    """

    place: str
    path: str
    step: int
    state: Mapping[str, Any]
    arrays: Mapping[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class _Content:
    """All that a checkpoint holds, taken at one step."""

    parts: Mapping[str, stored_objects.Snapshot]
    arrays: Mapping[str, np.ndarray]
    state: str

    def write(self, path: str) -> None:
        """Writes the files, the mark of a complete checkpoint last."""
        for name, part in self.parts.items():
            part.write(f"{path}/{name}")
        content = io.BytesIO()
        arrays: Mapping[str, Any] = self.arrays
        np.savez(content, **arrays)
        with gfile.GFile(f"{path}/{_ARRAYS}", "wb") as file:
            file.write(content.getvalue())
        storage.write(f"{path}/{_STATE}", self.state)


class Checkpoints:
    """The newest checkpoints of one training run, in one folder.

    All workers of a gang save together, because reading a variable may be a collective;
    others than the chief read no further ones. `save` takes the values, and a thread
    writes them to files while training goes on; the next save waits for it. A
    checkpoint is complete once its `state.json` exists: the last file, put in place by
    a rename.

    Args:
      folder: Folder of the checkpoints: a path or a URL.
      keep: Number of checkpoints to keep, the newest ones.
      is_chief: Whether this process writes.

    Attributes:
      seconds: Seconds in which the last checkpoint's files were written, without their
        upload; 0 before the first.
    """

    def __init__(self, folder: str, *, keep: int, is_chief: bool):
        self._folder = folder
        self._keep = keep
        self.is_chief = is_chief
        self._thread = ThreadPoolExecutor(1, "checkpoint")
        self._writing: Future[None] | None = None
        self.seconds = 0.0

    def save(
        self,
        step: int,
        parts: Mapping[str, tf.Module],
        state: Mapping[str, Any],
        arrays: Mapping[str, np.ndarray],
    ) -> None:
        """Takes the values of a checkpoint; the chief's thread writes them.

        It is in its place after `finish`; the chief then removes old and incomplete
        ones.

        Args:
          step: Steps done.
          parts: Objects with variables, by name: the model and its metrics.
          state: JSON-able state of Python objects, e.g. of callbacks.
          arrays: Arrays in the state of Python objects, by name.

        Raises:
          UserError: A variable of a model cannot be written; or the one before could
            not be: no space is left.
          OSError: The one before could not be written, see `finish`.
        """
        self.finish()
        snapshots = {
            name: stored_variables.taken(part)
            for name, part in parts.items()
            if self.is_chief or stored_variables.is_exchanged(part)
        }
        if self.is_chief:
            copies = {name: np.array(array) for name, array in arrays.items()}
            text = json.dumps({**state, "step": step})
            content = _Content(snapshots, copies, text)
            self._writing = self._thread.submit(self._write, step, content)

    def finish(self) -> None:
        """Waits until the last checkpoint is in its place.

        Raises:
          UserError: No space is left.
          OSError: The store does not answer, or rejects the request.
        """
        writing, self._writing = self._writing, None
        if writing:
            writing.result()

    def raise_failure(self) -> None:
        """Raises the error of a checkpoint that could not be written, without waiting.

        Raises:
          UserError, OSError: As `finish`.
        """
        if self._writing and self._writing.done():
            self.finish()

    def _write(self, step: int, content: _Content) -> None:
        with self._written_to(step) as path:
            begun = time.monotonic()
            content.write(path)
            self.seconds = time.monotonic() - begun
        self._remove_others()

    def _remove_others(self) -> None:
        """Removes all but the newest complete checkpoints."""
        kept = self.steps()[-self._keep :]
        # Also incomplete ones, left by a chief that was killed.
        for old in set(self._begun()) - set(kept):
            self._remove(old)

    def steps(self) -> list[int]:
        """Steps of the complete checkpoints, ascending."""
        return [s for s in self._begun() if gfile.exists(f"{self._path(s)}/{_STATE}")]

    def _begun(self) -> list[int]:
        """Steps of all checkpoints, complete or not, ascending."""
        if not gfile.exists(self._folder):
            return []
        names = filter(_NAME.fullmatch, gfile.listdir(self._folder))
        return sorted(map(step_of, names))

    def _remove(self, step: int) -> None:
        gfile.rmtree(self._path(step))

    def find(self, step: int) -> Found:
        """Finds the checkpoint of `step`, and reads its Python state.

        Args:
          step: Step of a complete checkpoint.
        """
        path = self._readable(step)
        with gfile.GFile(f"{path}/{_STATE}") as file:
            state = json.loads(file.read())
        with gfile.GFile(f"{path}/{_ARRAYS}", "rb") as file:
            arrays = dict(np.load(io.BytesIO(file.read())))
        return Found(self._path(step), path, step, state, arrays)

    def count_begun(self, step: int) -> int:
        """Counts an attempt, for as long as others begin at the same step.

        Args:
          step: Step at which the attempt begins; 0 without a checkpoint.

        Returns:
          Number of attempts that have begun there before, since the last checkpoint.
        """
        path, before = f"{self._folder}/{_BEGUN}", 0
        with contextlib.suppress(FileNotFoundError):
            begun = json.loads(storage.read(path))
            before = begun["times"] if begun["step"] == step else 0
        storage.write(path, json.dumps({"step": step, "times": before + 1}))
        return before

    def _path(self, step: int) -> str:
        return f"{self._folder}/step-{step:010d}"

    def _readable(self, step: int) -> str:
        """A folder from which TensorFlow can read the checkpoint of `step`."""
        return self._path(step)

    @contextlib.contextmanager
    def _written_to(self, step: int) -> Iterator[str]:
        """A folder for the files; after the block they are in their place."""
        path = self._path(step)
        with self._no_space_reported(step, self._folder):
            try:
                gfile.makedirs(path)
                yield path
            except (OSError, tf.errors.OpError):
                with contextlib.suppress(tf.errors.OpError):
                    gfile.rmtree(path)
                raise

    @contextlib.contextmanager
    def _no_space_reported(self, step: int, place: str) -> Iterator[None]:
        """Converts an error of a full disk inside the block to a UserError."""
        try:
            yield
        except (OSError, tf.errors.OpError) as error:
            if not any(words in str(error) for words in _FULL):
                raise
            raise UserError(self._no_room(step, place)) from error

    def _no_room(self, step: int, place: str) -> str:
        safe = self.steps()
        until = f"Training up to step {safe[-1]} is safe" if safe else "None exists"
        return (
            f"The checkpoint of step {step} cannot be written: no space left at "
            f"{place}. {until}: make room there (or write fewer: "
            "trainer.checkpoint.keep) and run again."
        )


class CopiedCheckpoints(Checkpoints):
    """Checkpoints in an object store.

    Each checkpoint is written to a local folder and uploaded from there. All workers of
    a gang download the checkpoint from which they resume.

    Args:
      folder: URL of the checkpoints' folder, e.g. `s3://bucket/run/checkpoints`.
      keep: Number of checkpoints to keep, the newest ones.
      is_chief: Whether this process writes.
    """

    def __init__(self, folder: str, *, keep: int, is_chief: bool):
        super().__init__(folder, keep=keep, is_chief=is_chief)
        self._copy: tempfile.TemporaryDirectory | None = None

    def save(
        self,
        step: int,
        parts: Mapping[str, tf.Module],
        state: Mapping[str, Any],
        arrays: Mapping[str, np.ndarray],
    ) -> None:
        """See `Checkpoints.save`."""
        self._copy = None
        super().save(step, parts, state, arrays)

    def steps(self) -> list[int]:
        """Steps of the complete checkpoints, ascending."""
        return sorted(map(step_of, remote_checkpoints.complete(self._folder)))

    def _begun(self) -> list[int]:
        folders = places.at(self._folder).glob("step-*")
        return sorted(step_of(each.name) for each in folders)

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
        with tempfile.TemporaryDirectory(prefix="copy-") as aside:
            with self._no_space_reported(step, os.path.dirname(aside)):
                yield aside
            remote_checkpoints.upload(aside, self._path(step))


def of(folder: str, *, keep: int, is_chief: bool) -> Checkpoints:
    """The checkpoints in a folder, in the way that its file system needs.

    Args:
      folder: Folder of the checkpoints: a path or a URL.
      keep: Number of checkpoints to keep, the newest ones.
      is_chief: Whether this process writes.
    """
    kind = CopiedCheckpoints if filesystems.is_remote(folder) else Checkpoints
    return kind(folder, keep=keep, is_chief=is_chief)


def step_of(name: str) -> int:
    """The step of a checkpoint, from the name of its folder."""
    return int(required(_NAME.fullmatch(name))[1])
