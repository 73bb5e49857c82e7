"""Traces the call of a model to find operations on both variables and features.

Only the first layers count: a path from a feature to a variable's operation ends at the
first variable that it meets.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from strategos.components.trainer.compat import (
    keras3,
    partitioned_variables,
    tracing,
)
from strategos.components.trainer.model import effects
from strategos.components.trainer.model.replicas import local_values
from strategos.components.transformed import feature_ids
from strategos.components.transformed.feature_ids import FeatureIds

UNKNOWN = -1
"""Stands for an unknown axis."""

_PASSING = frozenset({"ReadVariableOp", "Identity", "Cast"})
_ADDING = frozenset({"AddV2", "Add", "Sub", "BiasAdd", "AddN"})
_BY_COLUMN = _ADDING | {
    *("Identity", "Cast", "Softmax", "LogSoftmax", "Sigmoid", "Relu", "Elu", "Tanh"),
    *("Mul", "RealDiv", "Exp", "Log", "Maximum", "Minimum", "Neg", "Softplus"),
}
_PRODUCTS = {"MatMul": "transpose_b"}


@dataclasses.dataclass(frozen=True, eq=False)
class Use:
    """An operation on a variable and a tensor computed from features, e.g. a MatMul.

    Attributes:
      table: Index of the variable among the model's tables.
      op: The operation.
      place: Index of `operand` among the operation's inputs.
      operand: The tensor.
      sources: The features, or look-ups of the model, from which `operand` is computed.
    """

    table: int
    op: tf.Operation
    place: int
    operand: tf.Tensor
    sources: frozenset[str]

    def axis_of_columns(self, width: int) -> int:
        """The axis of the variable that is summed with the operand's last axis.

        Args:
          width: Size of the operand's last axis.

        Returns:
          The axis; `UNKNOWN` for other operations than products, or if it is ambiguous.
        """
        other = self.op.inputs[1 - self.place] if self.place < 2 else None
        shape = [] if other is None else other.shape.as_list()
        if self.op.type == "MatMul" and self.place == 0:
            if self.op.get_attr("transpose_a"):
                return UNKNOWN
            return 1 if self.op.get_attr("transpose_b") else 0
        if self.op.type in ("Mul", "Einsum", "BatchMatMulV2", "BatchMatMulV3"):
            fitting = [axis for axis, size in enumerate(shape) if size == width]
            return fitting[0] if len(fitting) == 1 else UNKNOWN
        return UNKNOWN


class Forward:
    """The call of a model on a few rows, traced.

    Args:
      model: A built model.
      features: Tensors `[rows, …]` by feature, sparse and ragged ones, too.

    Attributes:
      uses: All uses of variables in first layers.
      lookups: Keys and ids of the look-ups in the model, by name.
    """

    def __init__(self, model: tf.keras.Model, features: Mapping[str, Any]):
        self._model, inputs = model, keras3.taken(model, features)
        self._features = {name: _without_nan(x) for name, x in inputs.items()}

        def call(inputs: Mapping[str, Any]) -> Any:
            return local_values.of_first(lambda: model(inputs, training=False))

        self._trace = tracing.Trace(call, self._features)
        self._fed = [x for parts in self._trace.placeholders.values() for x in parts]
        self._values = tf.nest.flatten(
            list(self._features.values()), expand_composites=True
        )
        self.uses: list[Use] = []
        self.lookups: dict[str, FeatureIds] = {}
        self._made: set[str] = set()  # ops with a variable as a direct input
        self._lookup_outputs: dict[str, tf.Tensor] = {}
        self._follow(_handles(model))

    def feature(self, name: str) -> Any:
        """The rows of a feature: a tensor, sparse or ragged tensor."""
        return self._features[name]

    def computed(
        self, source: str, values: Sequence[Any]
    ) -> list[dict[Use, np.ndarray]]:
        """Computes the operands of all uses for each of several values of one source.

        All other features, and tensors computed from variables, keep their values.

        Args:
          source: A feature or a look-up of the model.
          values: For a feature, tensors like its own; for a look-up, ids.

        Returns:
          For each value, arrays by use; {} for a value that an operation rejects.
        """
        if source in self._lookup_outputs:
            return [self._evaluated({}, {source: value}) for value in values]
        return [self._evaluated({source: value}) for value in values]

    def columns_changed(
        self, columns: Sequence[tuple[str, int]]
    ) -> list[dict[Use, set[int]]]:
        """Finds the columns of operands that change with single columns of features.

        Args:
          columns: Pairs of a feature `[rows, n]` and the index of one of its columns.

        Returns:
          For each pair, the changed columns by use. Only operands that are matrices
          with as many rows as the features are compared.
        """
        first = self._evaluated({})
        changes: list[dict[Use, set[int]]] = []
        rows = len(self._features[columns[0][0]]) if columns else 1
        for begin in range(0, len(columns), rows):
            chunk = columns[begin : begin + rows]
            features: dict[str, np.ndarray] = {}
            for row, (name, column) in enumerate(chunk):
                if name not in features:
                    features[name] = self._features[name].numpy().copy()
                features[name].reshape(rows, -1)[row, column] += 1
            now = self._evaluated({k: tf.constant(x) for k, x in features.items()})
            changes += [
                {
                    use: set(np.flatnonzero(differ(now[use][row], x[row])).tolist())
                    for use, x in first.items()
                    if use in now and x.ndim == 2 and len(x) == rows
                }
                for row in range(len(chunk))
            ]
        return changes

    def _evaluated(
        self, changed: Mapping[str, Any], looked_up: Mapping[str, Any] | None = None
    ) -> dict[Use, np.ndarray]:
        """Computes the operands for changed features and changed results of look-ups.

        Returns {} if an operation rejects the values.
        """
        part, flat = self._part
        kept = flat[len(self._values) :]
        for name, value in (looked_up or {}).items():
            place = [*self._lookup_outputs].index(name) - len(self._lookup_outputs)
            shape, dtype = kept[place].shape, kept[place].dtype
            kept[place] = tf.fill(shape, tf.cast(value, dtype))
        features = list({**self._features, **changed}.values())
        try:
            values = part(*tf.nest.flatten(features, expand_composites=True), *kept)
        except tf.errors.OpError:
            return {}
        return dict(zip(self.uses, (x.numpy() for x in values), strict=True))

    @functools.cached_property
    def _part(self) -> tuple[Any, list[Any]]:
        """The function that computes the operands, and the values of its inputs.

        The inputs are the features, then the kept tensors: tensors computed from
        variables, and the results of look-ups.
        """
        operands = [use.operand for use in self.uses]
        kept = [*self._boundaries(operands), *self._lookup_outputs.values()]
        known = self._trace.part(self._fed, kept)(*self._values) if kept else []
        part = self._trace.part([*self._fed, *kept], operands)
        return part, [*self._values, *known]

    def columns(self, head: str = "") -> list[tuple[int, int, int]]:
        """Finds variables with a slice for each column of an output, e.g. its bias.

        Args:
          head: Name of the output; "" for all outputs.

        Returns:
          Tuples of table, axis and number of columns. The axis is -1 if an operation
          may exchange columns; then each table with an axis of that size is listed.
        """
        columns_of, outputs = [], self._trace.graph.structured_outputs
        if head:
            _, outputs = effects.by_output(self._model, outputs)[head]
        for output in tf.nest.flatten(outputs):
            if output.dtype.is_floating and output.shape.rank and output.shape[-1]:
                columns_of += self._columns_of(output, output.shape[-1])
        return columns_of

    def _columns_of(self, output: tf.Tensor, width: int) -> list[tuple[int, int, int]]:
        todo, seen = [output], {output.ref()}
        columns_of, is_known = [], True
        while todo:
            op = todo.pop().op
            tables = [
                (x, self._held[x.ref()]) for x in op.inputs if x.ref() in self._held
            ]
            if op.type in _PRODUCTS and tables:
                transposed = op.get_attr(_PRODUCTS[op.type])
                columns_of += [
                    (table, 0 if transposed else 1, width) for _, table in tables
                ]
            elif op.type in _BY_COLUMN:
                columns_of += [
                    (table, x.shape.rank - 1, width)
                    for x, table in tables
                    if x.shape.rank and x.shape[-1] == width
                ]
                new = [
                    x
                    for x in op.inputs
                    if x.ref() not in seen and x.ref() not in self._held
                ]
                seen.update(x.ref() for x in new)
                todo += new
            elif op.type not in ("Const", "Placeholder"):
                is_known = False
        return (
            columns_of if is_known else [(x, -1, width) for x in self._of_size(width)]
        )

    def _of_size(self, width: int) -> list[int]:
        """Indices of the tables with an axis of size `width`, ascending."""
        indices = (
            table
            for tensor, table in self._held.items()
            if width
            in (tensor.deref().shape.as_list() if tensor.deref().shape.rank else [])
        )
        return sorted(set(indices))

    def _boundaries(self, operands: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """The tensors that operands get from variables, through any operation."""
        stops = {x.op.name for x in (*self._fed, *self._lookup_outputs.values())}
        todo, seen = list(operands), {x.ref() for x in operands}
        boundaries = []
        while todo:
            tensor = todo.pop()
            if tensor.op.name in self._made:
                boundaries.append(tensor)
            elif tensor.op.name not in stops:
                new = [x for x in tensor.op.inputs if x.ref() not in seen]
                seen.update(x.ref() for x in new)
                todo += new
        return boundaries

    def _follow(self, handles: Mapping[int, int]) -> None:
        """Finds uses and look-ups, going through operations in topological order."""
        graph = self._trace.graph
        captured = {id(inner): outer for outer, inner in graph.captures}
        held = {  # tensors that are a variable, or its value
            inner.ref(): handles[id(outer)]
            for outer, inner in graph.captures
            if id(outer) in handles
        }
        reached = {
            part.ref(): frozenset({name})
            for name, parts in self._trace.placeholders.items()
            for part in parts
        }
        self._held = held
        for op in graph.get_operations():
            inputs = list(op.inputs)
            of_tables = [held[x.ref()] for x in inputs if x.ref() in held]
            if of_tables and op.type in _PASSING:
                held |= {x.ref(): of_tables[0] for x in op.outputs}
                continue
            if of_tables:
                self._made.add(op.name)
                self._use(op, of_tables, held, reached)
                continue
            sources = [reached.get(x.ref(), frozenset()) for x in inputs]
            union = frozenset().union(*sources)
            if op.type == feature_ids.LOOKUP and union:
                union = self._lookup(op, captured.get(id(inputs[0])), union)
            if union:
                reached |= {x.ref(): union for x in op.outputs}

    def _use(
        self,
        op: tf.Operation,
        of_tables: Sequence[int],
        held: Mapping[Any, int],
        reached: Mapping[Any, frozenset[str]],
    ) -> None:
        if op.type in _ADDING:
            return
        for place, operand in enumerate(op.inputs):
            sources = reached.get(operand.ref())
            if sources and operand.ref() not in held:
                self.uses += [Use(x, op, place, operand, sources) for x in of_tables]

    def _lookup(
        self, op: tf.Operation, table: Any, sources: frozenset[str]
    ) -> frozenset[str]:
        """Adds a look-up in the model as a source; returns the sources of its ids."""
        kinds = [op.get_attr(name) for name in ("Tin", "Tout")]
        if table is None or not kinds[1].is_integer:
            return sources
        keys, ids = feature_ids.content(table, *kinds)
        features = ", ".join(sorted(sources))
        name = f"look-up {len(self.lookups) + 1} in the model, of {features}"
        digest = feature_ids.hash_of_table(keys, ids)
        others = np.zeros(0, np.int64)
        self.lookups[name] = FeatureIds(
            digest, True, keys, ids.astype(np.int64), others
        )
        self._lookup_outputs[name] = op.outputs[0]
        return frozenset({name})


def differ(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Mask of the places at which two arrays differ; NaN equals NaN."""
    return (one != other) & ((one == one) | (other == other))


def _without_nan(value: Any) -> Any:
    if not isinstance(value, tf.Tensor) or not value.dtype.is_floating:
        return value
    return tf.where(tf.math.is_nan(value), tf.zeros_like(value), value)


def _handles(model: tf.keras.Model) -> dict[int, int]:
    """Indices of tables by the `id` of the handle of each local variable."""
    strategy = tf.distribute.get_strategy()
    indices = {}
    for index, table in enumerate(partitioned_variables.tables_of(model)):
        for part in table:
            variable = keras3.of_tensorflow(part)
            for local in strategy.experimental_local_results(variable):
                indices[id(local.handle)] = index
    return indices
