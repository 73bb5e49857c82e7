"""The columns of examples as Arrow files, beside their TFRecord files.

Readers of columns (statistics, Transform, the Trainer) need not decode tf.Examples,
which takes longer than their own work.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from strategos.components.files import listing, storage
from strategos.components.records import streams
from strategos.components.records.write import Written, attempt, unpublished

_BATCH_ROWS = 8192
_BATCH_BYTES = 16 << 20
_FILE_BYTES = 64 << 20
_READ_BYTES = 32 << 20

_LARGE = {
    pa.int64(): pa.int64(),
    pa.float32(): pa.float32(),
    pa.binary(): pa.large_binary(),
}


def files(examples: str, split: str) -> list[str]:
    """The files with the columns of a split, in order; none if nobody wrote them.

    Args:
      examples: URI of an Examples artifact.
      split: Name of the split.
    """
    names = listing.listed(os.path.join(examples, streams.folder(split)))
    return [file for file in names if file.endswith(streams.SUFFIX)]


def compact(batch: pa.RecordBatch, lists: Collection[str]) -> pa.RecordBatch:
    """The columns as `ColumnWriter` writes them.

    A column with at most one value in each row becomes flat: its offsets would take
    more space than its values.

    Args:
      batch: Lists of int64, float32 or binary, null where the value is missing.
      lists: Names of the columns that may have several values in a row.
    """
    names = batch.schema.names
    columns = [
        column if name in lists else _flat(column)
        for name, column in zip(names, batch.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, names)


class ColumnWriter:
    """Writes columns to files, compressed by LZ4, in batches of thousands of rows.

    A file is full at 64 MiB before compression, so the rows of an input that cannot
    be cut, e.g. one `.gz`, are several shards for later nodes. The files stay in
    `unpublished` until `publish`, like those of `ShardWriter`.

    Args:
      artifact: URI of the artifact.
      shard: Number of the shard.
    """

    def __init__(self, artifact: str, shard: int):
        self._folder = unpublished(artifact)
        self._name = attempt(shard)
        self._files: list[str] = []
        self._bytes = 0
        self._opened = contextlib.ExitStack()
        self._file: streams.File | None = None
        self._stream: pa.RecordBatchStreamWriter | None = None
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = self._waiting_bytes = 0
        self._rows = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Appends a batch.

        Args:
          batch: From `compact`; all batches have the same schema.
        """
        if not batch.num_rows:
            return
        self._waiting.append(batch)
        self._rows += batch.num_rows
        self._waiting_rows += batch.num_rows
        self._waiting_bytes += batch.nbytes
        if self._waiting_rows >= _BATCH_ROWS or self._waiting_bytes >= _BATCH_BYTES:
            self._flush()

    def close(self) -> Written:
        """Ends the last file and returns the files' names and number of rows."""
        self._flush()
        self._end()
        return Written.of(self._files, self._rows)

    def _flush(self) -> None:
        if not self._waiting:
            return
        table = pa.Table.from_batches(self._waiting).combine_chunks()
        self._waiting = []
        self._waiting_rows = self._waiting_bytes = 0
        if self._file is None or self._stream is None:
            self._file, self._stream = self._begin(table.schema)
        self._stream.write_table(table)
        self._file.end_batch()
        self._bytes += table.nbytes
        if self._bytes >= _FILE_BYTES:
            self._end()

    def _begin(self, schema: pa.Schema) -> tuple[streams.File, Any]:
        self._files.append(f"{self._name}-{len(self._files):05}")
        path = os.path.join(self._folder, self._files[-1])
        file = streams.File(self._opened.enter_context(storage.create(path)), schema)
        options = pa.ipc.IpcWriteOptions(compression="lz4")
        self._bytes = 0
        return file, pa.ipc.new_stream(file, schema, options=options)

    def _end(self) -> None:
        if self._file is None or self._stream is None:
            return
        self._stream.close()
        self._file.write_sums()
        self._opened.close()
        self._file = self._stream = None


def read(files: Iterable[str]) -> Iterator[pa.RecordBatch]:
    """Yields the batches of files with the types that decoded tf.Examples have.

    Those are large lists of int64, float32 or large binary; a column without any value
    in a batch has the type null.

    Args:
      files: Files of the same artifact.
    """
    for file in files:
        for batch in streams.batches(file):
            yield _decoded(batch)


