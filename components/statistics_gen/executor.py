"""Computes the statistics of each split with TFDV's generators, file by file."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import pyarrow as pa
from tfx import types
from tfx.components.statistics_gen import executor as stock
from tfx.components.util import examples_utils
from tfx.proto import example_gen_pb2
from tfx.types import artifact_utils
from tfx_bsl.arrow import table_util
from tfx_bsl.coders.example_coder import ExamplesToRecordBatchDecoder

from strategos.components.errors import UserError, required
from strategos.components.files import listing, storage
from strategos.components.records import FILE_FORMAT, columns, counts, read, streams
from strategos.components.shards import progress
from strategos.components.shards.executor import EngineExecutor
from strategos.components.shards.fold import fold
from strategos.components.statistics.generators import Batch
from strategos.components.statistics_gen.request import (
    Request,
    SliceStatistics,
    Statistics,
)

_Shard: TypeAlias = tuple[str, list[str], int, int]
"""A split, some of its files, the number of the shard, and the number of shards."""

_SHARD_FILES = 4  # together they fill a batch, and leave shards for many workers
_BATCH_ROWS = 262_144
_BATCH_BYTES = 20 << 20
_DECODED_ROWS = 1_000  # fits the processor's cache, which decodes faster
_OPTIONS = ("stats_options_json", "sample_rate_by_split", "sharded_stats_output")


class Executor(EngineExecutor, stock.Executor):
    """TFX's executor; for tf.Examples with default options it reads whole batches.

    Parameter `request` of our own nodes (`Request`) adds slices, weights and a sample.

    The output equals the output of TFX's executor: the same generators get the same
    values. Only quantiles and histograms may differ, as between two runs of TFX's
    executor: they come from sketches that depend on how the rows are batched.
    """

    def Do(
        self,
        input_dict: dict[str, list[types.Artifact]],
        output_dict: dict[str, list[types.Artifact]],
        exec_properties: dict[str, Any],
    ) -> None:
        """Writes `FeatureStats.pb` for every split of `examples`."""
        examples = artifact_utils.get_single_instance(input_dict["examples"])
        request = Request.of(exec_properties)
        if not _is_plain(examples, input_dict, exec_properties):
            if request != Request():
                raise _unreadable(examples)
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
            json.dumps(dict.fromkeys(splits, request.sample)),
        )
        shards = [shard for split in splits for shard in _shards(examples, split)]
        progress.begin(examples.get_int_custom_property("rows") or None)
        uri, engine = statistics.uri, self._engine
        work = _Work(request)
        parts = fold(engine, shards, work, _merge, uri) if shards else {}
        rows = 0
        for split in splits:
            folder = artifact_utils.get_split_uri([statistics], split)
            path = os.path.join(folder, stock.DEFAULT_FILE_NAME)
            part = parts.get(split) or _Part(SliceStatistics(request), shards=0, of=0)
            assert part.statistics is not None  # all shards are merged
            storage.write(path, part.statistics.SerializeToString())
            expected = counts.recorded([examples], split)
            counts.check(f"{examples.uri}/Split-{split}", part.rows, expected)
            rows += part.rows
        progress.end(rows)


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
    """The files to read of a split: its files of columns, or else its TFRecords."""
    column_files = columns.files(examples.uri, split)
    folder = artifact_utils.get_split_uri([examples], split)
    files = column_files or listing.listed(folder)
    firsts = range(0, len(files), _SHARD_FILES)
    for shard, first in enumerate(firsts):
        yield split, files[first : first + _SHARD_FILES], shard, len(firsts)


class _Part:
    """Accumulators of some shards of a split, or statistics once all are merged.

    So the statistics of a split are extracted while shards of the next split are read.

    Args:
      accumulators: Accumulators of the shards.
      shards: Number of shards.
      of: Number of all shards of the split.

    Attributes:
      rows: Number of rows read.
      statistics: Statistics of the split; None while shards are missing.
    """

    def __init__(self, accumulators: SliceStatistics, shards: int, of: int):
        self._accumulators: SliceStatistics | None = accumulators
        self._shards, self._of, self.rows = shards, of, accumulators.rows
        self.statistics: Statistics | None = None
        if shards == of:
            self.statistics = accumulators.extracted()
            self._accumulators = None

    def merge(self, later: _Part) -> _Part:
        mine, theirs = required(self._accumulators), required(later._accumulators)
        return _Part(mine.merge(theirs), self._shards + later._shards, self._of)


@dataclasses.dataclass(frozen=True)
class _Work:
    """Reads a shard."""

    request: Request

    def __call__(self, shard: _Shard) -> dict[str, _Part]:
        split, files, number, shards = shard
        slice_statistics = self.request.accumulated(read_batches(files), split, number)
        return {split: _Part(slice_statistics, shards=1, of=shards)}


def _merge(earlier: dict[str, _Part], later: dict[str, _Part]) -> dict[str, _Part]:
    for split, part in later.items():
        earlier[split] = earlier[split].merge(part) if split in earlier else part
    return earlier


def _unreadable(examples: types.Artifact) -> UserError:
    """The error of a request that TFX's executor would ignore."""
    return UserError(
        f"{examples.uri} does not hold tf.Examples in TFRecord files",
        key="statistics",
        remedy="Let the node that replaces Transform write such files, or remove "
        "`weighted` and `sample`.",
    )


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
