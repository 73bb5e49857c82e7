"""Loads the user's `preprocessing_fn`; adds file and line to its errors."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from strategos.components import events
from strategos.components.errors import Place, UserError
from strategos.components.records.emptiness import Emptiness
from strategos.components.targets.label import Label
from strategos.components.transform import missing
from strategos.components.transformed import sparse_columns
from strategos.components.transformed.graph import ancestors
from strategos.components.user_code import modules, uses
from strategos.components.user_code.user_errors import explain, is_own
from strategos.components.wording import choices, did_you_mean, quoted

Tensors = Mapping[str, Any]

_OF_TEXT = f"`tf.strings.to_number` makes numbers of texts. {missing.WHY_TEXT}"
_OF_GRAPHS = (
    "`preprocessing_fn` is called once, to trace a graph that has no values yet: use "
    "operations of TensorFlow, such as `tf.where` for a condition on each row."
)
_PYTHON = ("PyFunc", "EagerPyFunc", "PyFuncStateless")  # types of operations
_DTYPES = (tf.int64, tf.float32, tf.string)


def load(
    folder: str,
    module: str,
    required: Mapping[str, str],
    custom_config: Mapping[str, Any],
    fillings: missing.Fillings | None = None,
    empty: Mapping[str, Emptiness] | None = None,
) -> Callable[[Tensors], Tensors]:
    """Loads the user's function and wraps it in checks.

    Args:
      folder: Folder of the user's modules.
      module: Module that has `preprocessing_fn`.
      required: Outputs that the function must return, as `Label.text`, by the setting
        that names each.
      custom_config: Passed to a function with an argument of this name, like in TFX's
        Transform.
      fillings: By raw column, the value in place of a missing one; default: none.
      empty: The columns without a value in some rows, for messages; default: unknown.

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
            if _is_unknown(error, inputs):
                message += f" is not among the inputs: {', '.join(sorted(inputs))}."
            remedy = _remedy(error, inputs, empty or {})
            raise UserError(message, remedy=remedy) from error
        _check(outputs, required, where)
        _reject_what_fails_later(inputs, outputs, folder)
        return outputs

    return missing.filling(preprocessing_fn, fillings or {})


def _is_unknown(error: Exception, inputs: Tensors) -> bool:
    """Whether the error is about an input that does not exist."""
    return isinstance(error, KeyError) and error.args[0] not in inputs


def _remedy(error: Exception, inputs: Tensors, empty: Mapping[str, Emptiness]) -> str:
    """The remedy for an error of the user's function; "" if unknown."""
    if _is_unknown(error, inputs):
        return did_you_mean(str(error.args[0]), inputs)
    if "SparseTensor" in str(error):
        sparse = [n for n, x in inputs.items() if isinstance(x, tf.SparseTensor)]
        return sparse_columns.advice(sparse, empty)
    if "tf.string" in str(error) or "string to" in str(error):
        texts = [f"`{n}`" for n, each in inputs.items() if each.dtype == tf.string]
        return f"Columns of text: {', '.join(sorted(texts))}. {_OF_TEXT}" * bool(texts)
    return _OF_GRAPHS if "ymbolic" in str(error) else ""


def _reject_what_fails_later(inputs: Tensors, outputs: Tensors, folder: str) -> None:
    """Rejects `tf.cast` of a text to a number, and calls of Python from the graph.

    The cast fails when it runs; Python is missing in processes that serve the model.

    Raises:
      UserError: Names the line, and the columns of a cast.
    """
    graphs = [g for g in (getattr(t, "graph", None) for t in inputs.values()) if g]
    for op in graphs[0].get_operations() if graphs and outputs else ():
        if op.type in _PYTHON:
            raise UserError(
                "`tf.py_function` and `tf.numpy_function` call Python, which no "
                "SavedModel contains",
                place=_place(op, folder),
                remedy="Use operations of TensorFlow, or make the column in the data.",
            )
        if op.type != "Cast" or op.inputs[0].dtype != tf.string:
            continue
        above = {each.name for each in ancestors(op)}
        names = [
            name
            for name, value in inputs.items()
            for part in tf.nest.flatten(value, expand_composites=True)
            if part.op.name in above and part.dtype == tf.string
        ]
        raise UserError(
            f"`tf.cast` makes no number of a text: {', '.join(quoted(names))}",
            place=_place(op, folder),
            remedy=_OF_TEXT,
        )


def _place(op: tf.Operation, folder: str) -> Place | None:
    """The line of the user's code that made an operation."""
    lines = [frame for frame in op.traceback if is_own(frame.filename, folder)]
    return Place(lines[-1].filename, lines[-1].lineno) if lines else None


def _warn_of_statistics(folder: str, module: str) -> None:
    loaded = modules.load(folder, module)
    if hasattr(loaded, "stats_options_updater_fn"):
        events.emit(
            "warning",
            message=f"{loaded.__file__}: `stats_options_updater_fn` is not called: it "
            "changes the statistics of TFX's Transform, and this Transform computes "
            "none. Those of StatisticsGen have no options.",
        )


def _check(outputs: Any, required: Mapping[str, str], where: str) -> None:
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
    named = (
        (k, name) for k, text in required.items() for name in Label.of(text).columns
    )
    for key, name in named:
        if name not in outputs and Label.of(required[key]).reconstructs:
            raise UserError(
                f"`preprocessing_fn` does not return the feature `{name}`, which "
                "`label` names to reconstruct",
                key=key,
                expected=choices(sorted(outputs)),
                remedy=did_you_mean(name, outputs, "Return it, or correct `label`."),
            )
        if name not in outputs:
            raise UserError(
                f"{where} does not return the {key} `{name}`. Returned: "
                f"{', '.join(sorted(outputs))}. Add "
                f'`outputs["{name}"] = inputs["{name}"]`, or correct `{key}`.'
            )
