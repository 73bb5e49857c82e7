"""Writes and reads the weights of a model, and describes them.

Beside the values lies a description, `weights.json`: name, shape and dtype of each
table of variables, and its key in the files.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from tensorflow.io import gfile

from strategos.components.errors import UserError
from strategos.components.trainer.compat import partitioned_variables
from strategos.components.trainer.loop.state import stored_variables
from strategos.components.wording import abridged, first, quoted

Described = Sequence[Any]
"""`[name, shape, dtype]` of a table, followed by its key in the files if known."""


def write(model: tf.keras.Model, path: str) -> None:
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
    groups = partitioned_variables.tables_of(model)
    described = [
        [*facts, keys.get(id(table[0]))]
        for facts, table in zip(shapes(model), groups, strict=True)
    ]
    with gfile.GFile(f"{path}.json", "w") as file:
        file.write(json.dumps(described))


def read(model: tf.keras.Model, path: str) -> None:
    """Reads files of `write` into a built model.

    Args:
      model: A built model.
      path: Prefix of the files.

    Raises:
      UserError: The model differs from the written one, or lacks values in the files.
    """
    differing = differences(shapes(model), descriptions(path))
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


def descriptions(path: str) -> list[list[Any]]:
    """The descriptions of the tables in files of `write`.

    Args:
      path: Prefix of the files.

    Raises:
      tf.errors.NotFoundError: The files do not exist.
    """
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
        for table in partitioned_variables.tables_of(model)
    ]


def differences(ours: Sequence[Described], theirs: Sequence[Described]) -> str:
    """Describes differences between the variables of two models; "" if there are none.

    Names are ignored: Keras numbers unnamed layers per process, e.g. `dense_3`.

    Args:
      ours: `shapes` of one model.
      theirs: `shapes` of the other.
    """
    if [x[1:3] for x in ours] == [x[1:3] for x in theirs]:
        return ""
    texts = [
        f"{shown(mine)} here, {shown(other)} there"
        for mine, other in zip(ours, theirs, strict=False)
        if mine[1:3] != other[1:3]
    ]
    texts += [f"{shown(mine)} only here" for mine in ours[len(theirs) :]]
    texts += [f"{shown(other)} only there" for other in theirs[len(ours) :]]
    return "; ".join(first(texts, 3))


def shown(described: Described) -> str:
    """A table in a message, e.g. `dense/kernel:0 float32[4, 2]`."""
    name, shape, dtype = described[:3]
    return f"{name} {dtype}{shape}"
