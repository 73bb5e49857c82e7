"""Serializes feature columns to tf.Examples, one column at a time.

The module writes protobuf's wire format from whole columns instead of row by row. A
feature is a header, which depends only on the length of the values' bytes, followed by
these bytes; one buffer holds the values of all rows. A batch takes a few vector
operations per column. Equal rows give equal bytes, because features are in the order of
the columns; the order of a protobuf map differs between processes.

The wire format of a tf.Example nests, from the inside: a list of values (packed int64
or float32, or bytes), the feature, the map entry of name and feature, the features, the
example.

A missing value is a feature without a list, as TFX's ExampleGens for Parquet, Avro and
BigQuery write it; TFDV counts it as missing. TFX's CsvExampleGen writes an empty list
of the column's type instead: parsers read the same, but TFDV counts it as present.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

_INNER = b"\x0a"  # field 1, length-delimited: a value, an entry, its key, the features
_FEATURE = b"\x12"  # field 2 of a map entry
_MISSING = -1  # the length of a missing value
_BYTES_LIST, _FLOAT_LIST, _INT64_LIST = b"\x0a", b"\x12", b"\x1a"


def serialize(features: pa.RecordBatch) -> pa.BinaryArray:
    """Serializes a batch to tf.Examples.

    Args:
      features: Columns of lists of int64, float32 or binary; null for a missing value.

    Returns:
      binary[rows], one serialized tf.Example per row.
    """
    pieces = []
    for name, column in zip(features.schema.names, features.columns, strict=True):
        pieces += _entries(name.encode(), column)
    return join(headers(_delimited, *pieces), *pieces)


def join(*pieces: pa.BinaryArray) -> pa.BinaryArray:
    """Concatenates the pieces of each row."""
    return pc.binary_join_element_wise(*pieces, b"")


def headers(header: Callable[[int], bytes], *pieces: pa.BinaryArray) -> pa.BinaryArray:
    """The header of each row.

    Args:
      header: Returns the header for a length in bytes; called once per distinct length.
      *pieces: binary[rows]; the length of a row is that of its pieces together.
    """
    lengths = functools.reduce(pc.add, map(pc.binary_length, pieces))
    return _of_lengths(lengths, header)


def _entries(
    name: bytes, column: pa.ListArray
) -> tuple[pa.BinaryArray, pa.BinaryArray]:
    """Headers and values of one feature, one of each per row."""
    offsets = column.offsets.to_numpy()
    values = column.values
    if types.is_int64(values.type):
        data, bounds = _varints(values.to_numpy())
        tag, packed = _INT64_LIST, True
    elif types.is_float32(values.type):
        data = values.to_numpy().astype("<f4", copy=False)
        bounds = np.arange(0, 4 * len(data) + 1, 4, np.int32)
        tag, packed = _FLOAT_LIST, True
    elif not column.null_count and (np.diff(offsets) == 1).all():
        # One header for the feature and its only value saves a pass over the values.
        values = column.flatten()
        return headers(_single_header(name), values), values
    else:
        _, ends, content = join(headers(_delimited, values), values).buffers()
        data, bounds = content or b"", np.frombuffer(ends, np.int32)
        tag, packed = _BYTES_LIST, False
    payloads = pa.Array.from_buffers(
        pa.binary(),
        len(column),
        [None, pa.py_buffer(bounds[offsets]), pa.py_buffer(data)],
    )

    def header(length: int) -> bytes:
        if length == _MISSING:
            return _entry_header(name, b"", 0)
        within = _delimited(length) if packed and length else b""
        return _entry_header(name, tag + _varint(len(within) + length) + within, length)

    lengths = pc.binary_length(payloads)
    if column.null_count:
        lengths = pc.if_else(
            column.is_valid(), lengths, pa.scalar(_MISSING, pa.int32())
        )
    return _of_lengths(lengths, header), payloads


def _single_header(name: bytes) -> Callable[[int], bytes]:
    """The header for the length of a feature's only value, which is bytes."""

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
