"""Counts of a split's text values, equal to the counts of TFDV's Beam generator.

TFDV's exact generator is a Beam transform over rows, and its combiner is approximate.
This combiner is exact up to a number of distinct values; beyond it, its errors are
among the statistics (`value_counts`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

import pyarrow as pa
from tensorflow_data_validation import types
from tensorflow_data_validation.arrow import arrow_util
from tensorflow_data_validation.statistics import stats_options
from tensorflow_data_validation.statistics.generators import stats_generator
from tensorflow_data_validation.utils import stats_util, top_k_uniques_stats_util
from tensorflow_metadata.proto.v0 import statistics_pb2
from tfx_bsl.arrow import array_util

from strategos.components.statistics.value_counts import UNIQUE_ERROR, ValueCounts

COUNT_ERROR = "top_values_error"
"""Custom statistic: the largest error of the counts of the most frequent values."""
UNIQUE_STANDARD_ERROR = "unique_standard_error"
"""Custom statistic: the standard error of the number of distinct values."""

_Counts: TypeAlias = "dict[types.FeaturePath, ValueCounts]"


class TopValuesGenerator(stats_generator.CombinerStatsGenerator):
    """Most frequent values, their ranks, and the number of distinct values.

    Args:
      options: TFDV's options: how many values and buckets to keep.
    """

    def __init__(self, options: stats_options.StatsOptions):
        super().__init__("TopValuesGenerator")
        self._options = options

    def create_accumulator(self) -> _Counts:
        """Empty counts."""
        return {}

    def add_input(self, accumulator: _Counts, batch: pa.RecordBatch) -> _Counts:
        """Counts the text features of `batch`."""
        for path, array, _ in arrow_util.enumerate_arrays(
            batch, example_weight_map=None, enumerate_leaves_only=True
        ):
            kind = stats_util.get_feature_type_from_arrow_type(path, array.type)
            if kind == statistics_pb2.FeatureNameStatistics.STRING:
                values, _ = array_util.flatten_nested(array)
                accumulator.setdefault(path, ValueCounts()).add(values)
        return accumulator

    def merge_accumulators(self, accumulators: Iterable[_Counts]) -> _Counts:
        """The summed counts."""
        merged = self.create_accumulator()
        for accumulator in accumulators:
            for path, counts in accumulator.items():
                merged.setdefault(path, ValueCounts()).merge(counts)
        return merged

    def compact(self, accumulator: _Counts) -> _Counts:
        """The counts in as little memory as they need."""
        for counts in accumulator.values():
            counts.compact()
        return accumulator

    def extract_output(
        self, accumulator: _Counts
    ) -> statistics_pb2.DatasetFeatureStatistics:
        """The string statistics of every text feature that has a value."""
        result = statistics_pb2.DatasetFeatureStatistics()
        for path, counts in accumulator.items():
            if counts.unique():
                result.features.append(self._feature(path, counts))
        return result

    def _feature(
        self, path: types.FeaturePath, counts: ValueCounts
    ) -> statistics_pb2.FeatureNameStatistics:
        options = self._options
        shown = max(options.num_top_values, options.num_rank_histogram_buckets)
        unique = counts.unique()
        feature = top_k_uniques_stats_util.make_feature_stats_proto_topk_uniques(
            feature_path=path,
            num_top_values=options.num_top_values,
            num_rank_histogram_buckets=options.num_rank_histogram_buckets,
            num_unique=unique,
            value_count_list=[
                top_k_uniques_stats_util.FeatureValueCount(name, count)
                for name, count in counts.top(shown)
            ],
            frequency_threshold=options.frequency_threshold,
        )
        if counts.error:
            feature.custom_stats.add(name=COUNT_ERROR, num=counts.error)
            error = unique * UNIQUE_ERROR
            feature.custom_stats.add(name=UNIQUE_STANDARD_ERROR, num=error)
        return feature
