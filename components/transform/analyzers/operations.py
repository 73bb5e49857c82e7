"""Computes TFT's graph of operations without Beam."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from strategos.components.transform.analyzers import counts, phase, tft_private
from strategos.components.transform.analyzers.accumulators import (
    Accumulator,
    Reading,
    accumulators,
)
from strategos.components.transform.analyzers.phase import Rows
from strategos.components.transform.analyzers.spilled import Bounds
from strategos.components.transform.analyzers.tft_private import (
    PreprocessingFn,
    Traced,
    analyzer_nodes,
    beam_nodes,
    nodes,
)
from strategos.components.transform.analyzers.token_states import Informative

_Values = tuple[Any, ...]


class Analysis(nodes.Visitor):
    """Computes the values of a graph of operations.

    Args:
      rows: The rows to analyze.
      first: The first graph of TensorFlow, without results of analyzers.
      trace: Makes the graph with the results so far.
      reading: By label of a phase, its accumulators and the tensors that they read.

    Attributes:
      temporary: Local folder for vocabularies and large counts.
    """

    def __init__(
        self,
        rows: Rows,
        first: Traced,
        trace: Callable[[dict[str, tf.Tensor]], Traced],
        reading: Mapping[str, Reading],
    ):
        self._rows, self._first, self._trace = rows, first, trace
        self._reading, self.temporary = reading, rows.temporary

    def visit(self, operation: Any, inputs: _Values) -> _Values:
        """See `nodes.Visitor`."""
        return OPERATIONS[type(operation)](self, operation, *inputs)

    def validate_value(self, value: Any) -> None:
        """See `nodes.Visitor`; values are of any type."""

    def _graph(self, operation: Any, *results: tuple[str, tf.Tensor]) -> _Values:
        return (self._trace(dict(results)) if results else self._first,)

    def _read(self, operation: Any, traced: Traced, rows: None) -> _Values:
        return (phase.states(self._rows, traced, self._reading[operation.label]),)

    def _bind(self, operation: Any, value: Any) -> _Values:
        dtype = tf.dtypes.as_dtype(operation.dtype_enum)
        return ((operation.tensor_name, tf.constant(value, dtype)),)

    def _reserved(self, operation: Any) -> _Values:
        return (tft_private.reserved_tokens(self._first.graph, operation.name),)

    def _write(self, operation: Any, left: Any, reserved: Any = None) -> _Values:
        return (counts.write(left, operation, reserved, self.temporary),)


def _nothing(visitor: Any, operation: Any, *inputs: Any) -> _Values:
    return (None,)


def _extract(visitor: Any, operation: Any, result: Any) -> _Values:
    """The tensors of an analyzer, or its state among several packed ones."""
    is_label = isinstance(operation.keys, str)
    return (result[operation.keys] if is_label else result,)


def _accumulated(visitor: Any, operation: Any, states: Any) -> _Values:
    return (states[operation.label],)


def _packed(visitor: Any, operation: Any, states: Any) -> _Values:
    return ({each.label: states[each.label] for each in operation.combiners},)


def _outcome(combiner: Any, state: Any) -> Any:
    merging = tft_private.Merging(combiner, is_combining_accumulators=True)
    state = merging.add_input(merging.create_accumulator(), state)
    return merging.extract_output(state)


def _merge(visitor: Any, operation: Any, state: Any) -> _Values:
    return (_outcome(operation.combiner, state),)


def _merge_packed(visitor: Any, operation: Any, states: Any) -> _Values:
    by_label = dict(states)
    return (
        {
            each.label: _outcome(each.combiner, by_label[each.keys[0]])
            for each in operation.combiners
        },
    )


def _merge_by_key(visitor: Any, operation: Any, states: Any) -> _Values:
    outcomes = {key: _outcome(operation.combiner, each) for key, each in states.items()}
    return (list(outcomes.items()),)


def _outputs(visitor: Any, operation: Any, outputs: Any) -> _Values:
    if len(outputs) != operation.num_outputs:
        raise ValueError(
            f"{operation.label} has {operation.num_outputs} outputs, but computes "
            f"{len(outputs)}"
        )
    return tuple(outputs)


def _columns_by_key(visitor: Any, operation: Any, pairs: Any) -> _Values:
    dtypes = [info.dtype for info in operation.combiner.output_tensor_infos()]
    return tuple(each.value for each in tft_private.keys_and_outputs(pairs, dtypes))


def _lines_by_key(visitor: Any, operation: Any, pairs: Any) -> _Values:
    text = tf.compat.as_str_any
    return ([(text(",".join(map(text, lines))), key) for key, lines in pairs],)


def _boundaries_by_key(visitor: Any, operation: Any, matrix: Any) -> _Values:
    return tft_private.boundaries_of_keys(matrix)


def _merge_vocabulary(visitor: Any, operation: Any, state: Any) -> _Values:
    kinds, order = tft_private.ordering, operation.vocab_ordering_type
    if order in (kinds.MUTUAL_INFORMATION, kinds.WEIGHTED_MUTUAL_INFORMATION):
        return (Informative(state, operation, visitor.temporary),)
    if order == kinds.WEIGHTED_LABELS:
        return ([(value, token) for token, value in state.items()],)
    return (state.total(visitor.temporary),)


def _prune(visitor: Any, operation: Any, counted: Any) -> _Values:
    on_disk = isinstance(counted, Informative) and counted.on_disk
    if on_disk and operation.key_fn is None:
        return (counted.pruned(operation),)
    return (counts.pruned(counted, operation),)


def _size(visitor: Any, operation: Any, counted: Any) -> _Values:
    return (counts.size(counted),)


def _with_key(visitor: Any, operation: Any, value: Any) -> _Values:
    return ((operation.key, value),)


def _several(visitor: Any, operation: Any, *values: Any) -> _Values:
    return (list(values),)


def _list(visitor: Any, operation: Any, values: Any) -> _Values:
    return (list(values),)


OPERATIONS: dict[type, Callable[..., _Values]] = {
    beam_nodes.ApplySavedModel: Analysis._read,
    beam_nodes.CreateSavedModel: Analysis._graph,
    beam_nodes.CreateTensorBinding: Analysis._bind,
    beam_nodes.ExtractFromDict: _extract,
    beam_nodes.ExtractInputForSavedModel: _nothing,
    beam_nodes.Flatten: _several,
    analyzer_nodes.AddKey: _with_key,
    analyzer_nodes.CacheableCombineAccumulate: _accumulated,
    analyzer_nodes.CacheableCombineMerge: _merge,
    analyzer_nodes.CacheableCombinePerKeyAccumulate: _accumulated,
    analyzer_nodes.CacheableCombinePerKeyFormatKeys: _columns_by_key,
    analyzer_nodes.CacheableCombinePerKeyFormatLarge: _lines_by_key,
    analyzer_nodes.CacheableCombinePerKeyMerge: _merge_by_key,
    analyzer_nodes.ExtractCombineMergeOutputs: _outputs,
    analyzer_nodes.ExtractPackedCombineMergeOutputs: _outputs,
    analyzer_nodes.ExtractVocabularyReservedTokens: Analysis._reserved,
    analyzer_nodes.FlattenLists: _list,
    analyzer_nodes.PackedCombineAccumulate: _packed,
    analyzer_nodes.PackedCombineMerge: _merge_packed,
    analyzer_nodes.ScaleAndFlattenPerKeyBucketBouandaries: _boundaries_by_key,
    analyzer_nodes.VocabularyAccumulate: _accumulated,
    analyzer_nodes.VocabularyCount: _size,
    analyzer_nodes.VocabularyMerge: _merge_vocabulary,
    analyzer_nodes.VocabularyOrderAndWrite: Analysis._write,
    analyzer_nodes.VocabularyPrune: _prune,
}
"""Functions for the operations that TFT builds without a cache of accumulators."""


class Plan(nodes.Visitor):
    """Finds the inputs of each phase, before anything is computed.

    Args:
      bounds: Memory for counts of tokens.

    Attributes:
      reading: By label of a phase, its accumulators and the tensors that they read.
      unknown: Operations that only Beam can compute.
    """

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self.reading: dict[str, dict[str, tuple[Accumulator, Sequence[str]]]] = {}
        self.unknown: list[Any] = []

    def visit(self, operation: Any, inputs: _Values) -> _Values:
        """See `nodes.Visitor`; a value is a phase and the names of tensors in it."""
        if type(operation) not in OPERATIONS:
            self.unknown.append(operation)
        if isinstance(operation, beam_nodes.ApplySavedModel):
            self.reading[operation.label] = {}
            return ((operation.label, ()),)
        if isinstance(operation, beam_nodes.ExtractFromDict):
            return ((inputs[0][0], operation.keys),)
        by_label = accumulators(operation, self._bounds)
        packed = getattr(operation, "combiners", ())
        names = {each.label: each.keys for each in packed}
        for label, accumulator in by_label.items():
            label_of_phase, read = inputs[0]
            read = names.get(label, read)
            self.reading[label_of_phase][label] = accumulator, read
        return (("", ()),) * operation.num_outputs

    def validate_value(self, value: Any) -> None:
        """See `nodes.Visitor`; values are of any type."""


def analyze(
    rows: Rows,
    function: PreprocessingFn,
    specs: Mapping[str, tf.TypeSpec],
    folder: str,
) -> str:
    """Analyzes rows and writes TFT's graph.

    Args:
      rows: The rows.
      function: `preprocessing_fn`.
      specs: Types of its inputs.
      folder: Gets `transform_fn/` and `transformed_metadata/`.

    Returns:
      ""; or the label of an operation that only Beam can compute: nothing is written.
    """
    trace = functools.partial(Traced, function, specs, rows.temporary)
    first = trace()
    _check(first)
    assets = first.assets()
    fingerprint = first.fingerprint()

    def traced(results: dict[str, tf.Tensor]) -> Traced:
        traced_graph = trace(results)
        traced_graph.check(fingerprint)
        return traced_graph

    plan = Plan(Bounds(rows.shared, rows.bytes))
    future = tft_private.build(first)
    nodes.Traverser(plan).visit_value_node(future)
    if plan.unknown:
        return plan.unknown[0].label
    visitor = Analysis(rows, first, traced, plan.reading)
    nodes.Traverser(visitor).visit_value_node(future).save(folder, assets)
    return ""


def _check(traced: Traced) -> None:
    if not traced.outputs:
        raise ValueError("The preprocessing function returned an empty dict")
    if traced.graph.get_collection(tf.compat.v1.GraphKeys.TRAINABLE_VARIABLES):
        raise ValueError("The preprocessing function contained trainable variables")
