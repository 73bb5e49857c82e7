"""TFDV's statistics of Arrow batches: accumulated column by column, then merged."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

import pyarrow as pa
from tensorflow_data_validation.statistics import stats_impl, stats_options
from tensorflow_data_validation.statistics.generators import stats_generator
from tensorflow_metadata.proto.v0 import statistics_pb2

from strategos.components.records import columns
from strategos.components.shards import progress
from strategos.components.statistics.histograms import BasicStatsGenerator
from strategos.components.statistics.samples import SampleGenerator
from strategos.components.statistics.top_values import TopValuesGenerator

Batch: TypeAlias = "pa.RecordBatch | columns.Rows"
"""Rows of decoded tf.Examples."""

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
def _generators(ranked: int = 0) -> list[stats_generator.CombinerStatsGenerator]:
    options = stats_options.StatsOptions()
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


def empty(ranked: int = 0) -> list[Any]:
    """The accumulators of no rows; `ranked` as for `extracted`."""
    return [generator.create_accumulator() for generator in _generators(ranked)]


@dataclasses.dataclass(frozen=True)
class _Column:
    """A column of a batch, with the parts of `pa.RecordBatch` that TFDV reads.

    Attributes:
      schema: Schema of the column alone.
      columns: The column.
      num_rows: Rows that no other column of the batch has counted.
    """

    schema: pa.Schema
    columns: tuple[pa.Array]
    num_rows: int


def _by_column(batch: Batch) -> Iterator[_Column]:
    """Yields the columns of a batch: decoded, all of them would take much memory.

    Rows with thousands of values, e.g. of pixels, come some at a time, as TFDV copies
    the values of a column several times.
    """
    for number, (name, column) in enumerate(
        zip(batch.schema.names, batch.columns, strict=True)
    ):
        schema = pa.schema([(name, column.type)])
        rows = _rows_at_a_time(column)
        for start in range(0, max(len(column), 1), rows):
            some = column.slice(start, rows)
            yield _Column(schema, (some,), 0 if number else len(some))


def _rows_at_a_time(column: pa.Array) -> int:
    if pa.types.is_null(column.type):
        return max(len(column), 1)
    values = len(column.values)
    return max(1, min(_VALUES * len(column) // max(values, 1), len(column)))


def _add(batches: Iterable[Batch], ranked: int = 0) -> list[Any]:
    """The accumulator of each generator after all batches."""
    accumulators = empty(ranked)
    for batch in batches:
        for column in _by_column(batch):
            pairs = zip(_generators(ranked), accumulators, strict=True)
            accumulators = [each.add_input(so_far, column) for each, so_far in pairs]
        progress.add(batch.num_rows)
    return accumulators


def accumulated(batches: Iterable[Batch], ranked: int = 0) -> list[Any]:
    """The accumulators of all rows, for `merged` and `extracted`.

    Args:
      batches: Arrow batches of decoded tf.Examples.
      ranked: As for `extracted`.
    """
    pairs = zip(_generators(ranked), _add(batches, ranked), strict=True)
    return [generator.compact(accumulator) for generator, accumulator in pairs]


def merged(earlier: list[Any], later: list[Any], ranked: int = 0) -> list[Any]:
    """The accumulators of all rows of both arguments, which may be changed.

    Args:
      earlier: Accumulators of rows.
      later: Accumulators of later rows.
      ranked: As for `extracted`.
    """
    triples = zip(_generators(ranked), earlier, later, strict=True)
    return [each.merge_accumulators([a, b]) for each, a, b in triples]


def extracted(
    accumulators: list[Any], ranked: int = 0
) -> statistics_pb2.DatasetFeatureStatisticsList:
    """The statistics of the rows that `accumulated` saw.

    Args:
      accumulators: From `accumulated` or `merged`.
      ranked: Number of values with counts, the most frequent ones, of each text
        feature; features of numbers then have a sample (`samples`). Default: TFDV's
        number, without samples.
    """
    return stats_impl.extract_statistics_output(accumulators, _generators(ranked))
