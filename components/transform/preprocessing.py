"""Loads the user's `preprocessing_fn`; adds file and line to its errors."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from strategos.components import events
from strategos.components.errors import Place, UserError
from strategos.components.user_code import modules, uses
from strategos.components.user_code.user_errors import explain

Tensors = Mapping[str, Any]

_DTYPES = (tf.int64, tf.float32, tf.string)


def load(
    folder: str, module: str, label: str, custom_config: Mapping[str, Any]
) -> Callable[[Tensors], Tensors]:
    """Loads the user's function and wraps it in checks.

    Args:
      folder: Folder of the user's modules.
      module: Module that has `preprocessing_fn`.
      label: Required output; "" for none.
      custom_config: Passed to a function with an argument of this name, like in TFX's
        Transform.

    Returns:
      A function from inputs to outputs. It raises UserError if the user's function
      raises, or returns something else than tensors by name.

    Raises:
      UserError: The module cannot be imported or has no such function.
    """
    with uses.recording():
        function = modules.function(folder, module, "preprocessing_fn")
    if "custom_config" in inspect.signature(function).parameters:
        function = functools.partial(function, custom_config=dict(custom_config))
    _warn_of_statistics(folder, module)
    where = f"{modules.find(folder, module)}: `preprocessing_fn`"
    sink, node = events.sink_path(), events.current_node()

    def preprocessing_fn(inputs: Tensors) -> Tensors:
        events.join_sink(sink, node)  # in a worker of Beam
        try:
            with uses.recording():
                outputs = function(inputs)
        except Exception as error:
            message = f"`preprocessing_fn` fails: {explain(error, folder)}"
            if isinstance(error, KeyError) and error.args[0] not in inputs:
                message += f" is not among the inputs: {', '.join(sorted(inputs))}."
            raise UserError(message) from error
        _check(outputs, label, where)
        return outputs

    return preprocessing_fn


def _warn_of_statistics(folder: str, module: str) -> None:
    found = modules.load(folder, module)
    if hasattr(found, "stats_options_updater_fn"):
        events.emit(
            "warning",
            message=f"{found.__file__}: `stats_options_updater_fn` is not called: it "
            "changes the statistics of TFX's Transform, and this Transform computes "
            "none. Those of StatisticsGen have no options.",
        )


def _check(outputs: Any, label: str, where: str) -> None:
    if not isinstance(outputs, Mapping):
        raise UserError(
            f"returned a {type(outputs).__name__}",
            place=Place(where),
            expected="a dict of feature name to tensor",
        )
    for name, value in outputs.items():
        if not isinstance(value, (tf.Tensor, tf.SparseTensor, tf.RaggedTensor)):
            raise UserError(
                f"returned a {type(value).__name__} for `{name}`",
                place=Place(where),
                expected="a tensor",
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
