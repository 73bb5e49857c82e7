"""A random sample of the numbers of each feature, in accumulators that merge.

The smallest and the largest numbers are kept in any case. Of the others, each draws a
priority, and those with the smallest are kept (a bottom-k sample), so that each number
of the data is as likely as any other to be in the sample. The priorities of a batch
come from a generator that is seeded by its bytes: the same data in the same shards give
the same sample.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from google.protobuf import wrappers_pb2
from tensorflow_data_validation import types
from tensorflow_data_validation.arrow import arrow_util
from tensorflow_data_validation.statistics.generators import stats_generator
from tensorflow_data_validation.utils import stats_util
from tensorflow_metadata.proto.v0 import statistics_pb2
from tfx_bsl.arrow import array_util

SAMPLE = "sample"
"""Custom statistic: a BytesValue with the sample as float64, ascending."""

SIZE = 500
"""Numbers in a sample at most, besides the extremes."""

EXTREMES = 16
"""The smallest numbers that are kept in any case, and the largest ones."""

_NUMBERS = (
    statistics_pb2.FeatureNameStatistics.INT,
    statistics_pb2.FeatureNameStatistics.FLOAT,
)


class _Sample:
    """The finite numbers with the smallest priorities, and the extremes; ascending."""

    def __init__(self) -> None:
        self._numbers = self._priorities = np.zeros(0)

    def add(self, numbers: np.ndarray, priorities: np.ndarray) -> None:
        """Adds numbers, float64[n], with their priorities, float64[n]."""
        numbers = np.concatenate([self._numbers, numbers])
        priorities = np.concatenate([self._priorities, priorities])
        order = np.argsort(numbers, kind="stable")
        numbers, priorities = numbers[order], priorities[order]
        if len(numbers) > SIZE:
            kept = priorities <= np.partition(priorities, SIZE - 1)[SIZE - 1]
            kept[:EXTREMES] = kept[-EXTREMES:] = True
            numbers, priorities = numbers[kept], priorities[kept]
        self._numbers, self._priorities = numbers, priorities

    def merge(self, later: _Sample) -> None:
        """Adds the numbers of other rows."""
        self.add(later._numbers, later._priorities)

    @property
    def numbers(self) -> np.ndarray:
        """The sample, ascending."""
        return self._numbers


_Samples: TypeAlias = "dict[types.FeaturePath, _Sample]"


class SampleGenerator(stats_generator.CombinerStatsGenerator):
    """Samples of the features of numbers; see the module."""

    def __init__(self) -> None:
        super().__init__("SampleGenerator")

    def create_accumulator(self) -> _Samples:
        """Empty samples."""
        return {}

    def add_input(self, accumulator: _Samples, batch: pa.RecordBatch) -> _Samples:
        """Adds the numbers of `batch`."""
        for path, array, _ in arrow_util.enumerate_arrays(
            batch, example_weight_map=None, enumerate_leaves_only=True
        ):
            kind = stats_util.get_feature_type_from_arrow_type(path, array.type)
            if kind in _NUMBERS:
                flat, _ = array_util.flatten_nested(array)
                numbers = np.asarray(flat).astype(np.float64)
                seed = zlib.crc32(numbers.tobytes())
                priorities = np.random.default_rng(seed).random(len(numbers))
                finite = np.isfinite(numbers)
                sample = accumulator.setdefault(path, _Sample())
                sample.add(numbers[finite], priorities[finite])
        return accumulator

    def merge_accumulators(self, accumulators: Iterable[_Samples]) -> _Samples:
        """The samples of all rows."""
        merged = self.create_accumulator()
        for accumulator in accumulators:
            for path, sample in accumulator.items():
                merged.setdefault(path, _Sample()).merge(sample)
        return merged

    def extract_output(
        self, accumulator: _Samples
    ) -> statistics_pb2.DatasetFeatureStatistics:
        """The sample of each feature, as a custom statistic."""
        result = statistics_pb2.DatasetFeatureStatistics()
        for path, sample in accumulator.items():
            feature = result.features.add(path=path.to_proto())
            packed = wrappers_pb2.BytesValue(value=sample.numbers.tobytes())
            feature.custom_stats.add(name=SAMPLE).any.Pack(packed)
        return result


def of_feature(feature: statistics_pb2.FeatureNameStatistics) -> np.ndarray:
    """The sample of a feature, float64[n], ascending; empty without numbers.

    Args:
      feature: A feature of statistics with samples.
    """
    packed = wrappers_pb2.BytesValue()
    for custom in feature.custom_stats:
        if custom.name == SAMPLE:
            custom.any.Unpack(packed)
    return np.frombuffer(packed.value)
