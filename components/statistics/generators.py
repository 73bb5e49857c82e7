"""TFDV's statistics of Arrow batches: accumulated column by column, then merged."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeAlias, TypeVar

import pyarrow as pa
from tensorflow_data_validation.statistics import stats_impl, stats_options
from tensorflow_data_validation.statistics.generators import stats_generator
from tensorflow_metadata.proto.v0 import statistics_pb2

from strategos.components.records import columns
from strategos.components.shards import progress
from strategos.components.statistics.histograms import BasicStatsGenerator
from strategos.components.statistics.samples import SampleGenerator
from strategos.components.statistics.top_values import WEIGHT, TopValuesGenerator

Batch: TypeAlias = "pa.RecordBatch | columns.Rows"
"""Rows of decoded tf.Examples."""

_Key = TypeVar("_Key")
_VALUES = 1 << 21  # of a column that TFDV gets at a time


def compute(
    batches: Iterable[Batch],
) -> statistics_pb2.DatasetFeatureStatisticsList:
    """The statistics of all rows, with TFDV's default options.

    Args:
      batches: Arrow batches of decoded tf.Examples.
    """
    return extracted(_add(batches))


@functools.cache
def _generators(
    ranked: int = 0, weighted: bool = False
) -> list[stats_generator.CombinerStatsGenerator]:
    options = stats_options.StatsOptions(weight_feature=WEIGHT if weighted else None)
    if ranked:
        options.num_rank_histogram_buckets = ranked
    generators: list[stats_generator.CombinerStatsGenerator] = [
        BasicStatsGenerator(
            schema=options.schema,
            example_weight_map=options.example_weight_map,
            num_values_histogram_buckets=options.num_values_histogram_buckets,
            num_histogram_buckets=options.num_histogram_buckets,
            num_quantiles_histogram_buckets=options.num_quantiles_histogram_buckets,
            epsilon=options.epsilon,
        ),
        TopValuesGenerator(options),
    ]
    if ranked:
        generators.append(SampleGenerator())
    for generator in generators:
        generator.setup()
    return generators


def empty(ranked: int = 0, weighted: bool = False) -> list[Any]:
    """The accumulators of no rows; arguments as for `extracted`."""
    generators = _generators(ranked, weighted)
    return [generator.create_accumulator() for generator in generators]


@dataclasses.dataclass(frozen=True)
class _Column:
    """A column of a batch, with the parts of `pa.RecordBatch` that TFDV reads.

    Attributes:
      schema: Schema of the columns.
      columns: The column, and the weights of its rows if it has some.
      num_rows: Rows that no other column of the batch has counted.
    """

    schema: pa.Schema
    columns: tuple[pa.Array, ...]
    num_rows: int

    def column(self, index: int) -> pa.Array:
        """The column at an index of `schema`."""
        return self.columns[index]


def _pieces(
    name: str, column: pa.Array, weights: pa.Array | None, is_first: bool
) -> Iterator[_Column]:
    """Yields the rows of a column.

    Rows with thousands of values, e.g. of pixels, come some at a time, as TFDV copies
    the values of a column several times.
    """
    arrays = {name: column} if weights is None else {name: column, WEIGHT: weights}
    schema = pa.schema([(key, array.type) for key, array in arrays.items()])
    rows = _rows_at_a_time(column)
    for start in range(0, max(len(column), 1), rows):
        some = tuple(array.slice(start, rows) for array in arrays.values())
        yield _Column(schema, some, len(some[0]) if is_first else 0)


@dataclasses.dataclass(frozen=True)
class Part:
    """Some rows of a batch, e.g. a slice.

    Attributes:
      rows: int64 indices, ascending; None for all rows.
      weights: Lists of one float64 for each row of the batch; None without weights.
    """

    rows: pa.Array | None = None
    weights: pa.Array | None = None

    def of(self, column: pa.Array) -> pa.Array:
        """The rows of a column."""
        return column if self.rows is None else column.take(self.rows)

    @property
    def own_weights(self) -> pa.Array | None:
        """The weights of the rows."""
        return None if self.weights is None else self.of(self.weights)


def add(
    accumulators: Mapping[_Key, list[Any]],
    batch: Batch,
    parts: Mapping[_Key, Part],
    ranked: int = 0,
) -> None:
    """Adds the rows of a batch; decoded, all of its columns would take much memory.

    Args:
      accumulators: From `empty`, by key; changed in place.
      batch: Decoded tf.Examples.
      parts: The rows that each key gets; all with weights, or all without.
      ranked: As for `extracted`.
    """
    weights = {key: part.own_weights for key, part in parts.items()}
    columns = zip(batch.schema.names, batch.columns, strict=True)
    for number, (name, column) in enumerate(columns):
        for key, part in parts.items():
            so_far, own = accumulators[key], weights[key]
            generators = _generators(ranked, own is not None)
            for piece in _pieces(name, part.of(column), own, is_first=not number):
                for place, generator in enumerate(generators):
                    so_far[place] = generator.add_input(so_far[place], piece)
    progress.add(batch.num_rows)


def _rows_at_a_time(column: pa.Array) -> int:
    if pa.types.is_null(column.type):
        return max(len(column), 1)
    values = len(column.values)
    return max(1, min(_VALUES * len(column) // max(values, 1), len(column)))


def _add(batches: Iterable[Batch], ranked: int = 0) -> list[Any]:
    """The accumulator of each generator after all batches."""
    accumulators = {None: empty(ranked)}
    for batch in batches:
        add(accumulators, batch, {None: Part()}, ranked)
    return accumulators[None]


def accumulated(batches: Iterable[Batch], ranked: int = 0) -> list[Any]:
    """The accumulators of all rows, for `merged` and `extracted`.

    Args:
      batches: Arrow batches of decoded tf.Examples.
      ranked: As for `extracted`.
    """
    return compacted(_add(batches, ranked), ranked)


def compacted(
    accumulators: list[Any], ranked: int = 0, weighted: bool = False
) -> list[Any]:
    """The accumulators in as little memory as they need; arguments as `extracted`."""
    pairs = zip(_generators(ranked, weighted), accumulators, strict=True)
    return [generator.compact(accumulator) for generator, accumulator in pairs]


def merged(
    earlier: list[Any], later: list[Any], ranked: int = 0, weighted: bool = False
) -> list[Any]:
    """The accumulators of all rows of both arguments, which may be changed.

    Args:
      earlier: Accumulators of rows.
      later: Accumulators of later rows.
      ranked: As for `extracted`.
      weighted: As for `extracted`.
    """
    triples = zip(_generators(ranked, weighted), earlier, later, strict=True)
    return [each.merge_accumulators([a, b]) for each, a, b in triples]


def extracted(
    accumulators: list[Any], ranked: int = 0, weighted: bool = False
) -> statistics_pb2.DatasetFeatureStatisticsList:
    """The statistics of the rows that `accumulated` or `add` saw.

    Args:
      accumulators: From `accumulated` or `merged`.
      ranked: Number of values with counts, the most frequent ones, of each text
        feature; features of numbers then have a sample (`samples`). Default: TFDV's
        number, without samples.
      weighted: Whether the rows had weights.
    """
    generators = _generators(ranked, weighted)
    return stats_impl.extract_statistics_output(accumulators, generators)
