"""Serializes feature columns to tf.Examples, thousands of rows at a time.

The module writes protobuf's wire format from whole columns instead of row by row. A
feature is a header, which depends only on the length of the values' bytes, followed by
these bytes. Rows with equally long features are copies of one template that differ in
the values alone, so each group of such rows is a matrix of bytes. Features
of many different lengths, such as free text, are joined piece by piece instead. Equal
rows give equal bytes, because features are in the order of the columns; the order of a
protobuf map differs between processes.

The wire format of a tf.Example nests, from the inside: a list of values (packed int64
or float32, or bytes), the feature, the map entry of name and feature, the features, the
example.

A missing value is a feature without a list, as TFX's ExampleGens for Parquet, Avro and
BigQuery write it; TFDV counts it as missing. TFX's CsvExampleGen writes an empty list
of the column's type instead: parsers read the same, but TFDV counts it as present.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

_CHUNK_ROWS = 16_384  # fewer: two threads wait for the GIL; more: out of the cache
_CHUNK_BYTES = 64 << 20  # of values
_GROUP_ROWS = 128  # on average; below, joining pieces is faster than templates

_INNER = b"\x0a"  # field 1, length-delimited: a value, an entry, its key, the features
_FEATURE = b"\x12"  # field 2 of a map entry
_MISSING = -1  # the length of a missing value
_BYTES_LIST, _FLOAT_LIST, _INT64_LIST = b"\x0a", b"\x12", b"\x1a"


def serialize(features: pa.RecordBatch) -> pa.ChunkedArray:
    """Serializes a batch to tf.Examples.

    Args:
      features: Columns of lists of int64, float32 or binary; null for a missing value.

    Returns:
      binary[rows], one serialized tf.Example per row.
    """
    pairs = zip(features.schema.names, features.columns, strict=True)
    columns = [_column(name.encode(), column) for name, column in pairs]
    size = sum(len(column.data) for column in columns)
    fitting = _CHUNK_BYTES * features.num_rows // max(size, 1)
    rows = max(1, min(_CHUNK_ROWS, fitting))
    parts = [
        _examples([column.slice(first, first + rows) for column in columns])
        for first in range(0, features.num_rows, rows)
    ]
    return pa.chunked_array(parts, pa.binary())


def join(*pieces: pa.BinaryArray) -> pa.BinaryArray:
    """Concatenates the pieces of each row."""
    return pc.binary_join_element_wise(*pieces, b"")


def headers(header: Callable[[int], bytes], *pieces: pa.BinaryArray) -> pa.BinaryArray:
    """The header of each row.

    Args:
      header: Returns the header for a length in bytes; called once per distinct length.
      *pieces: binary[rows]; the length of a row is the sum of its pieces' lengths.
    """
    lengths = functools.reduce(pc.add, map(pc.binary_length, pieces))
    return _of_lengths(lengths, header)


@dataclasses.dataclass(frozen=True)
class _Column:
    """The values of a feature, encoded.

    Attributes:
      header: Returns the bytes before values of a length, or before a missing one.
      lengths: int32[rows]. Length of each row's values; `_MISSING` without a list.
      data: uint8[bytes]. The values of all rows.
      bounds: int32[rows + 1]. Start of each row in `data`, and the end of the last.
    """

    header: Callable[[int], bytes]
    lengths: np.ndarray
    data: np.ndarray
    bounds: np.ndarray

    @functools.cached_property
    def constant(self) -> int | None:
        """The length of all rows; None if they differ."""
        least = int(self.lengths.min())
        return least if least == self.lengths.max() else None

    @property
    def values(self) -> pa.BinaryArray:
        """binary[rows]."""
        buffers = [None, pa.py_buffer(self.bounds), pa.py_buffer(self.data)]
        return pa.Array.from_buffers(pa.binary(), len(self.lengths), buffers)

    def slice(self, first: int, stop: int) -> _Column:
        """Some consecutive rows."""
        lengths, bounds = self.lengths[first:stop], self.bounds[first : stop + 1]
        return dataclasses.replace(self, lengths=lengths, bounds=bounds)

    def take(self, rows: np.ndarray) -> _Column:
        """Some rows.

        Args:
          rows: int64[n], in any order.
        """
        if (size := self.constant) is None:
            _, ends, data = self.values.take(pa.array(rows)).buffers()
            data = np.frombuffer(data or b"", np.uint8)
            return _Column(
                self.header, self.lengths[rows], data, np.frombuffer(ends, np.int32)
            )
        if size <= 0:
            return self
        whole = self.data[self.bounds[0] : self.bounds[-1]].view(f"V{size}")
        bounds = self.bounds - self.bounds[0]
        return _Column(self.header, self.lengths, whole[rows].view(np.uint8), bounds)

    def items(self, first: int, stop: int, length: int) -> np.ndarray:
        """The values of consecutive rows of the same length, V[rows]."""
        data = self.data[self.bounds[first] : self.bounds[stop]]
        return data.view(f"V{length}")

    def pieces(self) -> tuple[pa.BinaryArray, pa.BinaryArray]:
        """Headers and values, one of each per row."""
        return _of_lengths(pa.array(self.lengths), self.header), self.values


def _column(name: bytes, column: pa.ListArray) -> _Column:
    offsets = column.offsets.to_numpy()
    values = column.values
    if types.is_int64(values.type):
        data, bounds = _varints(values.to_numpy())
        tag, packed = _INT64_LIST, True
    elif types.is_float32(values.type):
        data = values.to_numpy().astype("<f4", copy=False).view(np.uint8)
        bounds = np.arange(0, len(data) + 1, 4, dtype=np.int32)
        tag, packed = _FLOAT_LIST, True
    elif not column.null_count and (np.diff(offsets) == 1).all():
        # One header for the feature and its only value saves a pass over the values.
        data, bounds = _bytes(column.flatten())
        single = functools.cache(_single_header(name))
        return _Column(single, np.diff(bounds), data, bounds)
    else:
        data, bounds = _bytes(join(headers(_delimited, values), values))
        tag, packed = _BYTES_LIST, False

    @functools.cache
    def header(length: int) -> bytes:
        if length == _MISSING:
            return _entry_header(name, b"", 0)
        within = _delimited(length) if packed and length else b""
        return _entry_header(name, tag + _varint(len(within) + length) + within, length)

    bounds = bounds[offsets]
    lengths = np.diff(bounds)
    if column.null_count:
        lengths[column.is_null().to_numpy(zero_copy_only=False)] = _MISSING
    return _Column(header, lengths, data, bounds)


def _bytes(values: pa.BinaryArray) -> tuple[np.ndarray, np.ndarray]:
    """The bytes of all values, uint8[bytes], and their bounds, int32[values + 1]."""
    _, ends, data = values.buffers()
    bounds = np.frombuffer(ends, np.int32)[values.offset :][: len(values) + 1]
    return np.frombuffer(data or b"", np.uint8), bounds


def _examples(columns: Sequence[_Column]) -> pa.BinaryArray:
    """Serializes some rows."""
    most = max(1, len(columns[0].lengths) // _GROUP_ROWS)
    runs = list(_runs(columns, most))
    run, groups = runs[0]
    if len(runs) == 1 and groups is not None:
        return _from_templates(run, groups, _delimited)
    pieces: list[Any] = []
    for run, groups in runs:
        if groups is None:
            pieces += run[0].pieces()
        else:
            pieces.append(_from_templates(run, groups, lambda _: b""))
    return join(headers(_delimited, *pieces), *pieces)


def _runs(
    columns: Sequence[_Column], most: int
) -> Iterator[tuple[list[_Column], np.ndarray | None]]:
    """Divides the columns into runs with few combinations of lengths.

    Args:
      columns: All columns.
      most: Number of combinations that a run may have.

    Yields:
      Neighbours, and for each row the number of its combination, int32[rows]; None for
      a column that has too many lengths alone.
    """
    run: list[_Column] = []
    groups = none = np.zeros(len(columns[0].lengths), np.int32)
    for column in columns:
        joint = _combined(groups, column, most)
        if joint is None and run:
            yield run, groups
            run, joint = [], _combined(none, column, most)
        if joint is None:
            yield [column], None
            groups = none
            continue
        run.append(column)
        groups = joint
    if run:
        yield run, groups


def _combined(groups: np.ndarray, column: _Column, most: int) -> np.ndarray | None:
    """Divides groups by the lengths of one more column; None for more than `most`."""
    if column.constant is not None:
        return groups
    least, span = column.lengths.min(), np.ptp(column.lengths) + 1
    keys = groups * np.int64(span) + (column.lengths - least)
    distinct = pa.array(keys).dictionary_encode()
    return distinct.indices.to_numpy() if len(distinct.dictionary) <= most else None


def _from_templates(
    columns: Sequence[_Column], groups: np.ndarray, head: Callable[[int], bytes]
) -> pa.BinaryArray:
    """Serializes columns.

    Args:
      columns: Some columns.
      groups: int32[rows]. The rows of a group have the same lengths in each column.
      head: Returns the bytes to put before a row of a length.
    """
    counts = np.bincount(groups)
    order = np.argsort(groups.astype(np.uint16), kind="stable")
    if len(counts) > 1:
        columns = [column.take(order) for column in columns]
    bounds = np.zeros(len(groups) + 1, np.int32)
    ends = np.cumsum(counts)
    templates = [_Template.of(columns, int(end) - 1, head) for end in ends]
    widths = [len(template.content) for template in templates]
    np.cumsum(np.repeat(widths, counts), out=bounds[1:])
    data = np.empty(bounds[-1], np.uint8)
    for template, stop, count in zip(templates, ends, counts, strict=True):
        first = stop - count
        template.fill(data[bounds[first] : bounds[stop]], columns, first, stop)
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(data)]
    array = pa.Array.from_buffers(pa.binary(), len(groups), buffers)
    if len(counts) == 1:
        return array
    places = np.empty_like(order)
    places[order] = np.arange(len(order))
    return array.take(pa.array(places))


@dataclasses.dataclass(frozen=True)
class _Template:
    """Rows of the same lengths without their values.

    Attributes:
      content: The bytes of a row.
      places: Where the values of each column begin, and their length.
    """

    content: bytes
    places: Sequence[tuple[int, int]]

    @classmethod
    def of(
        cls, columns: Sequence[_Column], row: int, head: Callable[[int], bytes]
    ) -> _Template:
        """The template of a row; see `_from_templates`."""
        content, places = bytearray(), []
        for column in columns:
            length = int(column.lengths[row])
            content += column.header(length)
            places.append((len(content), length))
            content += bytes(max(length, 0))
        before = head(len(content))
        places = [(len(before) + place, length) for place, length in places]
        return cls(before + bytes(content), places)

    def fill(
        self, data: np.ndarray, columns: Sequence[_Column], first: int, stop: int
    ) -> None:
        """Serializes consecutive rows to `data`."""
        rows, width = stop - first, len(self.content)
        data.reshape(rows, width)[:] = np.frombuffer(self.content, np.uint8)
        for column, (place, length) in zip(columns, self.places, strict=True):
            if length > 0:
                # A row's bytes as one item: several times as fast as byte by byte.
                target: np.ndarray = np.ndarray(rows, f"V{length}", data, place, width)
                target[:] = column.items(first, stop, length)


def _single_header(name: bytes) -> Callable[[int], bytes]:
    """The header of a feature with one value of type bytes, by the value's length."""

    def header(length: int) -> bytes:
        of_value = _delimited(length)
        within = _BYTES_LIST + _varint(len(of_value) + length) + of_value
        return _entry_header(name, within, length)

    return header


