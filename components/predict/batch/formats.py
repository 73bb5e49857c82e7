"""Formats of files of predictions: a class for each, by name in `FORMATS`."""

from __future__ import annotations

import abc
import itertools
import json
from collections.abc import Iterator
from typing import Any, BinaryIO, ClassVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet
from pyarrow import types

from strategos.components.data_files.values import features, spelling
from strategos.components.data_files.values.arrow_types import is_list
from strategos.components.data_files.values.kinds import Kind
from strategos.components.errors import UserError
from strategos.components.records import encode, tfrecords

_GROUP_ROWS = 1 << 16
_GROUP_BYTES = 16 << 20
_dump = json.JSONEncoder(ensure_ascii=False).encode


class Writer(abc.ABC):
    """Writes a file of predictions.

    Args:
      file: The file.
      schema: The columns.

    Attributes:
      suffix: End of the file's name.
    """

    suffix: ClassVar[str]

    def __init__(self, file: BinaryIO, schema: pa.Schema):
        self._file, self._schema = file, schema

    @classmethod
    def fields(cls, schema: pa.Schema) -> list[pa.Field]:
        """The columns as a reader of the file finds them.

        Args:
          schema: The columns.

        Raises:
          UserError: The format cannot hold a column.
        """
        return list(schema)

    @abc.abstractmethod
    def write(self, batch: pa.RecordBatch) -> None:
        """Appends rows with the columns of the schema.

        Raises:
          UserError: The format cannot hold a value.
        """

    @abc.abstractmethod
    def close(self) -> None:
        """Writes buffered rows and the file's end; the file stays open."""


class Parquet(Writer):
    """Parquet, with row groups of 65,536 rows or 16 MiB."""

    suffix = ".parquet"

    def __init__(self, file: BinaryIO, schema: pa.Schema):
        super().__init__(file, schema)
        self._writer = pyarrow.parquet.ParquetWriter(file, schema, version="2.6")
        self._waiting: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """See `Writer`."""
        self._waiting.append(batch)
        self._rows += batch.num_rows
        self._bytes += batch.nbytes
        if self._rows >= _GROUP_ROWS or self._bytes >= _GROUP_BYTES:
            self._flush()

    def close(self) -> None:
        """See `Writer`."""
        self._flush()
        self._writer.close()

    def _flush(self) -> None:
        if self._waiting:
            table = pa.Table.from_batches(self._waiting, self._schema)
            self._writer.write_table(table, row_group_size=max(self._rows, 1))
        self._waiting = []
        self._rows = self._bytes = 0


class Csv(Writer):
    """CSV with a header: structs by dotted name, lists as JSON, times as text."""

    suffix = ".csv"

    def __init__(self, file: BinaryIO, schema: pa.Schema):
        super().__init__(file, schema)
        self._writer = pyarrow.csv.CSVWriter(file, pa.schema(self.fields(schema)))

    @classmethod
    def fields(cls, schema: pa.Schema) -> list[pa.Field]:
        """See `Writer`."""
        return [pa.field(each.name, _in_csv(each.type)) for each in _flat(schema)]

    def write(self, batch: pa.RecordBatch) -> None:
        """See `Writer`."""
        pairs = zip(self.fields(self._schema), _columns(batch), strict=True)
        columns = [_as_csv(field.name, column) for field, column in pairs]
        names = [field.name for field in self.fields(self._schema)]
        self._writer.write_batch(pa.RecordBatch.from_arrays(columns, names))

    def close(self) -> None:
        """See `Writer`."""
        self._writer.close()


class JsonLines(Writer):
    """JSON lines: an object a row, with the names of classes as keys of an object."""

    suffix = ".jsonl"

    def write(self, batch: pa.RecordBatch) -> None:
        """See `Writer`."""
        names = batch.schema.names
        columns = [_as_json(*pair) for pair in zip(names, batch.columns, strict=True)]
        lines = (
            _dump(dict(zip(names, row, strict=True)))
            for row in zip(*columns, strict=True)
        )
        self._file.write("".join(f"{line}\n" for line in lines).encode())

    def close(self) -> None:
        """See `Writer`."""


