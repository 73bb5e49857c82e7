"""The user's `preprocessing_fn`, with their file and line in every error."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from strategos.components import user_code
from strategos.components.errors import UserError
from strategos.components.user_errors import explain

Tensors = Mapping[str, Any]

_DTYPES = (tf.int64, tf.float32, tf.string)


def load(folder: str, module: str, label: str) -> Callable[[Tensors], Tensors]:
    """The user's function, checked: a function from inputs to outputs.

    Args:
      folder: Where the user's modules lie.
      module: The one that has `preprocessing_fn`.
      label: Must be among the outputs; "" where none must.

    Raises:
      UserError: The module cannot be imported or has no such function; later, when
        called: the function raises, or returns something else than tensors by name.
    """
    function = user_code.function(folder, module, "preprocessing_fn")
    where = f"{user_code.find(folder, module)}: `preprocessing_fn`"

    def preprocessing_fn(inputs: Tensors) -> Tensors:
        try:
            outputs = function(inputs)
        except Exception as error:
            message = f"`preprocessing_fn` fails: {explain(error, folder)}"
            if isinstance(error, KeyError) and error.args[0] not in inputs:
                message += f" is not among the inputs: {', '.join(sorted(inputs))}."
            raise UserError(message) from error
        _check(outputs, label, where)
        return outputs

    return preprocessing_fn


def _check(outputs: Any, label: str, where: str) -> None:
    if not isinstance(outputs, Mapping):
        raise UserError(
            f"{where} returned a {type(outputs).__name__}, expected a dict of feature "
            "name to tensor."
        )
    for name, value in outputs.items():
        if not isinstance(value, (tf.Tensor, tf.SparseTensor, tf.RaggedTensor)):
            raise UserError(
                f"{where} returned a {type(value).__name__} for `{name}`, "
                "expected a tensor."
            )
        if value.dtype not in _DTYPES:
            raise UserError(
                f"{where} returned `{name}` as {value.dtype.name}, expected int64, "
                "float32 or string, which are what a tf.Example holds. Use `tf.cast`."
            )
    if label and label not in outputs:
        raise UserError(
            f"{where} does not return the label `{label}`. Returned: "
            f"{', '.join(sorted(outputs))}. Add "
            f'`outputs["{label}"] = inputs["{label}"]`, or correct `label`.'
        )
