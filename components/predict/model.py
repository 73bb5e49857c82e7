"""A SavedModel, loaded in this process."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from strategos.components import exported
from strategos.components.errors import UserError
from strategos.components.processes import without_collections
from strategos.components.user_code.user_errors import operation_error
from strategos.components.worker_process import TENSORFLOW

if TYPE_CHECKING:
    import numpy as np

Signature = Callable[[Sequence[bytes]], Mapping[str, list[Any]]]
"""Takes serialized examples; returns each output by name, with one value per row."""


class ModelFailsError(Exception):
    """The model fails on some rows; the message is the reason."""


def prepare() -> None:
    """Imports TensorFlow, with the environment variables that it is to have."""
    for name, value in TENSORFLOW.items():
        os.environ.setdefault(name, value)
    with without_collections():
        import tensorflow  # noqa: F401


class Model:
    """A loaded SavedModel.

    Args:
      folder: The SavedModel.

    Raises:
      UserError: It does not load.
    """

    def __init__(self, folder: Path):
        prepare()
        import tensorflow as tf

        try:
            self._loaded = tf.saved_model.load(str(folder))
        except (OSError, ValueError) as error:
            raise UserError(f"{folder} does not load: {error}") from error

    def __call__(
        self, rows: Sequence[Any], signature: str = exported.SERVE
    ) -> dict[str, list[Any]]:
        """Calls a signature.

        Args:
          rows: One value per row for a signature with one input, such as a serialized
            example; otherwise one dict per row, from the name of an input to its value.
          signature: Name of the signature.

        Returns:
          Each output by name, in order of the names, one value or nested list per row;
          strings as text.

        Raises:
          ModelFailsError: The model fails on these rows.
          KeyError: The signature is missing, or an input of a row.
          TypeError, ValueError: A value has another type or shape than its input.
        """
        import tensorflow as tf

        called = self._loaded.signatures[signature]
        specs = called.structured_input_signature[1]
        if len(specs) == 1:
            (only,) = specs
            rows = [x[only] if isinstance(x, Mapping) else x for x in rows]
            columns = {only: rows}
        else:
            columns = {name: [row[name] for row in rows] for name in specs}
        inputs = {k: tf.constant(v, specs[k].dtype) for k, v in columns.items()}
        outputs = _called(called, inputs)
        return {k: _text(v.numpy().tolist()) for k, v in sorted(outputs.items())}

    @property
    def outputs(self) -> dict[str, Any]:
        """The TensorSpec of each output of `serving_default`, by name."""
        outputs: dict[str, Any] = self._loaded.signatures[
            exported.SERVE
        ].structured_outputs
        return outputs

    def arrays(self, examples: np.ndarray) -> dict[str, np.ndarray]:
        """Calls `serving_default`.

        Args:
          examples: object[rows], serialized examples.

        Returns:
          Each output by name, [rows, …]; text as bytes.

        Raises:
          ModelFailsError: The model fails on these rows.
        """
        import tensorflow as tf

        called = self._loaded.signatures[exported.SERVE]
        (argument,) = called.structured_input_signature[1]
        outputs = _called(called, {argument: tf.constant(examples, tf.string)})
        return {name: value.numpy() for name, value in outputs.items()}


def _called(function: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """The tensors of a signature."""
    import tensorflow as tf

    try:
        outputs: dict[str, Any] = function(**inputs)
    except tf.errors.OpError as error:
        raise ModelFailsError(operation_error(error.message)) from error
    return outputs


def _text(value: Any) -> Any:
    """Replaces bytes in nested lists by text."""
    if isinstance(value, list) and value and isinstance(value[0], (list, bytes)):
        return [_text(each) for each in value]
    return value.decode(errors="replace") if isinstance(value, bytes) else value
