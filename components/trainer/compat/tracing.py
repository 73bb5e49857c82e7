"""Calls of a model that are traced: its state is read, and does not change.

Assignments to variables are traced and not executed, such as those of a layer that
counts its calls, of metrics, or of moving averages. Variables that are created in a
trace exist afterwards, with their initial values.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


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
    """Traces a function and computes what it returns, but nothing else.

    Args:
      function: As for `shapes`; it must not exchange values with other workers.

    Returns:
      The values of the tensors, in the same structure.
    """
    from tensorflow.python.eager import wrap_function

    # `tf.function` would run assignments, `tf.compat.v1.wrap_function` makes tf-keras
    # create its objects of TensorFlow 1.
    graph, holder = _traced(function), wrap_function.VariableHolder()
    whole = wrap_function.WrappedFunction(graph, variable_holder=holder)
    return whole.prune([], graph.structured_outputs)()


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
