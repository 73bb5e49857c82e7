"""A SavedModel, loaded in this process."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from strategos.components import exported
from strategos.components.errors import UserError, required
from strategos.components.processes import without_collections
from strategos.components.slow_imports import np, tf
from strategos.components.user_code.user_errors import operation_error
from strategos.components.worker_process import TENSORFLOW

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
        try:
            self._loaded = tf.saved_model.load(str(folder))
        except (OSError, ValueError) as error:
            raise UserError(f"{folder} does not load: {error}") from error

    def __call__(self, examples: Sequence[bytes]) -> dict[str, list[Any]]:
        """Calls `serving_default`.

        Args:
          examples: Serialized examples.

        Returns:
          Each output by name, in order of the names, one value or nested list per row;
          strings as text.

        Raises:
          ModelFailsError: The model fails on these rows.
        """
        outputs = self.arrays(np.array(examples, object))
        return {name: _text(outputs[name].tolist()) for name in sorted(outputs)}

    def inputs(self, signature: str) -> dict[str, tf.TensorSpec] | None:
        """The inputs of a signature by name; None if the signature is missing."""
        if signature not in self._loaded.signatures:
            return None
        specs = self._loaded.signatures[signature].structured_input_signature[1]
        return dict(specs)

    def call(
        self, signature: str, inputs: Mapping[str, np.ndarray]
    ) -> dict[str, np.ndarray]:
        """Calls a signature.

        Args:
          signature: Name of the signature.
          inputs: An array for each of `inputs(signature)`, of its type and shape; text
            as object[…] of bytes.

        Returns:
          Each output by name; text as object[…] of bytes.

        Raises:
          ModelFailsError: The model fails on these rows.
        """
        specs = required(self.inputs(signature))
        tensors = {k: tf.constant(v, specs[k].dtype) for k, v in inputs.items()}
        outputs = _called(self._loaded.signatures[signature], tensors)
        return {name: value.numpy() for name, value in outputs.items()}

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
        (argument,) = required(self.inputs(exported.SERVE))
        return self.call(exported.SERVE, {argument: examples})


def _called(function: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """The tensors of a signature."""
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
