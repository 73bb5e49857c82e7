"""Computes the statistics of each split with TFDV's generators, without Beam."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from tensorflow_data_validation.statistics import stats_impl, stats_options
from tensorflow_data_validation.statistics.generators import basic_stats_generator
from tensorflow_metadata.proto.v0 import statistics_pb2
from tfx import types
from tfx.components.statistics_gen import executor as stock
from tfx.components.util import examples_utils
from tfx.dsl.io import fileio
from tfx.proto import example_gen_pb2
from tfx.types import artifact_utils
from tfx_bsl.arrow import table_util
from tfx_bsl.coders.example_coder import ExamplesToRecordBatchDecoder

from strategos.components import events
from strategos.components.records import FILE_FORMAT, read
from strategos.components.statistics_gen.top_values import TopValuesGenerator

_BATCH_ROWS = 10_000
_BATCH_BYTES = 20 << 20
_DECODED_ROWS = 1_000  # fits the processor's cache, which decodes faster
_OPTIONS = ("stats_options_json", "sample_rate_by_split", "sharded_stats_output")


class Executor(stock.Executor):
    """TFX's executor; for tf.Examples with default options without a Beam pipeline.

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
        rows = _Rows()
        for split in splits:
            folder = artifact_utils.get_split_uri([examples], split)
            result = compute(rows.count(read_batches(folder)))
            folder = artifact_utils.get_split_uri([statistics], split)
            fileio.makedirs(folder)
            path = os.path.join(folder, stock.DEFAULT_FILE_NAME)
            with fileio.open(path, "wb") as file:
                file.write(result.SerializeToString())
        rows.report()


def compute(
    batches: Iterator[pa.RecordBatch],
) -> statistics_pb2.DatasetFeatureStatisticsList:
    """The statistics of all rows, with TFDV's default options.

    Args:
      batches: Arrow batches of decoded tf.Examples.
    """
    options = stats_options.StatsOptions()
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
    accumulators = [generator.create_accumulator() for generator in generators]
    for batch in batches:
        accumulators = [
            generator.add_input(accumulator, batch)
            for generator, accumulator in zip(generators, accumulators, strict=True)
        ]
    return stats_impl.extract_statistics_output(accumulators, generators)


def read_batches(folder: str) -> Iterator[pa.RecordBatch]:
    """Reads the tf.Examples of all files in a folder, in order, as Arrow batches.

    Args:
      folder: Folder of GZIP TFRecord files.
    """
    files = sorted(fileio.glob(os.path.join(folder, "*")))
    decoder = ExamplesToRecordBatchDecoder()
    waiting: list[pa.RecordBatch] = []
    batches = read.records(files).batch(_DECODED_ROWS)
    for records in batches.as_numpy_iterator():
        waiting.append(decoder.DecodeBatch(records.tolist()))
        if (
            sum(batch.num_rows for batch in waiting) >= _BATCH_ROWS
            or sum(batch.nbytes for batch in waiting) >= _BATCH_BYTES
        ):
            yield table_util.MergeRecordBatches(waiting)
            waiting = []
    if waiting:
        yield table_util.MergeRecordBatches(waiting)


class _Rows:
    """Reports the number of rows read so far."""

    def __init__(self):
        self._rows = 0
        self._reported = 0.0

    def count(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch
            self._rows += batch.num_rows
            if time.monotonic() - self._reported > 0.5:
                self.report()

    def report(self) -> None:
        self._reported = time.monotonic()
        events.emit("rows", rows=self._rows, total=None)


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
