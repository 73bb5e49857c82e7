"""TFDV's statistics of numbers, with histograms computed on arrays.

TFDV makes a histogram of 1,000 quantiles of each column of numbers as protos, and walks
over them for the bins of equal width: 7 ms a column and split, whatever the number of
rows. Here those are operations on arrays, in float64. With NumPy 1 the values are equal
to the last bit; with NumPy 2, TFDV computes in float32 for columns of float32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from tensorflow_data_validation import types
from tensorflow_data_validation.statistics.generators import basic_stats_generator
from tensorflow_data_validation.utils import quantiles_util
from tensorflow_metadata.proto.v0 import statistics_pb2

from strategos.components.statistics.top_values import is_feature

_FACTOR = basic_stats_generator._NUM_QUANTILES_FACTOR_FOR_STD_HISTOGRAM


class BasicStatsGenerator(basic_stats_generator.BasicStatsGenerator):
    """TFDV's generator of counts, means and histograms, column by column."""

    def add_input(self, accumulator: Any, examples: Any) -> Any:
        """Adds a column; one that counts no rows does not count their weights."""
        before = accumulator.weighted_num_examples
        accumulator = super().add_input(accumulator, examples)
        if not examples.num_rows:
            accumulator.weighted_num_examples = before
        return accumulator

    def _column_select_fn(self) -> Callable[[str], bool]:
        return is_feature

    def extract_output(
        self, accumulator: Any
    ) -> statistics_pb2.DatasetFeatureStatistics:
        """The statistics of all rows; takes the accumulator apart, as TFDV does."""
        sketches = {}
        for path, each in accumulator.items():
            stats = each.numeric_stats
            weighted = stats.weighted_quantiles_summary if stats.has_weights else None
            sketches[path] = stats.quantiles_summary, weighted
            # TFDV leaves the histograms out
            stats.quantiles_summary = stats.weighted_quantiles_summary = None
        result = super().extract_output(accumulator)
        for feature in result.features:
            if np.isnan(feature.num_stats.median):  # there are values
                path = types.FeaturePath.from_proto(feature.path)
                stats, proto = accumulator[path].numeric_stats, feature.num_stats
                sketch, weighted = sketches[path]
                self._add(proto, stats, sketch, stats.pos_inf_count)
                if weighted is not None:
                    proto = proto.weighted_numeric_stats
                    self._add(proto, stats, weighted, stats.pos_inf_weighted_count)
        return result

    def _add(self, proto: Any, stats: Any, sketch: Any, num_pos_inf: float) -> None:
        """Adds the median and both histograms to the statistics of a column."""
        quantiles, counts = (
            each.flatten().to_numpy(zero_copy_only=False)
            for each in sketch.GetQuantilesAndCumulativeWeights(
                _FACTOR * self._num_quantiles_histogram_buckets
            )
        )
        if not len(quantiles):  # all rows of a value weigh 0
            return
        proto.median = float(quantiles_util.find_median(quantiles))
        standard = equi_width(
            quantiles,
            counts,
            stats.finite_min,
            stats.finite_max,
            self._num_histogram_buckets,
            num_pos_inf,
        )
        few = quantiles_util.rebin_quantiles(quantiles, counts, _FACTOR)
        for histogram in standard, quantiles_util.generate_quantiles_histogram(*few):
            histogram.num_nan = stats.num_nan
            proto.histograms.append(histogram)


def equi_width(
    quantiles: np.ndarray,
    cumulative_counts: np.ndarray,
    finite_min: float,
    finite_max: float,
    num_buckets: int,
    num_pos_inf: float,
) -> statistics_pb2.Histogram:
    """The result of TFDV's `quantiles_util.generate_equi_width_histogram`.

    Args:
      quantiles: float64[n], sorted.
      cumulative_counts: float64[n], the numbers of values up to each quantile.
      finite_min: The least finite value.
      finite_max: The greatest finite value.
      num_buckets: Number of bins.
      num_pos_inf: Number of values that are infinite.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        finite = np.isfinite(quantiles).all() and np.isfinite(finite_max - finite_min)
    if num_pos_inf or not finite:
        return quantiles_util.generate_equi_width_histogram(
            quantiles,
            cumulative_counts,
            finite_min,
            finite_max,
            num_buckets,
            num_pos_inf,
        )
    bounds = np.array([finite_min, finite_max])
    if finite_min != finite_max:
        bounds = np.linspace(finite_min, finite_max, num_buckets + 1)
    low, high = quantiles[:-1], quantiles[1:]
    weights = _weights(low, high, cumulative_counts.astype(np.float64))
    sums = np.cumsum(_overlaps(low, high, bounds) * weights, axis=1)[:, -1]
    result = statistics_pb2.Histogram(type=statistics_pb2.Histogram.STANDARD)
    for start, stop, count in zip(bounds[:-1], bounds[1:], sums, strict=True):
        result.buckets.add(low_value=start, high_value=stop, sample_count=count)
    return result


def _weights(low: np.ndarray, high: np.ndarray, cumulative: np.ndarray) -> np.ndarray:
    """The number of values in each quantile; equal quantiles share theirs."""
    firsts = np.flatnonzero(np.append(True, high[1:] != high[:-1]))
    sizes = np.diff(np.append(firsts, len(high)))
    shares = np.add.reduceat(np.diff(cumulative), firsts) / sizes
    weights = np.repeat(shares, sizes)
    others = np.flatnonzero((low != low[0]) | (high != high[0]))
    same = others[0] if len(others) else len(low)
    weights[:same] += cumulative[0] / same
    return weights


def _overlaps(low: np.ndarray, high: np.ndarray, bounds: np.ndarray) -> np.ndarray:
    """float64[bins, quantiles]: the part of each quantile that lies in each bin."""
    start, stop = bounds[:-1, None], bounds[1:, None]
    inside = np.minimum(high, stop) - np.maximum(low, start)
    is_point = low == high
    parts = np.where(is_point, 0.0, inside / np.where(is_point, 1.0, high - low))
    parts = np.maximum(parts, 0.0)
    parts[:, is_point] = (start < low[is_point]) & (low[is_point] <= stop)
    parts[0, is_point & (low == bounds[0])] = 1.0
    return parts