def read_rows(files: Iterable[str], rows: int) -> Iterator[Rows]:
    """Yields the rows of files, many at a time, to be decoded column by column.

    Args:
      files: Files of the same artifact.
      rows: Least number of rows at a time. The last may be fewer, and so may rows with
        long values.
    """
    stored = (batch for file in files for batch in streams.batches(file))
    for some in groups(stored, rows, _READ_BYTES):
        block = Rows(some)
        some.clear()
        yield block


class Rows:
    """Rows of files: a `pa.RecordBatch` of which one column is decoded at a time.

    Args:
      batches: As they are stored; at least one.
    """

    def __init__(self, batches: Sequence[pa.RecordBatch]):
        self._table = pa.Table.from_batches(batches)
        self.schema, self.num_rows = self._table.schema, self._table.num_rows

    @property
    def columns(self) -> Iterator[pa.Array]:
        """The columns, with the types that `read` gives them."""
        return map(self.column, range(len(self.schema)))

    def column(self, index: int) -> pa.Array:
        """The column at an index of the schema, in the same way."""
        return _as_decoded(self._table.column(index).combine_chunks())


class StoredBatch:
    """A batch of a file, decoded by `read`; pickled, it is its place in the file.

    Args:
      file: The file.
      position: Start of the batch in the file, in bytes.
      nbytes: Size of the batch in the file, in bytes.
      content: Schema and message, if they have been read.
    """

    def __init__(
        self,
        file: str,
        position: int,
        nbytes: int,
        content: tuple[pa.Schema, pa.ipc.Message] | None = None,
    ):
        self._place, self._content, self.nbytes = (file, position), content, nbytes

    def __reduce__(self) -> tuple[type, tuple[str, int, int]]:
        return StoredBatch, (*self._place, self.nbytes)

    def read(self) -> pa.RecordBatch:
        """The rows with the types that decoded tf.Examples have; see `columns.read`."""
        if self._content is None:
            file, position = self._place
            self._content = streams.message_at(file, position)
        schema, message = self._content
        return _decoded(pa.ipc.read_record_batch(message, schema))


def stored_batches(file: str) -> Iterator[StoredBatch]:
    """Yields the batches of a file as they are stored.

    Args:
      file: File of columns.
    """
    for position, schema, message in streams.messages(file):
        yield StoredBatch(file, position, message.body.size, (schema, message))


def groups(
    batches: Iterable[pa.RecordBatch], rows: int, size: int
) -> Iterator[list[pa.RecordBatch]]:
    """Yields neighbours that together have `rows` rows or take `size` bytes, or more.

    Args:
      batches: In order. The last group may be smaller.
      rows: Number of rows that ends a group.
      size: Number of bytes that ends a group.
    """
    waiting: list[pa.RecordBatch] = []
    waiting_rows = waiting_bytes = 0
    for batch in batches:
        waiting.append(batch)
        waiting_rows += batch.num_rows
        waiting_bytes += batch.nbytes
        if waiting_rows >= rows or waiting_bytes >= size:
            yield waiting
            waiting = []
            waiting_rows = waiting_bytes = 0
    if waiting:
        yield waiting


def _flat(column: pa.ListArray) -> pa.Array:
    """The value of each row, null where it is missing."""
    if not column.null_count:
        return column.flatten()
    # A third of the time that `list_element` takes.
    missing = column.is_null().to_numpy(zero_copy_only=False)
    return column.values.take(pa.array(column.offsets.to_numpy()[:-1], mask=missing))


def _decoded(batch: pa.RecordBatch) -> pa.RecordBatch:
    columns = [_as_decoded(column) for column in batch.columns]
    return pa.RecordBatch.from_arrays(columns, batch.schema.names)


def _as_decoded(column: pa.Array) -> pa.Array:
    if column.null_count == len(column):
        return pa.nulls(len(column))
    if pa.types.is_list(column.type):
        return column.cast(pa.large_list(_LARGE[column.type.value_type]))
    values = column.drop_null().cast(_LARGE[column.type])
    if not column.null_count:
        offsets = pa.array(np.arange(len(column) + 1))
        return pa.LargeListArray.from_arrays(offsets, values)
    present = column.is_valid().to_numpy(zero_copy_only=False)
    offsets = np.zeros(len(column) + 1, np.int64)
    np.cumsum(present, out=offsets[1:])
    missing = np.append(~present, False)
    return pa.LargeListArray.from_arrays(pa.array(offsets, mask=missing), values)
