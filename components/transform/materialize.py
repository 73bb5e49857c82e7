"""Transforms examples with TFT's graph, thousands at a time, into new examples."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import tensorflow as tf
import tensorflow_transform as tft
from tensorflow_transform import impl_helper

from strategos.components import events
from strategos.components.records import encode, read
from strategos.components.records.write import ShardWriter, publish
from strategos.components.transform.graph import TransformGraph

_BATCH_ROWS = 8192


class Materializer:
    """Transforms files of raw examples.

    Args:
      folder: Folder of the transform graph.
      total: Number of all examples to transform, if known, for the live view.
    """

    def __init__(self, folder: str, total: int | None = None):
        output = tft.TFTransformOutput(folder)
        self._graph = TransformGraph(output)
        needed = self._graph.raw_features_of(self._graph.outputs)
        self._raw_spec = {name: self._graph.raw_spec[name] for name in needed}
        schema = output.transformed_metadata.schema
        self._converter = impl_helper.make_tensor_to_arrow_converter(schema)
        self._spec = output.transformed_feature_spec()
        self._total = total
        self._rows = 0
        self._reported = 0.0

    def write(self, files: Sequence[str], folder: str) -> int:
        """Transforms the examples of some files into TFRecords.

        Args:
          files: TFRecord files; `.gz` at the end of the first one's name means GZIP.
          folder: Folder that gets the TFRecords.

        Returns:
          Number of examples.
        """
        writer = ShardWriter(folder)
        for batch in self._batches(files):
            writer.write(encode.serialize(batch))
            self._report(batch.num_rows)
        written = writer.close()
        publish(folder, written)
        return written.rows

    def _batches(self, files: Sequence[str]) -> Iterator[pa.RecordBatch]:
        transformed = (
            read.records(files)
            .batch(_BATCH_ROWS)
            .map(self._transform, os.cpu_count(), deterministic=True)
        )
        options = tf.data.Options()
        options.autotune.enabled = False  # its thread can delay the end for seconds
        for tensors in transformed.prefetch(2).with_options(options):
            yield self._as_lists(self._converter.convert(tensors))

    @tf.autograph.experimental.do_not_convert
    def _transform(self, serialized: tf.Tensor) -> dict[str, Any]:
        raw = tf.io.parse_example(serialized, self._raw_spec)
        return self._graph.layer(raw)

    def _as_lists(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The features of tf.Examples, as TFT's schema names them."""
        columns: dict[str, pa.ListArray] = {}
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            spec = self._spec.get(name)  # None: a part of a sparse feature
            if isinstance(spec, tf.io.RaggedFeature):
                columns |= _ragged_columns(spec, column)
            else:
                offsets = column.offsets.to_numpy()
                columns[name] = _list_array(offsets, column.values)
        return pa.RecordBatch.from_pydict(columns)

    def _report(self, rows: int) -> None:
        self._rows += rows
        now = time.monotonic()
        if now - self._reported >= events.PROGRESS_SECONDS or self._rows == self._total:
            self._reported = now
            events.emit("rows", rows=self._rows, total=self._total)


def _ragged_columns(
    spec: tf.io.RaggedFeature, column: pa.Array
) -> Iterator[tuple[str, pa.ListArray]]:
    """The columns of a ragged feature: row lengths of each inner level, and values.

    Args:
      spec: Names these columns. TFT's schema allows uniform dimensions innermost only.
      column: A list array per row, nested once more for each `RowLengths` of `spec`.
    """
    offsets, values = column.offsets.to_numpy(), column.values
    for partition in spec.partitions:
        if isinstance(partition, tf.io.RaggedFeature.RowLengths):
            inner = values.offsets.to_numpy()
            yield partition.key, _list_array(offsets, pa.array(np.diff(inner)))
            offsets, values = inner[offsets], values.values
    yield spec.value_key, _list_array(offsets, values)


def _list_array(offsets: np.ndarray, values: pa.Array) -> pa.ListArray:
    """Lists as `encode.serialize` expects them; TFT's lists have 64-bit offsets."""
    if pa.types.is_large_binary(values.type):
        values = values.cast(pa.binary())
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), values)
