"""Reads and changes the protobuf of a SavedModel, without loading the model."""

from __future__ import annotations

import itertools
import keyword
import re
from collections.abc import Iterable, Iterator, Mapping

import tensorflow as tf
from tensorflow.core.framework import node_def_pb2
from tensorflow.core.protobuf import saved_model_pb2

from strategos.components import exported

_ARGUMENT = re.compile(r"[A-Za-z][A-Za-z0-9_]*")  # else TensorFlow changes the name
_PARSER = "ParseExampleV2"
_KEYS = slice(2, 5)  # its inputs with the names of sparse, dense and ragged columns


class SavedModel:
    """The protobuf of a SavedModel.

    Args:
      folder: Folder of the SavedModel.
    """

    def __init__(self, folder: str):
        self._graph = _read(folder).meta_graphs[0]

    def signatures(self) -> dict[str, list[tuple[tf.DType, int]]]:
        """Dtype and rank of each input of each signature."""
        return {
            name: [
                (tf.as_dtype(info.dtype), len(info.tensor_shape.dim))
                for info in signature.inputs.values()
            ]
            for name, signature in self._graph.signature_def.items()
            if not name.startswith("__")  # SavedModel's own
        }

    def parsed_columns(self, signature: str) -> set[str]:
        """Columns of the tf.Examples that a signature parses; empty if unknown.

        Args:
          signature: Name of the signature.
        """
        if signature not in self._graph.signature_def:
            return set()
        outputs = self._graph.signature_def[signature].outputs.values()
        wanted = {info.name.partition(":")[0] for info in outputs}
        calls = [node for node in self._graph.graph_def.node if node.name in wanted]
        return {name.decode() for name in self._names(calls)}

    def _names(self, calls: Iterable[node_def_pb2.NodeDef]) -> Iterator[bytes]:
        library = self._graph.graph_def.library.function
        bodies = {function.signature.name: function.node_def for function in library}
        todo, seen = list(_called(calls)), set()
        while todo:
            name = todo.pop()
            if name in seen or name not in bodies:
                continue
            seen.add(name)
            todo += _called(bodies[name])
            nodes = {node.name: node for node in bodies[name]}
            for node in bodies[name]:
                if node.op == _PARSER:
                    for key in node.input[_KEYS]:
                        yield from _constant(nodes.get(key.partition(":")[0]))


def argument_names(columns: Iterable[str]) -> dict[str, str]:
    """Names for columns that TensorFlow takes as names of a function's arguments.

    Args:
      columns: Names of columns, any text.

    Returns:
      The column by name. The name is the column's own if TensorFlow accepts it, else
      e.g. `column_0`.
    """
    columns = sorted(columns)
    reserved = {"self", *keyword.kwlist}  # the latter as TensorFlow 2.21 rejects them
    own = {x for x in columns if _ARGUMENT.fullmatch(x)} - reserved
    free = (name for i in itertools.count() if (name := f"column_{i}") not in own)
    return {(column if column in own else next(free)): column for column in columns}


def rename_inputs(folder: str, signature: str, names: Mapping[str, str]) -> None:
    """Renames inputs of a signature, also to text that TensorFlow's API rejects.

    Args:
      folder: Folder of the SavedModel, which is changed.
      signature: Name of the signature; nothing is done if it is missing.
      names: The new name of each input.
    """
    model = _read(folder)
    graph = model.meta_graphs[0]
    changed = {old for old, new in names.items() if old != new}
    if not changed or signature not in graph.signature_def:
        return
    inputs = graph.signature_def[signature].inputs
    for old in changed:  # no new name is an old one
        inputs[names[old]].CopyFrom(inputs[old])
        del inputs[old]
    for node in graph.object_graph_def.nodes:  # for calls by Python
        keywords = node.bare_concrete_function.argument_keywords
        if changed <= set(keywords):
            renamed = [names.get(each, each) for each in keywords]
            del keywords[:]
            keywords.extend(renamed)
    with tf.io.gfile.GFile(f"{folder}/{exported.SAVED_MODEL}", "wb") as file:
        file.write(model.SerializeToString())


def _read(folder: str) -> saved_model_pb2.SavedModel:
    model = saved_model_pb2.SavedModel()
    with tf.io.gfile.GFile(f"{folder}/{exported.SAVED_MODEL}", "rb") as file:
        model.ParseFromString(file.read())
    return model


def _called(nodes: Iterable[node_def_pb2.NodeDef]) -> Iterator[str]:
    """Names of the functions that some operations call."""
    for node in nodes:
        yield from (attr.func.name for attr in node.attr.values() if attr.func.name)


def _constant(node: node_def_pb2.NodeDef | None) -> list[bytes]:
    if node is None or node.op != "Const":
        return []
    return tf.make_ndarray(node.attr["value"].tensor).tolist()