class TfRecord(Writer):
    """TFRecord of tf.Examples, not compressed: structs by dotted name."""

    suffix = ".tfrecord"

    @classmethod
    def fields(cls, schema: pa.Schema) -> list[pa.Field]:
        """See `Writer`."""
        fields = _flat(schema)
        for each in fields:
            try:
                features.kind_of(each.type)
            except TypeError as error:
                raise UserError(
                    f"a tf.Example cannot hold the column `{each.name}` of type "
                    f"{each.type}",
                    key="--format",
                    received="tfrecord",
                    remedy="Use parquet or jsonl.",
                ) from error
        return fields

    def write(self, batch: pa.RecordBatch) -> None:
        """See `Writer`."""
        fields = self.fields(self._schema)
        plain = pa.RecordBatch.from_arrays(_columns(batch), [x.name for x in fields])
        kinds = {each.name: features.kind_of(each.type) for each in fields}
        kinds = {n: Kind.BYTES if k == Kind.UNKNOWN else k for n, k in kinds.items()}
        try:
            converted = features.convert(plain, kinds)
        except features.BadValueError as error:
            raise _unfit(error.column, error.reason or repr(error.value)) from error
        for name, kind in kinds.items():
            if kind == Kind.FLOAT:
                _check_float32(name, plain.column(name), converted.column(name))
        for chunk in encode.serialize(converted).chunks:
            self._file.write(tfrecords.frame(chunk))

    def close(self) -> None:
        """See `Writer`."""


FORMATS: dict[str, type[Writer]] = {
    "parquet": Parquet,
    "csv": Csv,
    "jsonl": JsonLines,
    "tfrecord": TfRecord,
}
"""Writers by the value of `--format`."""


def _flat(schema: pa.Schema) -> list[pa.Field]:
    """The columns, the fields of structs by dotted name."""
    return list(
        itertools.chain.from_iterable(
            [pa.field(f"{each.name}.{x.name}", x.type) for x in each.type]
            if types.is_struct(each.type)
            else [each]
            for each in schema
        )
    )


def _columns(batch: pa.RecordBatch) -> list[pa.Array]:
    """The columns of `_flat`."""
    return list(
        itertools.chain.from_iterable(
            each.flatten() if types.is_struct(each.type) else [each]
            for each in batch.columns
        )
    )


def _in_csv(data_type: pa.DataType) -> pa.DataType:
    """The type of a column for Arrow's writer of CSV."""
    plain = types.is_integer(data_type) or types.is_floating(data_type)
    if types.is_float16(data_type):
        return pa.float32()
    return data_type if plain or types.is_boolean(data_type) else pa.string()


def _as_csv(name: str, column: pa.Array) -> pa.Array:
    wanted = _in_csv(column.type)
    if is_list(column.type):
        values = _as_json(name, column)
        texts = [None if each is None else _dump(each) for each in values]
        return pa.array(texts, pa.string())
    if wanted == column.type:
        return column
    return _text(name, column) if wanted == pa.string() else column.cast(wanted)


def _text(name: str, column: pa.Array) -> pa.StringArray:
    """Values in the one spelling that all formats of data files have."""
    try:
        return spelling.text_of(column).cast(pa.string())
    except pa.ArrowInvalid as error:
        raise _unfit(name, "bytes that are not UTF-8 text") from error


def _as_json(name: str, column: pa.Array) -> list[Any]:
    """The values of a column, for JSON: times, decimals and bytes as text."""
    if is_list(column.type):
        values = iter(_as_json(name, column.flatten()))
        lengths = pc.list_value_length(column).to_pylist()
        return [None if n is None else _taken(values, n) for n in lengths]
    if types.is_struct(column.type):  # of an output, which has no nulls
        keys = [each.name for each in column.type]
        fields = [_as_json(name, each) for each in column.flatten()]
        return [dict(zip(keys, row, strict=True)) for row in zip(*fields, strict=True)]
    if types.is_null(column.type):
        return [None] * len(column)
    if _in_csv(column.type) == pa.string():
        return _text(name, column).to_pylist()
    if column.null_count:
        return column.to_pylist()
    numbers: list[Any] = column.to_numpy(zero_copy_only=False).tolist()  # faster
    return numbers


def _taken(values: Iterator[Any], number: int) -> list[Any]:
    return list(itertools.islice(values, number))


def _check_float32(name: str, column: pa.Array, converted: pa.ListArray) -> None:
    """Rejects doubles that a tf.Example, which has float32, would change."""
    values = column.flatten() if is_list(column.type) else column.drop_null()
    if values.type in (pa.float32(), pa.float16()):
        return
    exact = values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    kept = converted.flatten().to_numpy(zero_copy_only=False)
    changed = (exact != kept) & ~((exact != exact) & (kept != kept))
    if changed.any():
        raise _unfit(name, f"the number {exact[changed.argmax()].item()!r}")


def _unfit(name: str, value: str) -> UserError:
    return UserError(
        f"the column `{name}` has {value}, which the format of the predictions cannot "
        "hold",
        key="--format",
        remedy="Use parquet, or leave the column out of --columns.",
    )
