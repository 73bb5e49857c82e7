"""States of analyzers: computed for a shard, merged between shards."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import apache_beam as beam
import numpy as np
import pyarrow as pa
import tensorflow as tf

from strategos.components.transform.analyzers import tft_private
from strategos.components.transform.analyzers.counts import Counts
from strategos.components.transform.analyzers.spilled import Bounds
from strategos.components.transform.analyzers.tft_private import analyzer_nodes
from strategos.components.transform.analyzers.token_states import TokenStates

Values = tuple[tf.Tensor, ...]
"""The tensors of a batch that one analyzer reads."""
_Arrays = tuple[np.ndarray, ...]


class Accumulator(Protocol):
    """Collects the values of an analyzer in a state."""

    def new(self) -> Any:
        """The state before the first row."""

    def add(self, state: Any, values: Values) -> Any:
        """The state with a batch more; may change `state`."""

    def merge(self, earlier: Any, later: Any) -> Any:
        """The state of two neighbours; may change both."""

    def compact(self, state: Any) -> Any:
        """The state of a whole shard in as little memory as it needs."""


Reading = Mapping[str, tuple[Accumulator, Sequence[str]]]
"""By label, an accumulator and the names of the tensors that it reads."""


class Combined:
    """The state of a combiner of TFT.

    Args:
      combiner: TFT's.
    """

    def __init__(self, combiner: Any):
        self._combiner = combiner
        self.new, self.compact = combiner.create_accumulator, combiner.compact

    def add(self, state: Any, values: Values) -> Any:
        """See `Accumulator`."""
        return self._combiner.add_input(state, _arrays(values))

    def merge(self, earlier: Any, later: Any) -> Any:
        """See `Accumulator`."""
        return self._combiner.merge_accumulators([earlier, later])


class ByKey:
    """The states of a combiner by key.

    Args:
      split: Yields the keys of a batch, each with the input of the combiner.
      combiner: A combiner of TFT or Beam.
    """

    def __init__(
        self, split: Callable[[_Arrays], Iterable[tuple[Any, Any]]], combiner: Any
    ):
        self._split, self._combiner = split, combiner

    def new(self) -> dict[Any, Any]:
        """See `Accumulator`."""
        return {}

    def add(self, state: dict[Any, Any], values: Values) -> dict[Any, Any]:
        """See `Accumulator`."""
        for key, value in self._split(_arrays(values)):
            if key not in state:
                state[key] = self._combiner.create_accumulator()
            state[key] = self._combiner.add_input(state[key], value)
        return state

    def merge(self, earlier: dict[Any, Any], later: dict[Any, Any]) -> dict[Any, Any]:
        """See `Accumulator`."""
        for key, value in later.items():
            if key in earlier:
                value = self._combiner.merge_accumulators([earlier[key], value])
            earlier[key] = value
        return earlier

    def compact(self, state: dict[Any, Any]) -> dict[Any, Any]:
        """See `Accumulator`."""
        return {key: self._combiner.compact(value) for key, value in state.items()}


class ByToken:
    """The states of a combiner by token, within bounds.

    Args:
      split: See `ByKey`.
      combiner: See `ByKey`.
      bounds: Memory for the states.
    """

    def __init__(
        self,
        split: Callable[[_Arrays], Iterable[tuple[Any, Any]]],
        combiner: Any,
        bounds: Bounds,
    ):
        self._states, self._bounds = ByKey(split, combiner), bounds
        bounds.tables += 1

    def new(self) -> TokenStates:
        """See `Accumulator`."""
        return TokenStates(self._bounds)

    def add(self, state: TokenStates, values: Values) -> TokenStates:
        """See `Accumulator`."""
        self._states.add(state.held, values)
        return self.compact(state)

    def merge(self, earlier: TokenStates, later: TokenStates) -> TokenStates:
        """See `Accumulator`."""
        earlier.take_files(later)
        self._states.merge(earlier.held, later.held)
        return self.compact(earlier)

    def compact(self, state: TokenStates) -> TokenStates:
        """See `Accumulator`."""
        state.spill_if_large()
        return state


class Counted:
    """Counts of tokens, or sums of their weights.

    Args:
      bounds: Memory for the counts.
    """

    def __init__(self, bounds: Bounds):
        self._bounds = bounds
        bounds.tables += 1

    def new(self) -> Counts:
        """See `Accumulator`."""
        return Counts(self._bounds)

    def add(self, state: Counts, values: Values) -> Counts:
        """See `Accumulator`."""
        tokens, *weights = values
        state.add(_arrow(tokens), *_arrays(weights))
        return state

    def merge(self, earlier: Counts, later: Counts) -> Counts:
        """See `Accumulator`."""
        return earlier.merge(later)

    def compact(self, state: Counts) -> Counts:
        """See `Accumulator`."""
        return state.compact()


def _arrays(values: Iterable[tf.Tensor]) -> _Arrays:
    return tuple(map(np.asarray, values))


def _arrow(tokens: tf.Tensor) -> pa.Array:
    """The tokens, without an object of Python for each, so that other threads run."""
    if tokens.dtype != tf.string:
        return pa.array(np.asarray(tokens))
    lengths, content = tf.strings.length(tokens), tf.strings.reduce_join(tokens)
    ends = np.append(0, np.cumsum(lengths, dtype=np.int64))
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(content.numpy())]
    return pa.Array.from_buffers(pa.large_binary(), len(lengths), buffers)


def of_vocabulary(ordering: int, bounds: Bounds) -> Accumulator:
    """The accumulator of a vocabulary.

    Args:
      ordering: TFT's kind of order, e.g. by frequency or by mutual information.
      bounds: Memory for counts.
    """
    kinds = tft_private.ordering
    if ordering in (kinds.MUTUAL_INFORMATION, kinds.WEIGHTED_MUTUAL_INFORMATION):
        is_weighted = ordering == kinds.WEIGHTED_MUTUAL_INFORMATION
        split = functools.partial(
            tft_private.means_of_tokens, compute_weighted=is_weighted
        )
        mean = tft_private.WeightedMean((None,), compute_weighted=is_weighted)
        return ByToken(split, mean, bounds)
    if ordering == kinds.WEIGHTED_LABELS:
        total = beam.CombineFn.from_callable(tft_private.sum_labels)
        return ByKey(tft_private.labels_of_tokens, total)
    return Counted(bounds)


def accumulators(operation: Any, bounds: Bounds) -> dict[str, Accumulator]:
    """The accumulators of an operation, by label; {} if it does not read rows.

    Args:
      operation: An operation of TFT.
      bounds: Memory for counts of tokens.
    """
    if isinstance(operation, analyzer_nodes.PackedCombineAccumulate):
        return {each.label: Combined(each.combiner) for each in operation.combiners}
    if isinstance(operation, analyzer_nodes.CacheableCombineAccumulate):
        return {operation.label: Combined(operation.combiner)}
    if isinstance(operation, analyzer_nodes.CacheableCombinePerKeyAccumulate):
        return {operation.label: ByKey(tft_private.by_key, operation.combiner)}
    if isinstance(operation, analyzer_nodes.VocabularyAccumulate):
        kind = operation.vocab_ordering_type
        return {operation.label: of_vocabulary(kind, bounds)}
    return {}
