"""Computes the statistics of each split with TFDV's generators, file by file."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeAlias

import pyarrow as pa
from tensorflow_data_validation.statistics import stats_impl, stats_options
from tensorflow_data_validation.statistics.generators import (
    basic_stats_generator,
    stats_generator,
)
from tensorflow_metadata.proto.v0 import statistics_pb2
from tfx import types
from tfx.components.statistics_gen import executor as stock
from tfx.components.util import examples_utils
from tfx.dsl.io import fileio
from tfx.proto import example_gen_pb2
from tfx.types import artifact_utils
from tfx_bsl.arrow import table_util
from tfx_bsl.coders.example_coder import ExamplesToRecordBatchDecoder

from strategos.components.records import FILE_FORMAT, columns, counts, read, streams
from strategos.components.shards import progress
from strategos.components.shards.executor import EngineExecutor
from strategos.components.shards.fold import fold
from strategos.components.statistics_gen.top_values import TopValuesGenerator

Batch: TypeAlias = "pa.RecordBatch | columns.Rows"
"""Rows of decoded tf.Examples."""

_Shard: TypeAlias = tuple[str, list[str], int]
"""A split, some of its files, and the number of its shards."""

_SHARD_FILES = 4  # together they fill a batch, and leave shards for many workers
_BATCH_ROWS = 262_144
_BATCH_BYTES = 20 << 20
_DECODED_ROWS = 1_000  # fits the processor's cache, which decodes faster
_OPTIONS = ("stats_options_json", "sample_rate_by_split", "sharded_stats_output")


class Executor(EngineExecutor, stock.Executor):
    """TFX's executor; for tf.Examples with default options it reads whole batches.

    The output equals that of TFX's executor: the same generators get the same values.
    Quantiles and histograms come from sketches that depend on how the rows are batched;
    in these, two runs of TFX's executor differ in the same way.
    """

    def Do(
        self,
        input_dict: dict[str, list[types.Artifact]],
        output_dict: dict[str, list[types.Artifact]],
        exec_properties: dict[str, Any],
    ) -> None:
        """Writes `FeatureStats.pb` for every split of `examples`."""
        examples = artifact_utils.get_single_instance(input_dict["examples"])
        if not _is_plain(examples, input_dict, exec_properties):
            super().Do(input_dict, output_dict, exec_properties)
            return
        self._log_startup(input_dict, output_dict, exec_properties)
        excluded = json.loads(exec_properties.get("exclude_splits") or "[]") or []
        splits = artifact_utils.decode_split_names(examples.split_names)
        splits = [split for split in splits if split not in excluded]
        statistics = artifact_utils.get_single_instance(output_dict["statistics"])
        statistics.split_names = artifact_utils.encode_split_names(splits)
        statistics.span = examples.span
        statistics.set_string_custom_property(stock.STATS_DASHBOARD_LINK, "")
        statistics.set_json_value_custom_property(
            stock.SAMPLE_RATE_BY_SPLIT_PROPERTY_NAME,
            json.dumps(dict.fromkeys(splits, 1.0)),
        )
        shards = [shard for split in splits for shard in _shards(examples, split)]
        progress.begin(examples.get_int_custom_property("rows") or None)
        uri, engine = statistics.uri, self._engine
        found = fold(engine, shards, _accumulate, _merge, uri) if shards else {}
        rows = 0
        for split in splits:
            folder = artifact_utils.get_split_uri([statistics], split)
            fileio.makedirs(folder)
            path = os.path.join(folder, stock.DEFAULT_FILE_NAME)
            part = found.get(split) or _Part(_empty(), shards=0, of=0)
            with fileio.open(path, "wb") as file:
                file.write(part.statistics.SerializeToString())
            found_rows = sum(each.num_examples for each in part.statistics.datasets)
            expected = counts.recorded([examples], split)
            counts.check(f"{examples.uri}/Split-{split}", found_rows, expected)
            rows += found_rows
        progress.end(rows)


def compute(
    batches: Iterable[Batch],
) -> statistics_pb2.DatasetFeatureStatisticsList:
    """The statistics of all rows, with TFDV's default options.

    Args:
      batches: Arrow batches of decoded tf.Examples.
    """
    return extracted(_add(batches))


def read_batches(files: Sequence[str]) -> Iterator[Batch]:
    """Yields the rows of files as large Arrow batches of decoded tf.Examples.

    Each call of Arrow, NumPy or TFDV gives Python's lock away and takes it again: with
    fewer calls, threads wait less for each other.

    Args:
      files: Files of columns (`.arrow`), or TFRecord files of tf.Examples.
    """
    if files[0].endswith(streams.SUFFIX):
        yield from columns.read_rows(files, _BATCH_ROWS)
        return
    for some in columns.groups(_decoded(files), _BATCH_ROWS, _BATCH_BYTES):
        yield table_util.MergeRecordBatches(some)


def _decoded(files: Sequence[str]) -> Iterator[pa.RecordBatch]:
    decoder = ExamplesToRecordBatchDecoder()
    for records in read.records(files).batch(_DECODED_ROWS).as_numpy_iterator():
        yield decoder.DecodeBatch(records.tolist())


def _shards(examples: types.Artifact, split: str) -> Iterator[_Shard]:
    """The files to read of a split: those with its columns, where there are some."""
    found = columns.files(examples.uri, split)
    folder = artifact_utils.get_split_uri([examples], split)
    files = found or sorted(fileio.glob(os.path.join(folder, "*")))
    firsts = range(0, len(files), _SHARD_FILES)
    for first in firsts:
        yield split, files[first : first + _SHARD_FILES], len(firsts)


@functools.cache
def _generators(ranked: int = 0) -> list[stats_generator.CombinerStatsGenerator]:
    options = stats_options.StatsOptions()
    if ranked:
        options.num_rank_histogram_buckets = ranked
    generators = [
        basic_stats_generator.BasicStatsGenerator(
            schema=options.schema,
            example_weight_map=options.example_weight_map,
            num_values_histogram_buckets=options.num_values_histogram_buckets,
            num_histogram_buckets=options.num_histogram_buckets,
            num_quantiles_histogram_buckets=options.num_quantiles_histogram_buckets,
            epsilon=options.epsilon,
        ),
        TopValuesGenerator(options),
    ]
    for generator in generators:
        generator.setup()
    return generators


def _empty() -> list[Any]:
    return [generator.create_accumulator() for generator in _generators()]


@dataclasses.dataclass(frozen=True)
class _Column:
    """A column of a batch: what TFDV's generators use of a `pa.RecordBatch`.

    Attributes:
      schema: Of the column alone.
      columns: The column.
      num_rows: Rows that no other column of the batch has counted.
    """

    schema: pa.Schema
    columns: tuple[pa.Array]
    num_rows: int


def _by_column(batch: Batch) -> Iterator[_Column]:
    """Yields the columns of a batch: decoded, all of them would take much memory."""
    rows = batch.num_rows
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        yield _Column(pa.schema([(name, column.type)]), (column,), rows)
        rows = 0


def _add(batches: Iterable[Batch]) -> list[Any]:
    """The accumulator of each generator after all batches."""
    accumulators = _empty()
    for batch in batches:
        for column in _by_column(batch):
            pairs = zip(_generators(), accumulators, strict=True)
            accumulators = [each.add_input(so_far, column) for each, so_far in pairs]
        progress.add(batch.num_rows)
    return accumulators


def accumulated(batches: Iterable[Batch]) -> list[Any]:
    """The accumulators of all rows, for `merged` and `extracted`.

    Args:
      batches: Arrow batches of decoded tf.Examples.
    """
    pairs = zip(_generators(), _add(batches), strict=True)
    return [generator.compact(found) for generator, found in pairs]


def merged(earlier: list[Any], later: list[Any]) -> list[Any]:
    """The accumulators of all rows of both arguments, which may be changed."""
    triples = zip(_generators(), earlier, later, strict=True)
    return [each.merge_accumulators([a, b]) for each, a, b in triples]


def extracted(
    accumulators: list[Any], ranked: int = 0
) -> statistics_pb2.DatasetFeatureStatisticsList:
    """The statistics of the rows that `accumulated` saw.

    Args:
      accumulators: From `accumulated` or `merged`.
      ranked: Number of values with counts, the most frequent ones, of each text
        feature. Default: TFDV's.
    """
    return stats_impl.extract_statistics_output(accumulators, _generators(ranked))


class _Part:
    """What some shards of a split have: accumulators, or statistics if these are all.

    So the statistics of a split are extracted while shards of the next one are read.

    Args:
      accumulators: Of the shards.
      shards: Number of shards.
      of: Number of all shards of the split.

    Attributes:
      statistics: Of the split; None while shards are missing.
    """

    def __init__(self, accumulators: list[Any], shards: int, of: int):
        self._accumulators, self._shards, self._of = accumulators, shards, of
        self.statistics: statistics_pb2.DatasetFeatureStatisticsList | None = None
        if shards == of:
            self.statistics = extracted(accumulators)
            self._accumulators = []

    def merge(self, later: _Part) -> _Part:
        accumulators = merged(self._accumulators, later._accumulators)
        return _Part(accumulators, self._shards + later._shards, self._of)


def _accumulate(shard: _Shard) -> dict[str, _Part]:
    split, files, shards = shard
    return {split: _Part(accumulated(read_batches(files)), shards=1, of=shards)}


def _merge(earlier: dict[str, _Part], later: dict[str, _Part]) -> dict[str, _Part]:
    for split, part in later.items():
        earlier[split] = earlier[split].merge(part) if split in earlier else part
    return earlier


def _is_plain(
    examples: types.Artifact,
    input_dict: dict[str, list[types.Artifact]],
    exec_properties: dict[str, Any],
) -> bool:
    """Whether the data are tf.Examples in TFRecords, with default options."""
    return not (
        any(exec_properties.get(key) for key in _OPTIONS)
        or input_dict.get("schema")
        or examples.has_custom_property(
            examples_utils.CUSTOM_SPLIT_PATTERN_PROPERTY_NAME
        )
        or examples_utils.get_file_format(examples) != FILE_FORMAT
        or examples_utils.get_payload_format(examples)
        != example_gen_pb2.PayloadFormat.FORMAT_TF_EXAMPLE
    )
