"""Runs the pass over the training split that `preprocessing_fn`'s analyzers need."""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import apache_beam as beam
import pyarrow as pa
import tensorflow_transform as tft
import tensorflow_transform.beam as tft_beam
from tensorflow_metadata.proto.v0 import schema_pb2
from tensorflow_transform.tf_metadata import metadata_io
from tensorflow_transform.tf_metadata.dataset_metadata import DatasetMetadata
from tfx.dsl.io import fileio

from strategos.components import events
from strategos.components.files import exchange
from strategos.components.files.filesystems import is_remote
from strategos.components.shards.beam_runners import make_pipeline
from strategos.components.shards.engine import Engine
from strategos.components.transform import STATES_VARIABLE, raw, vocabularies
from strategos.components.transform.analyzers import operations
from strategos.components.transform.analyzers.phase import Rows, failed_rows
from strategos.components.user_code.user_errors import operation_error

PreprocessingFn = Callable[[Mapping[str, Any]], Mapping[str, Any]]

# TFT's words around the reason, in the text of whatever a Beam runner raises.
_FAILED_OPERATION = re.compile(
    r'trying to apply the transformation: "(.*?)"\.\s+Batch instances:', re.DOTALL
)


def analyze(
    engine: Engine,
    preprocessing_fn: PreprocessingFn,
    files: Sequence[str],
    schema: schema_pb2.Schema,
    folder: str,
    contents: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Analyzes the examples and writes TFT's graph.

    If `STATES_VARIABLE` names a folder, it has the analyzers' states of each file, for
    later runs with the same file.

    Args:
      engine: Runs the analysis, by Beam or on this machine.
      preprocessing_fn: The user's function.
      files: Files of the raw examples to analyze: files of columns, or TFRecords.
      schema: Schema of the raw examples.
      folder: Folder that gets `transform_fn/`, `transformed_metadata/`, `metadata/`.
      contents: By file, the digest of its content. Default: not known.

    Raises:
      UserError: An operation that an analyzer needs fails on the examples.
    """
    try:
        schema = raw.complete(schema)
        by_tft = engine.runner != "direct" and not engine.exchange
        if by_tft or not _analyze_without_beam(
            engine, preprocessing_fn, files, schema, folder, contents
        ):
            # TFT's workers write with TensorFlow, which does not open an exchange.
            engine = engine if by_tft else Engine()
            _analyze(engine, preprocessing_fn, files, schema, folder)
        metadata = os.path.join(folder, tft.TFTransformOutput.RAW_METADATA_DIR)
        metadata_io.write_metadata(DatasetMetadata(schema), metadata)
    except Exception as error:
        failed = _FAILED_OPERATION.search(str(error))
        if failed is None:
            raise
        raise failed_rows(operation_error(failed[1])) from error


def _analyze_without_beam(
    engine: Engine,
    preprocessing_fn: PreprocessingFn,
    files: Sequence[str],
    schema: schema_pb2.Schema,
    folder: str,
    contents: Mapping[str, str],
) -> bool:
    """Analyzes without TFT's Beam pipeline; False if an operation needs that."""
    types = raw.reader(schema).TensorAdapter().OriginalTypeSpecs()
    specs = dict(sorted(types.items()))  # TensorFlow names inputs by their order
    with (
        _temporary(engine, folder) as temporary,
        exchange.folder(engine.exchange, temporary) as shared,
    ):
        # Workers elsewhere do not see the folder.
        kept = os.environ.get(STATES_VARIABLE, "") if engine.runner == "direct" else ""
        rows = Rows(engine, files, schema, temporary, shared, contents, kept)
        needs = operations.analyze(rows, preprocessing_fn, specs, folder)
    if needs:
        message = f"analyzing on Beam in one thread, as {needs} runs only there"
        events.emit("note", message=message)
    return not needs


def _analyze(
    engine: Engine,
    preprocessing_fn: PreprocessingFn,
    files: Sequence[str],
    schema: schema_pb2.Schema,
    folder: str,
) -> None:
    with (
        _temporary(engine, folder) as temporary,
        make_pipeline(engine) as pipeline,
        tft_beam.Context(temp_dir=temporary, use_deep_copy_optimization=True),
    ):
        inputs = raw.reader(schema).TensorAdapter().OriginalTypeSpecs()
        needed = sorted(tft.get_analyze_input_columns(preprocessing_fn, inputs))
        batches = (
            pipeline
            | "Files" >> beam.Create(list(files) if needed else [], reshuffle=False)
            | "Spread" >> beam.Reshuffle()
            | "Read" >> beam.ParDo(_Read(schema, needed))
        )
        reader = raw.reader(schema, needed or None)
        data = (batches, reader.TensorAdapterConfig())
        transform_fn = data | tft_beam.AnalyzeDataset(preprocessing_fn)
        _ = transform_fn | tft_beam.WriteTransformFn(folder)
        if engine.runner != "direct":  # which repeats nothing
            vocabularies.keep_final(pipeline)


@contextlib.contextmanager
def _temporary(engine: Engine, folder: str) -> Iterator[str]:
    """A temporary folder for the analysis in `folder`, where all workers see it.

    If `folder` is remote, threads of this process use a local folder instead: Beam
    would write vocabularies to it by its own file system.
    """
    if engine.runner == "direct" and is_remote(folder):
        with tempfile.TemporaryDirectory(prefix="transform-") as here:
            yield here
        return
    temporary = os.path.join(folder, ".temp")
    fileio.makedirs(temporary)
    yield temporary
    fileio.rmtree(temporary)


@beam.typehints.with_input_types(str)
@beam.typehints.with_output_types(pa.RecordBatch)
class _Read(beam.DoFn):
    """Reads a file's examples as Arrow batches of some columns.

    Beam never handles a single row: the columns of examples are in batches already, and
    TensorFlow forms batches of TFRecords.
    """

    def __init__(self, schema: schema_pb2.Schema, needed: Sequence[str]):
        self._schema = schema.SerializeToString()
        self._needed = list(needed)

    def process(self, file: str) -> Iterator[pa.RecordBatch]:
        """Yields the file's batches, which the analyzers' stage reads.

        A runner like Flink's ends a stage before TFT's graph, which has a side input.
        """
        schema = schema_pb2.Schema.FromString(self._schema)
        yield from raw.lazy_batches(file, schema, self._needed)
