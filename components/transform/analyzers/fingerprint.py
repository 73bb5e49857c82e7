"""Hashes of graphs and accumulators: equal hashes give equal states for equal rows.

Names that TensorFlow numbers by earlier traces of the process are left out, so that a
later run finds the hashes of an earlier one.
"""

from __future__ import annotations

import hashlib
import io
import json
import pickle
import types
from collections.abc import Iterable, Mapping
from typing import Any

import tensorflow as tf

from strategos.components.transform.analyzers import tft_private
from strategos.components.transform.analyzers.spilled import Bounds

_FILLS_TABLE = "LookupTableImportV2"  # from values in the graph, not from a file
# Operations that count as stateful, but have only the state of a table or a function.
_KNOWN = {
    *("LookupTableFindV2", "LookupTableSizeV2", _FILLS_TABLE, "Assert"),
    *("If", "While", "Case", "StatefulPartitionedCall"),
}
# Parts of the names of operations that read files, or run code of the user's.
_OUTSIDE = ("File", "PyFunc", "Proto", "Vocab", "Dataset", "ImmutableConst")
_NUMBERED = ("_gradient_op_type", "_user_specified_name")  # attributes with such names
_PACKAGES = {
    *("numpy", "tensorflow", "tensorflow_transform", "apache_beam", "strategos"),
    *("builtins", "functools"),
}


class UnknownError(Exception):
    """Nothing stands for a part of the analysis."""


def of_graph(graph: tf.Graph) -> str:
    """Hashes the graph of a function, with the values that it captures.

    Args:
      graph: Of `Traced.part`.

    Raises:
      UnknownError: The values of the graph may depend on more than that.
    """
    operations, captures = graph.get_operations(), graph.captures
    filled = {x.inputs[0].name for x in operations if x.type == _FILLS_TABLE}
    parts = ["" if x.name in filled else _content(value, x) for value, x in captures]
    names = {each.op.name: f"capture {n}" for n, (_, each) in enumerate(captures)}
    written = graph.as_graph_def()
    parts.append(_Functions(written.library.function).nodes(written.node, names))
    inputs = graph.inputs[: -len(captures) or None]
    parts += [tensor.name for tensor in (*inputs, *graph.outputs)]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def of_accumulators(accumulators: Mapping[str, Any]) -> str:
    """Hashes accumulators with their settings.

    Args:
      accumulators: Accumulators by label, and their inputs.

    Raises:
      UnknownError: They contain code of other packages than TFT's and ours.
    """
    pickler = _Describing(file := io.BytesIO())
    pickler.fast = True  # the bytes would depend on which equal objects are the same
    try:
        pickler.dump(accumulators)
    except (pickle.PicklingError, AttributeError, TypeError, ValueError) as error:
        raise UnknownError(str(error)) from error
    return hashlib.sha256(file.getvalue()).hexdigest()


def _content(value: tf.Tensor, placeholder: tf.Tensor) -> str:
    if value.dtype in (tf.resource, tf.variant):
        if not placeholder.consumers():
            return ""
        raise UnknownError("a variable, or a table that the graph does not fill")
    return hashlib.sha256(tf.io.serialize_tensor(value).numpy()).hexdigest()


class _Functions:
    """Hashes of functions of a graph, which are known by their content.

    Args:
      library: The functions.
    """

    def __init__(self, library: Iterable[Any]):
        self._library = {each.signature.name: each for each in library}
        self._hashes: dict[str, str] = {}

    def nodes(self, nodes: Iterable[Any], names: Mapping[str, str]) -> str:
        """Hashes nodes in any order.

        Args:
          nodes: The nodes.
          names: Replacements of the names of some.

        Raises:
          UnknownError: A node may depend on more than its inputs.
        """
        contents = []
        for each in nodes:
            _check(each.op)
            node = type(each).FromString(each.SerializeToString())
            node.name = names.get(node.name, node.name)
            node.input[:] = [names.get(name, name) for name in node.input]
            for name in _NUMBERED:
                node.attr.pop(name, None)
            for value in node.attr.values():
                called = [value.func] if value.HasField("func") else value.list.func
                for function in called:
                    function.name = self._hash(function.name)
            contents.append(node.SerializeToString(deterministic=True).hex())
        return hashlib.sha256(" ".join(sorted(contents)).encode()).hexdigest()

    def _hash(self, name: str) -> str:
        if name not in self._library:
            raise UnknownError(f"function {name}")
        if name not in self._hashes:
            self._hashes[name] = name  # of a function that calls itself
            function = self._library[name]
            arguments = [each.name for each in function.signature.input_arg]
            names = {each: f"argument {n}" for n, each in enumerate(arguments)}
            returned = {key: names.get(x, x) for key, x in function.ret.items()}
            outputs = [each.name for each in function.signature.output_arg]
            by_xla = function.attr["_XlaMustCompile"].b
            ends = outputs, returned, dict(function.control_ret)
            nodes = self.nodes(function.node_def, names)
            text = json.dumps([len(arguments), *ends, by_xla, nodes], sort_keys=True)
            self._hashes[name] = hashlib.sha256(text.encode()).hexdigest()
        return self._hashes[name]


def _check(operation: str) -> None:
    if operation in _KNOWN:
        return
    is_tensorflows = hasattr(tf.raw_ops, operation)
    if (
        not is_tensorflows
        or tft_private.is_stateful(operation)
        or any(part in operation for part in _OUTSIDE)
    ):
        raise UnknownError(f"operation {operation}")


class _Describing(pickle.Pickler):
    """Writes accumulators in bytes that are never read."""

    def reducer_override(self, value: Any) -> Any:
        """See `pickle.Pickler`; called for each class and function, too."""
        if isinstance(value, Bounds):
            return str, (str(value.bytes),)
        if isinstance(value, types.MethodType):  # of the object that holds it
            return str, (value.__qualname__,)
        if isinstance(value, type | types.FunctionType | types.BuiltinFunctionType):
            package = value.__module__.partition(".")[0]
            if package not in _PACKAGES:
                raise pickle.PicklingError(f"{value.__qualname__} of {package}")
        return NotImplemented
