"""Reads raw examples as Arrow batches: their columns where ExampleGen wrote some."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from tensorflow_metadata.proto.v0 import schema_pb2
from tfx_bsl.coders import example_coder
from tfx_bsl.public import tfxio
from tfx_bsl.tfxio import tensor_representation_util

from strategos.components.records import columns, read, streams
from strategos.components.user_code.user_errors import operation_error
from strategos.components.wording import listed, quoted

_BATCH_ROWS = 10_000
_NO_NUMBER = "could not correctly convert string:"  # of `tf.strings.to_number`


def complete(schema: schema_pb2.Schema) -> schema_pb2.Schema:
    """`schema` with the representation of each tensor, including inferred ones.

    If a schema has some representations, `TFXIO.Project` does not infer the others.
    """
    representations = reader(schema).TensorRepresentations()
    whole = schema_pb2.Schema.FromString(schema.SerializeToString())
    group = whole.tensor_representation_group[""].tensor_representation
    for name, representation in representations.items():
        group[name].CopyFrom(representation)
    return whole


def reader(
    schema: schema_pb2.Schema, needed: Sequence[str] | None = None
) -> tfxio.TFXIO:
    """tfx_bsl's reader of tf.Examples, which knows their Arrow and tensor types.

    Args:
      schema: Schema of the raw examples, from `complete` if some are needed only.
      needed: Names of the tensors to read; all by default.
    """
    everything = tfxio.TFExampleRecord(
        "none", schema=schema, telemetry_descriptors=["strategos", "transform"]
    )
    return everything if needed is None else everything.Project(list(needed))


def batches(
    file: str, schema: schema_pb2.Schema, needed: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Yields the rows of a file, thousands at a time, in the types of `reader`.

    Args:
      file: File of columns (`.arrow`) or TFRecord file of tf.Examples.
      schema: From `complete`.
      needed: Names of the tensors to read.
    """
    wanted = reader(schema, needed).ArrowSchema()
    if file.endswith(streams.SUFFIX):
        for batch in columns.read([file]):
            yield _select(batch, wanted)
        return
    decoder = example_coder.ExamplesToRecordBatchDecoder(
        tensor_representation_util.ProjectTensorRepresentationsInSchema(
            schema, list(needed)
        ).SerializeToString()
    )
    for records in read.batches([file], _BATCH_ROWS):
        yield decoder.DecodeBatch(records.numpy())


class LazyBatch:
    """Stands in for a `pa.RecordBatch`, and reads it on first use.

    Pickled, it is a place in a file: a runner that moves it to another process moves no
    rows.

    Args:
      stored: The batch.
      wanted: Columns to select, and their types.
    """

    def __init__(self, stored: columns.StoredBatch, wanted: pa.Schema):
        self._stored, self._wanted = stored, wanted
        self.nbytes = stored.nbytes  # which TFT counts before it uses any batch

    def __reduce__(self) -> tuple[type, tuple[columns.StoredBatch, pa.Schema]]:
        return LazyBatch, (self._stored, self._wanted)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batch, name)

    def __len__(self) -> int:
        return self._batch.num_rows

    @functools.cached_property
    def _batch(self) -> pa.RecordBatch:
        return _select(self._stored.read(), self._wanted)


def lazy_batches(
    file: str, schema: schema_pb2.Schema, needed: Sequence[str]
) -> Iterator[pa.RecordBatch | LazyBatch]:
    """As `batches`, but yields a LazyBatch for each batch of a file of columns.

    Args:
      file: File of columns (`.arrow`) or TFRecord file of tf.Examples.
      schema: From `complete`.
      needed: Names of the tensors to read.
    """
    if not file.endswith(streams.SUFFIX):
        yield from batches(file, schema, needed)
        return
    wanted = reader(schema, needed).ArrowSchema()
    for stored in columns.stored_batches(file):
        yield LazyBatch(stored, wanted)


def reason(message: str, batch: pa.RecordBatch) -> str:
    """Why an operation fails on rows, and which columns have the text in question.

    Args:
      message: TensorFlow's message.
      batch: The rows, from `batches`.
    """
    text = operation_error(message)
    _, is_text, value = text.partition(_NO_NUMBER)
    if not is_text:
        return text
    lists = pa.large_list(pa.large_binary())
    names = [
        name
        for name, column in zip(batch.schema.names, batch.columns, strict=True)
        if column.type == lists
        and value.strip().encode() in map(bytes.strip, column.flatten().to_pylist())
    ]
    return f"{text} (a value of {listed(quoted(names))})" if names else text


def _select(batch: pa.RecordBatch, wanted: pa.Schema) -> pa.RecordBatch:
    """The columns that `wanted` names, typed where they have no value in the batch."""
    selected = []
    for field in wanted:
        index = batch.schema.get_field_index(field.name)
        column = pa.nulls(batch.num_rows) if index < 0 else batch.column(index)
        is_void = pa.types.is_null(column.type)
        selected.append(column.cast(field.type) if is_void else column)
    return pa.RecordBatch.from_arrays(selected, schema=wanted)