def _entry_header(name: bytes, within: bytes, length: int) -> bytes:
    """The bytes before the values in a map entry.

    Args:
      name: Name of the feature, in UTF-8.
      within: The part inside the feature message; empty if the feature has no list.
      length: Length of the values in bytes.
    """
    key = _delimited(len(name)) + name
    within = key + _FEATURE + _varint(len(within) + length) + within
    return _delimited(len(within) + length) + within


def _of_lengths(
    lengths: pa.Int32Array, header: Callable[[int], bytes]
) -> pa.BinaryArray:
    distinct = lengths.dictionary_encode()
    made = [header(length) for length in distinct.dictionary.to_pylist()]
    return pa.array(made, pa.binary()).take(distinct.indices)


def _delimited(length: int) -> bytes:
    return _INNER + _varint(length)


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _varints(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Encodes int64 values as varints.

    Returns:
      uint8[bytes] of all values, and int32[values + 1] with the offset of each and the
      total.
    """
    rest = values.astype(np.int64, copy=False).view(np.uint64)
    columns = []
    lengths = np.ones(len(rest), np.int32)
    while True:
        columns.append((rest & np.uint64(0x7F)).astype(np.uint8))
        rest = rest >> np.uint64(7)
        more = rest != 0
        if not more.any():
            break
        columns[-1] |= more.astype(np.uint8) << 7
        lengths += more
    used = np.arange(len(columns)) < lengths[:, None]
    bounds = np.zeros(len(values) + 1, np.int32)
    np.cumsum(lengths, out=bounds[1:])
    return np.stack(columns, axis=1)[used], bounds
