"""Writes and reads checkpoints of a training run, and the weights for the export.

Variables are written and read by structure (`tf.train.Checkpoint`), so that writer and
reader may build the model under different strategies.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import re
import tempfile
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.io import gfile

from strategos.components.errors import UserError, required
from strategos.components.files import storage
from strategos.components.trainer.compat import compiled, partitioned_variables
from strategos.components.trainer.loop.state import stored_variables
from strategos.components.trainer.loop.warm_start import weights as earlier
from strategos.components.trainer.model.tables.relations import Tables
from strategos.components.trainer.spec import CHECKPOINT_MARK as _STATE
from strategos.components.wording import abridged, first, quoted

_ARRAYS = "arrays.npz"
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


class Checkpoints:
    """The newest checkpoints of one training run, in one folder.

    All workers of a gang save together, because reading a variable may be a collective.
    The chief's copy is kept, the others go to a temporary folder. A checkpoint is
    complete once its `state.json` exists: the last file, put in place by a rename.

    Args:
      folder: Folder of the checkpoints: a path or a URL.
      keep: Number of checkpoints to keep, the newest ones.
      is_chief: Whether this process's copy is kept.
    """

    def __init__(self, folder: str, *, keep: int, is_chief: bool):
        self._folder = folder
        self._keep = keep
        self.is_chief = is_chief

    def save(
        self,
        step: int,
        parts: Mapping[str, tf.Module],
        state: Mapping[str, Any],
        arrays: Mapping[str, np.ndarray],
    ) -> None:
        """Writes a checkpoint; the chief removes old and incomplete ones.

        Args:
          step: Steps done.
          parts: Objects with variables, by name: the model and its metrics.
          state: JSON-able state of Python objects, e.g. of callbacks.
          arrays: Arrays in the state of Python objects, by name.

        Raises:
          UserError: No space is left, or a variable of a model cannot be written.
        """
        with self._written_to(step) as path:
            for name, part in parts.items():
                stored_variables.write(part, f"{path}/{name}")
            content = io.BytesIO()
            saved: Mapping[str, Any] = arrays
            np.savez(content, **saved)
            with gfile.GFile(f"{path}/{_ARRAYS}", "wb") as file:
                file.write(content.getvalue())
            text = json.dumps({**state, "step": step})
            storage.write(f"{path}/{_STATE}", text)
        if self.is_chief:
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

    def _path(self, step: int) -> str:
        return f"{self._folder}/step-{step:010d}"

    def _readable(self, step: int) -> str:
        """A folder from which TensorFlow can read the checkpoint of `step`."""
        return self._path(step)

    @contextlib.contextmanager
    def _written_to(self, step: int) -> Iterator[str]:
        if not self.is_chief:
            with tempfile.TemporaryDirectory(prefix="copy-") as aside:
                yield aside
            return
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


def step_of(name: str) -> int:
    """The step of a checkpoint, from the name of its folder."""
    return int(required(_NAME.fullmatch(name))[1])


def restore(part: Any, path: str, *, is_chief: bool = True) -> list[str]:
    """Reads the variables of one part of a checkpoint.

    Variables that an optimizer or metric has not created yet are read on creation.

    Args:
      part: An object with variables, built like the saved one.
      path: The checkpoint's `path` and the part's name, e.g. `…/step-0000000200/model`.
      is_chief: Whether this task's first replica gets the totals of all replicas.

    Returns:
      Names of the model's variables that the files lack.
    """
    return stored_variables.read(part, path, is_chief=is_chief)


def write_weights(model: tf.keras.Model, path: str) -> None:
    """Writes the model's weights and their shapes.

    Args:
      model: A built model.
      path: Prefix of the files.

    Raises:
      UserError: A variable of the model cannot be written.
    """
    stored_variables.write_weights(model, path)
    held = stored_variables.held_weights(model, path)
    keys = {id(variable): key for variable, key in held}
    groups = partitioned_variables.tables(compiled.variables(model))
    described = [
        [*facts, keys.get(id(table[0]))]
        for facts, table in zip(shapes(model), groups, strict=True)
    ]
    with gfile.GFile(f"{path}.json", "w") as file:
        file.write(json.dumps(described))


def read_weights(model: tf.keras.Model, path: str) -> None:
    """Reads files of `write_weights` into a built model.

    Args:
      model: A built model.
      path: Prefix of the files.

    Raises:
      UserError: The model differs from the written one, or lacks values in the files.
    """
    differing = differences(shapes(model), _written_shapes(path))
    if differing:
        raise UserError(
            "`build_model` built another model the second time than the first: "
            f"{differing}. It must depend on nothing but its context."
        )
    missing = stored_variables.read_weights(model, path)
    if missing:
        raise UserError(
            f"{path} has no values for {abridged(quoted(missing), 3)}, variables "
            "of the model that `build_model` makes: its layers must hold them in the "
            "same attributes each time it is called."
        )


def warm_start(
    model: tf.keras.Model,
    path: str,
    tables: Tables | None = None,
    *,
    is_chief: bool = True,
) -> set[int]:
    """Reads the weights of an earlier model; optimizer and seeds keep their state.

    Args:
      model: A built model.
      path: Prefix of the earlier model's files, see `write_weights`.
      tables: The meaning of the rows of the model's tables; None if unknown.
      is_chief: Whether this task's first replica gets the totals of all replicas.

    Returns:
      Indices of tables that may differ in size from the earlier model's.

    Raises:
      UserError: The weights do not fit the model, or do not exist.
    """
    try:
        written = _written_shapes(path)
    except tf.errors.NotFoundError:
        raise UserError(
            f"{path}.json does not exist: the weights to start from are gone",
            key="trainer.warm_start",
            remedy="Name the folder of another model, or set `warm_start: null` to "
            "begin anew.",
        ) from None
    return earlier.read(model, path, shapes(model), written, tables, is_chief=is_chief)


def _written_shapes(path: str) -> list[list[Any]]:
    with gfile.GFile(f"{path}.json") as file:
        return json.loads(file.read())


def shapes(model: tf.keras.Model) -> list[list[Any]]:
    """`[name, shape, dtype]` of each table of the model's variables; JSON-able."""
    return [
        [
            getattr(table[0], "path", None) or partitioned_variables.name(table),
            partitioned_variables.shape(table),
            tf.as_dtype(table[0].dtype).name,
        ]
        for table in partitioned_variables.tables(compiled.variables(model))
    ]


def differences(ours: list[list[Any]], theirs: list[list[Any]]) -> str:
    """Describes differences between the variables of two models; "" if there are none.

    Names are ignored: Keras numbers unnamed layers per process, e.g. `dense_3`.

    Args:
      ours: `shapes` of one model.
      theirs: `shapes` of the other.
    """
    if [x[1:3] for x in ours] == [x[1:3] for x in theirs]:
        return ""
    found = [
        f"{_shown(mine)} here, {_shown(other)} there"
        for mine, other in zip(ours, theirs, strict=False)
        if mine[1:3] != other[1:3]
    ]
    found += [f"{_shown(mine)} only here" for mine in ours[len(theirs) :]]
    found += [f"{_shown(other)} only there" for other in theirs[len(ours) :]]
    return "; ".join(first(found, 3))


def _shown(variable: list[Any]) -> str:
    name, shape, dtype = variable[:3]
    return f"{name} {dtype}{shape}"
