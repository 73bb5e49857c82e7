"""The columns of a file as features: lists of int64, float32 or bytes.

Ints become int64, floats and decimals float32, booleans 0 and 1; text stays UTF-8,
times and dates become text. A missing value is an empty list, as in TFX's own
CsvExampleGen; a list column is a feature with as many values as the row has.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from strategos.components.example_gen.columns import Kind

_ARROW = {Kind.INT: pa.int64(), Kind.FLOAT: pa.float32(), Kind.BYTES: pa.binary()}
_SAMPLE = 256


class BadValueError(ValueError):
    """A value that its column's kind cannot hold.

    Attributes:
      column: Its name.
      row: Index of the row in the batch.
      value: What stands there.
      reason: What is wrong with it, where the kind is not.
    """

    def __init__(self, column: str, row: int, value: object, reason: str = ""):
        super().__init__(f"{column}, row {row}: {value!r} {reason}")
        self.column = column
        self.row = row
        self.value = value
        self.reason = reason


def kind_of(data_type: pa.DataType) -> Kind:
    """The kind for columns of an Arrow type.

    Raises:
      TypeError: A tf.Example cannot hold such values.
    """
    if _is_list(data_type):
        if _is_list(data_type.value_type):
            raise TypeError(data_type)
        return kind_of(data_type.value_type)
    if types.is_dictionary(data_type):
        return kind_of(data_type.value_type)
    if types.is_null(data_type):
        return Kind.UNKNOWN
    if types.is_integer(data_type) or types.is_boolean(data_type):
        return Kind.INT
    if types.is_floating(data_type) or types.is_decimal(data_type):
        return Kind.FLOAT
    if _is_bytes(data_type) or _is_text(data_type) or _is_time(data_type):
        return Kind.BYTES
    raise TypeError(data_type)


def widen(kind: Kind, text: pa.StringArray) -> Kind:
    """The narrowest kind from `kind` on that holds all values of `text`.

    Whole numbers beyond int64 stay text, as in TFX: as floats they would lose digits.
    """
    if kind == Kind.BYTES or text.null_count == len(text):
        return kind
    for sample in (text.slice(0, _SAMPLE), text):  # failing is slow on long arrays
        while kind < Kind.BYTES and not _holds(kind, sample):
            kind = Kind(kind + 1)
    return kind


def convert(batch: pa.RecordBatch, kinds: Mapping[str, Kind]) -> pa.RecordBatch:
    """The columns as lists of int64, float32 or binary: what a tf.Example holds.

    A column of `kinds` that the batch lacks is missing in all rows.

    Raises:
      BadValueError: A value is not of its column's kind.
    """
    columns = []
    for name, kind in kinds.items():
        index = batch.schema.get_field_index(name)
        column = pa.nulls(batch.num_rows) if index < 0 else batch.column(index)
        columns.append(_to_lists(name, column, kind))
    return pa.RecordBatch.from_arrays(columns, list(kinds))


def to_text(column: pa.Array) -> pa.Array:
    """A flat column's values as binary: text as written, numbers in decimal."""
    if types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if _is_bytes(column.type) or _is_text(column.type):
        return column.cast(pa.binary())
    return column.cast(pa.string()).cast(pa.binary())


def _to_lists(name: str, column: pa.Array, kind: Kind) -> pa.ListArray:
    if not _is_list(column.type):
        lengths = pc.is_valid(column).to_numpy(zero_copy_only=False)
        values = column.drop_null() if column.null_count else column
    else:
        counts = pc.fill_null(pc.list_value_length(column), 0)
        lengths = counts.to_numpy(zero_copy_only=False)
        values = column.flatten()
        if values.null_count:
            row = _row_of(lengths, _first(pc.is_null(values)))
            raise BadValueError(name, row, column[row].as_py(), "a list with a gap")
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    try:
        values = _cast(values, kind)
    except pa.ArrowInvalid as error:
        index = _first_bad(values, kind)
        row = _row_of(lengths, index)
        raise BadValueError(name, row, values[index].as_py()) from error
    return pa.ListArray.from_arrays(pa.array(offsets), values)


def _cast(values: pa.Array, kind: Kind) -> pa.Array:
    """Flat values without nulls, in the Arrow type of `kind`.

    Raises:
      pa.ArrowInvalid: A value is not of this kind.
    """
    if types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if kind == Kind.BYTES:
        return to_text(values)
    if _is_bytes(values.type) or _is_time(values.type):
        raise pa.ArrowInvalid(f"{values.type} is not {kind.name}")
    if kind == Kind.INT and kind_of(values.type) == Kind.FLOAT:
        raise pa.ArrowInvalid(f"{values.type} is not {kind.name}")
    through = pa.float64() if kind == Kind.FLOAT else pa.int64()
    try:
        values = values.cast(through, safe=kind == Kind.INT)
    except pa.ArrowInvalid:
        if not _is_text(values.type):
            raise
        values = pc.utf8_trim_whitespace(values).cast(through)
    return values.cast(_ARROW[kind])


def _holds(kind: Kind, text: pa.StringArray) -> bool:
    if kind == Kind.UNKNOWN:
        return text.null_count == len(text)
    try:
        _cast(text.drop_null(), kind)
    except pa.ArrowInvalid:
        return False
    if kind == Kind.FLOAT:
        long = pc.match_substring_regex(text, r"^\s*-?\d{19,}\s*$")
        return not pc.any(long).as_py()
    return True


def _first_bad(values: pa.Array, kind: Kind) -> int:
    """Index of the first value that does not convert, found by halving."""
    start, stop = 0, len(values)
    while stop - start > 1:
        middle = (start + stop) // 2
        try:
            _cast(values.slice(start, middle - start), kind)
            start = middle
        except pa.ArrowInvalid:
            stop = middle
    return start


def _first(flags: pa.BooleanArray) -> int:
    return int(np.argmax(flags.to_numpy(zero_copy_only=False)))


def _row_of(lengths: np.ndarray, value_index: int) -> int:
    return int(np.searchsorted(np.cumsum(lengths), value_index, side="right"))


def _is_list(data_type: pa.DataType) -> bool:
    return (
        types.is_list(data_type)
        or types.is_large_list(data_type)
        or types.is_fixed_size_list(data_type)
    )


def _is_time(data_type: pa.DataType) -> bool:
    return types.is_temporal(data_type) and not types.is_duration(data_type)


def _is_text(data_type: pa.DataType) -> bool:
    return types.is_string(data_type) or types.is_large_string(data_type)


def _is_bytes(data_type: pa.DataType) -> bool:
    return (
        types.is_binary(data_type)
        or types.is_large_binary(data_type)
        or types.is_fixed_size_binary(data_type)
    )
