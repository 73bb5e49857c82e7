"""Statistics of single spans, from their files, kept on disk by content and code."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from tensorflow_metadata.proto.v0 import schema_pb2, statistics_pb2

from strategos.components.data_files import columns, shards, sources, spans, writing
from strategos.components.data_files.findings import rejected
from strategos.components.data_files.pieces import Piece, Shard
from strategos.components.data_files.sources import DEFAULT, SOURCES, Reading
from strategos.components.data_files.spans import Span, fingerprint
from strategos.components.data_files.values import numerals
from strategos.components.data_files.values.kinds import Kind
from strategos.components.files import commit, digests, storage
from strategos.components.shards.engine import Engine
from strategos.components.span_validator import FOLDER_VARIABLE
from strategos.components.statistics import generators, samples

Statistics: TypeAlias = statistics_pb2.DatasetFeatureStatisticsList

RANKED = 1 << 14
"""Number of values with counts that the statistics of a text feature hold at most."""


@dataclasses.dataclass(frozen=True)
class Reader:
    """Reads the statistics of spans.

    Attributes:
      engine: Runs the work on the data.
      pattern: `data.examples`.
      schema_file: The curated schema; "": each span's types are inferred from it alone.
      null_values: Spellings of a missing value in columns of numbers.
      folder: Folder for results of workers.
      reading: How files are read.
    """

    engine: Engine
    pattern: str
    schema_file: str
    null_values: tuple[str, ...]
    folder: str
    reading: Reading = DEFAULT

    def of(self, span: Span) -> Statistics:
        """Returns the statistics of a span's rows, as StatisticsGen computes them.

        The counts of a text feature's values are complete up to `RANKED` values. If
        `FOLDER_VARIABLE` names a folder, it caches the statistics of the same files.

        Args:
          span: The span.

        Raises:
          UserError: A file does not have the columns or types that the schema declares,
            or is malformed.
        """
        kept = self._kept(span)
        if kept is not None and kept.is_file():
            os.utime(kept)  # `strategos clean` goes by the last use
            return Statistics.FromString(kept.read_bytes())
        statistics = self._compute(span)
        if kept is not None:
            kept.parent.mkdir(parents=True, exist_ok=True)
            commit.write(kept, statistics.SerializeToString())
        return statistics

    def beside(self, pattern: str) -> tuple[Reader, Span]:
        """The reader of other data, with columns of their own, and their one span.

        Args:
          pattern: Glob of the files.
        """
        (span,) = spans.resolve_spans(pattern, [[0, None]])
        return dataclasses.replace(self, pattern=pattern, schema_file=""), span

    def _kept(self, span: Span) -> Path | None:
        folder = os.environ.get(FOLDER_VARIABLE)
        if not folder:
            return None
        schema = storage.read(self.schema_file).hex() if self.schema_file else ""
        version = metadata.version("tensorflow-data-validation")
        parts = (fingerprint([span]), schema, version, _code(), *self.null_values)
        readers = sorted({sources.name_of(file) or "" for file in span.files})
        plug_ins = [SOURCES.version(name) for name in readers if name]
        parts = (*parts, self.reading.to_json(), *plug_ins)
        key = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
        return Path(folder) / f"{key}.pb"

    def _compute(self, span: Span) -> Statistics:
        runner = shards.ShardRunner(self.engine, self.folder)
        kinds, nulls, data = self.kinds(runner, span)
        merge = functools.partial(generators.merged, ranked=RANKED)
        accumulated = runner.fold(data, _Measure(kinds, nulls), merge)
        return generators.extracted(accumulated, RANKED)

    def kinds(
        self, runner: shards.ShardRunner, span: Span
    ) -> tuple[dict[str, Kind], numerals.Nulls, list[Shard]]:
        """Returns the kinds of a span's columns, and the arguments to read its rows.

        Args:
          runner: Runs the work on the span.
          span: The span.

        Returns:
          The kind of each column, spellings of missing numbers, and the span's shards.

        Raises:
          UserError: As for `of`.
        """
        files = shards.open_files([span], self.reading)
        opened = [file for _, file in files]
        nulls = numerals.Nulls(tuple(self.null_values), self.reading.csv.decimal)
        if self.schema_file:
            kinds = columns.from_schema(opened, self.schema_file)
        else:
            columns.check_same(opened)
        data = runner.cut(self.pattern, files)
        if not self.schema_file:
            data, profiles = runner.inspect(data, nulls)
            kinds = columns.inferred(opened, profiles)
        return kinds, nulls, data


@functools.cache
def _code() -> str:
    """A hash of the code that reads and counts values."""
    return digests.of_sources(Path(__file__).parents[1])


@dataclasses.dataclass(frozen=True)
class _Measure:
    """Accumulates the statistics of a shard.

    Attributes:
      kinds: Kind of each column.
      nulls: Spellings of a missing value in columns of numbers.
    """

    kinds: dict[str, Kind]
    nulls: numerals.Nulls

    def __call__(self, shard: Shard) -> list[Any]:
        return generators.accumulated(self._batches(shard.pieces), RANKED)

    def _batches(self, pieces: Sequence[Piece]) -> Iterator[pa.RecordBatch]:
        for piece in map(Piece.fresh, pieces):
            rows = rejected.accepted_rows(
                piece, self.kinds, self.nulls, rejected.Rejected()
            )
            for row, raw in rows:
                yield writing.converted(piece, row, raw, self.kinds, self.nulls)


@dataclasses.dataclass(frozen=True)
class Values:
    """The values of a text feature.

    Attributes:
      counts: How often each value occurs; if not `complete`, only the most frequent
        values.
      total: Number of values.
      complete: Whether `counts` holds all values.
      present: Number of rows with a value; None: one for each value. Values of one row
        depend on each other, so a list counts as one row.
    """

    counts: Mapping[str, float]
    total: float
    complete: bool
    present: float | None = None

    @property
    def once(self) -> int:
        """Number of values that occur once."""
        return sum(count == 1 for count in self.counts.values())

    @property
    def scale(self) -> float:
        """Rows for each value: at most 1, less for lists."""
        return 1.0 if self.present is None else min(self.present / self.total, 1.0)

    @property
    def rows(self) -> float:
        """Number of rows with one of the values in `counts`."""
        return sum(self.counts.values()) * self.scale


@dataclasses.dataclass(frozen=True)
class Numbers:
    """A feature of numbers.

    Attributes:
      sample: float64[n], ascending: a random sample of the finite numbers, and the
        smallest and the largest ones.
      total: Number of numbers.
      rows: Number of rows with a number; fewer than `total` for lists.
    """

    sample: np.ndarray
    total: float
    rows: float

    @property
    def shares(self) -> np.ndarray:
        """float64[n]: the share of all numbers that each of the sample stands for."""
        shares = np.full(len(self.sample), 1 / self.total)
        others = len(shares) - 2 * samples.EXTREMES
        if others > 0:
            inner = slice(samples.EXTREMES, -samples.EXTREMES)
            shares[inner] *= (self.total - 2 * samples.EXTREMES) / others
        return shares / shares.sum()


def values(statistics: Statistics) -> dict[str, Values]:
    """The values of each text feature, by its name."""
    by_feature = {}
    for feature in statistics.datasets[0].features:
        text = feature.string_stats
        counts: dict[str, float] = {}
        for bucket in text.rank_histogram.buckets:
            counts[bucket.label] = counts.get(bucket.label, 0) + bucket.sample_count
        if counts:
            complete = text.unique <= len(text.rank_histogram.buckets)
            common = _common(feature)
            values_of_it = counts, common.tot_num_values, complete
            present = common.num_non_missing
            by_feature[feature.path.step[0]] = Values(*values_of_it, present)
    return by_feature


def numbers(statistics: Statistics) -> dict[str, Numbers]:
    """The numbers of each feature with finite ones, by its name."""
    by_feature = {}
    for feature in statistics.datasets[0].features:
        sample = samples.of_feature(feature)
        if len(sample):
            common = _common(feature)
            entry = Numbers(sample, common.tot_num_values, common.num_non_missing)
            by_feature[feature.path.step[0]] = entry
    return by_feature


@dataclasses.dataclass(frozen=True)
class Summary:
    """Figures of a feature of numbers: the mean, the smallest and the largest one."""

    mean: float
    least: float
    most: float


def summaries(statistics: Statistics) -> dict[str, Summary]:
    """Figures of each feature with numbers, by its name."""
    by_feature = {}
    for feature in statistics.datasets[0].features:
        numbers = feature.num_stats
        if feature.WhichOneof("stats") == "num_stats" and numbers.histograms:
            figures = Summary(numbers.mean, numbers.min, numbers.max)
            by_feature[feature.path.step[0]] = figures
    return by_feature


def types_of(statistics: Statistics) -> dict[str, int]:
    """The type in a schema of each feature that has a value, by name."""
    types = {"INT": schema_pb2.INT, "FLOAT": schema_pb2.FLOAT}
    by_feature = {}
    for feature in statistics.datasets[0].features:
        name = statistics_pb2.FeatureNameStatistics.Type.Name(feature.type)
        if _common(feature).num_non_missing:
            by_feature[feature.path.step[0]] = types.get(name, schema_pb2.BYTES)
    return by_feature


def missing(statistics: Statistics) -> dict[str, float]:
    """The share of the rows without a value of each column, by name; 0 to 1."""
    dataset = statistics.datasets[0]
    by_feature = {}
    for feature in dataset.features:
        there = _common(feature).num_non_missing
        by_feature[feature.path.step[0]] = 1 - there / max(dataset.num_examples, 1)
    return by_feature


def rows(statistics: Statistics) -> int:
    """The number of rows."""
    return int(statistics.datasets[0].num_examples)


def _common(feature: statistics_pb2.FeatureNameStatistics) -> Any:
    return getattr(feature, feature.WhichOneof("stats")).common_stats
