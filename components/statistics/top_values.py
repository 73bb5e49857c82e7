"""Counts of a split's text values, equal to the counts of TFDV's Beam generator.

TFDV's exact generator is a Beam transform over rows, and its combiner is approximate.
This combiner is exact up to a number of distinct values; beyond it, its errors are
among the statistics (`value_counts`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

import numpy as np
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
WEIGHT_ERROR = "weighted_top_values_error"
"""Custom statistic: the same of the sums of the values' weights."""
UNIQUE_STANDARD_ERROR = "unique_standard_error"
"""Custom statistic: the standard error of the number of distinct values."""

_Counts: TypeAlias = "dict[tuple[types.FeaturePath, bool], ValueCounts]"
"""By feature: counts of its values, and the sums of their weights (True)."""


WEIGHT = "\0weight"
"""The column of weights beside a column of a feature; it is no feature itself."""


def is_feature(name: str) -> bool:
    """Whether a column is one of the data, not `WEIGHT`."""
    return name != WEIGHT


class TopValuesGenerator(stats_generator.CombinerStatsGenerator):
    """Most frequent values, their ranks, and the number of distinct values.

    Args:
      options: TFDV's options: how many values and buckets to keep, and the weight.
    """

    def __init__(self, options: stats_options.StatsOptions):
        super().__init__("TopValuesGenerator")
        self._options = options

    def create_accumulator(self) -> _Counts:
        """Empty counts."""
        return {}

    def add_input(self, accumulator: _Counts, batch: pa.RecordBatch) -> _Counts:
        """Counts the text features of `batch`."""
        for path, array, weights in arrow_util.enumerate_arrays(
            batch,
            example_weight_map=self._options.example_weight_map,
            enumerate_leaves_only=True,
            column_select_fn=is_feature,
        ):
            kind = stats_util.get_feature_type_from_arrow_type(path, array.type)
            if kind == statistics_pb2.FeatureNameStatistics.STRING:
                values, rows = array_util.flatten_nested(array, weights is not None)
                accumulator.setdefault((path, False), ValueCounts()).add(values)
                if weights is not None:
                    sums = accumulator.setdefault((path, True), ValueCounts())
                    sums.add(values, np.asarray(weights, np.float64)[rows])
        return accumulator

    def merge_accumulators(self, accumulators: Iterable[_Counts]) -> _Counts:
        """The summed counts."""
        merged = self.create_accumulator()
        for accumulator in accumulators:
            for key, counts in accumulator.items():
                merged.setdefault(key, ValueCounts()).merge(counts)
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
        for (path, is_weighted), counts in accumulator.items():
            if not is_weighted and counts.unique():
                sums = accumulator.get((path, True))
                result.features.append(self._feature(path, counts, sums))
        return result

    def _feature(
        self, path: types.FeaturePath, counts: ValueCounts, sums: ValueCounts | None
    ) -> statistics_pb2.FeatureNameStatistics:
        options = self._options
        unique = counts.unique()
        feature = top_k_uniques_stats_util.make_feature_stats_proto_topk_uniques(
            feature_path=path,
            num_top_values=options.num_top_values,
            num_rank_histogram_buckets=options.num_rank_histogram_buckets,
            num_unique=unique,
            value_count_list=self._frequent(counts),
            weighted_value_count_list=self._frequent(sums) if sums else None,
            frequency_threshold=options.frequency_threshold,
            weighted_frequency_threshold=options.weighted_frequency_threshold,
        )
        if sums and sums.error:
            feature.custom_stats.add(name=WEIGHT_ERROR, num=sums.error)
        if counts.error:
            feature.custom_stats.add(name=COUNT_ERROR, num=counts.error)
            error = unique * UNIQUE_ERROR
            feature.custom_stats.add(name=UNIQUE_STANDARD_ERROR, num=error)
        return feature

    def _frequent(
        self, counts: ValueCounts
    ) -> list[top_k_uniques_stats_util.FeatureValueCount]:
        options = self._options
        shown = max(options.num_top_values, options.num_rank_histogram_buckets)
        pairs = counts.top(shown)
        return [top_k_uniques_stats_util.FeatureValueCount(*pair) for pair in pairs]
