"""Calls of a model that are traced: its state is read, and does not change.

Assignments to variables are traced and not executed, e.g. of metrics, of moving
averages, or of a layer that counts its calls. Variables that are created in a trace
exist afterwards, with their initial values.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf


def shapes(function: Callable[[], Any]) -> Any:
    """Traces a function, and executes nothing.

    Args:
      function: Returns tensors in any structure. AutoGraph converts the user's code
        that it calls, as `tf.function` does.

    Returns:
      Symbolic tensors, which have a shape and a dtype, in the same structure.
    """
    return _traced(function).structured_outputs


def values(function: Callable[[], Any]) -> Any:
    """Traces a function and computes its results, without its side effects.

    Args:
      function: See `shapes`; it must not exchange values with other workers.

    Returns:
      The values of the tensors, in the same structure.
    """
    graph = _traced(function)
    return _whole(graph).prune([], graph.structured_outputs)()


class Trace:
    """A traced function of named inputs, any part of which can be computed.

    Args:
      function: See `shapes`; takes a dict like `given`.
      given: Tensors by name; sparse and ragged ones, too.

    Attributes:
      graph: The graph of the function.
      placeholders: The inputs in the graph, by name; the components of each.
    """

    def __init__(self, function: Callable[[Any], Any], arguments: Mapping[str, Any]):
        self.placeholders: dict[str, list[tf.Tensor]] = {}

        def call() -> Any:
            return function({name: self._fed(name, x) for name, x in arguments.items()})

        with _without_nested_functions():
            self.graph = _traced(call)
        self._whole = _whole(self.graph)

    def _fed(self, name: str, value: Any) -> Any:
        parts = tf.nest.flatten(value, expand_composites=True)
        whole = isinstance(value, tf.Tensor)
        fed = [
            tf.compat.v1.placeholder(
                part.dtype, part.shape if whole else [None] * part.shape.rank
            )
            for part in parts
        ]
        self.placeholders[name] = fed
        return tf.nest.pack_sequence_as(value, fed, expand_composites=True)

    def part(
        self, fed: Sequence[tf.Tensor], fetched: Sequence[tf.Tensor]
    ) -> Callable[..., list[tf.Tensor]]:
        """The part of the graph between tensors, as a function.

        Args:
          fed: Tensors of the graph that the function takes values of, in this order.
          fetched: Tensors of the graph that it returns values of.
        """
        return self._whole.prune(list(fed), list(fetched))


@contextlib.contextmanager
def _without_nested_functions() -> Iterator[None]:
    """Traces the body of a `tf.function` into the graph that calls it."""
    before = tf.config.functions_run_eagerly()
    tf.config.run_functions_eagerly(True)
    try:
        yield
    finally:
        tf.config.run_functions_eagerly(before)


def _whole(graph: Any) -> Any:
    from tensorflow.python.eager import wrap_function

    # `tf.function` would run assignments, `tf.compat.v1.wrap_function` makes tf-keras
    # create its objects of TensorFlow 1.
    holder = wrap_function.VariableHolder()
    return wrap_function.WrappedFunction(graph, variable_holder=holder)


def _traced(function: Callable[[], Any]) -> Any:
    from tensorflow.python.autograph.core import ag_ctx, converter
    from tensorflow.python.framework import func_graph

    options = converter.ConversionOptions(recursive=True)

    def converting() -> Any:
        with ag_ctx.ControlStatusCtx(ag_ctx.Status.ENABLED, options=options):
            return function()

    return func_graph.func_graph_from_py_func(
        "values", converting, (), {}, add_control_dependencies=False
    )
