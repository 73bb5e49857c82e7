"""The graph of a functional model: which layer is called on the outputs of which."""

from __future__ import annotations

import dataclasses
from typing import Any


@dataclasses.dataclass(frozen=True)
class Tensor:
    """A tensor of the graph, by the call that computes it.

    Attributes:
      layer: The layer or operation.
      number: Index of the call among all calls of the layer, in any graph.
      place: Index of the tensor among the call's outputs.
    """

    layer: Any
    number: int
    place: int


@dataclasses.dataclass(frozen=True)
class Call:
    """A call of a layer.

    Attributes:
      layer: The layer or operation.
      number: Index of the call among all calls of the layer, in any graph.
      inputs: Tensors that it is called on; empty for the layer of an `Input`.
    """

    layer: Any
    number: int
    inputs: list[Tensor]


def calls(model: Any) -> list[Call]:
    """The calls in a functional model, each after those that it depends on.

    Args:
      model: A model or layer of either Keras; if it is not functional, the list is
        empty.
    """
    by_depth = getattr(model, "_nodes_by_depth", None) or {}
    nodes = [
        node for depth in sorted(by_depth, reverse=True) for node in by_depth[depth]
    ]
    return [_call(node) for node in nodes]


def tensor(symbolic: Any) -> Tensor:
    """The call and output that compute a symbolic tensor.

    Args:
      symbolic: A `KerasTensor` of either Keras.
    """
    return Tensor(*symbolic._keras_history)


def _call(node: Any) -> Call:
    layer = node.operation if hasattr(node, "operation") else node.layer
    tensors = node.keras_inputs if hasattr(node, "keras_inputs") else node.input_tensors
    inputs = [] if node.is_input else [tensor(each) for each in tensors]
    return Call(layer, layer._inbound_nodes.index(node), inputs)
