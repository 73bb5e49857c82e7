"""Converts the columns of a file to features: lists of int64, float32 or bytes.

Integers and decimals without a fraction become int64, other numbers float32 (in an INT
column, numbers must be whole), booleans 0 and 1; text stays UTF-8, times and dates
become text. A row of a list column becomes a feature with that row's number of values.
A missing value becomes a null list; `records.encode` writes it as a feature without
values.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from strategos.components.data_files.values import (
    numerals,
    rounding,
    spelling,
    whole_numbers,
)
from strategos.components.data_files.values.arrow_types import (
    is_bytes,
    is_list,
    is_text,
    is_time,
)
from strategos.components.data_files.values.kinds import Kind

ARROW = {
    Kind.UNKNOWN: pa.binary(),
    Kind.INT: pa.int64(),
    Kind.FLOAT: pa.float32(),
    Kind.BYTES: pa.binary(),
}
"""Arrow type of a feature's values."""


class BadValueError(ValueError):
    """A value that its column's kind cannot hold.

    Attributes:
      column: Name of the column.
      row: Index of the row in the batch.
      value: The value received.
      reason: Why the value is rejected; "" if it only has another kind, e.g. text.
    """

    def __init__(self, column: str, row: int, value: object, reason: str = ""):
        super().__init__(f"{column}, row {row}: {value!r} {reason}")
        self.column = column
        self.row = row
        self.value = value
        self.reason = reason


def kind_of(data_type: pa.DataType) -> Kind:
    """The kind for columns of an Arrow type; of a list type, the kind of its values.

    Raises:
      TypeError: A tf.Example cannot hold values of the type, e.g. structs.
    """
    if is_list(data_type):
        if is_list(data_type.value_type):
            raise TypeError(data_type)
        return kind_of(data_type.value_type)
    if types.is_dictionary(data_type):
        return kind_of(data_type.value_type)
    if types.is_null(data_type):
        return Kind.UNKNOWN
    if types.is_integer(data_type) or types.is_boolean(data_type):
        return Kind.INT
    if types.is_decimal(data_type):
        return Kind.FLOAT if data_type.scale > 0 else Kind.INT
    if types.is_floating(data_type):
        return Kind.FLOAT
    if is_bytes(data_type) or is_text(data_type) or is_time(data_type):
        return Kind.BYTES
    raise TypeError(data_type)


def convert(
    batch: pa.RecordBatch,
    kinds: Mapping[str, Kind],
    nulls: numerals.Nulls = numerals.ONLY_EMPTY,
    watch: rounding.RoundingWatch | None = None,
) -> pa.RecordBatch:
    """Converts columns to lists of int64, float32 or binary, as a tf.Example has them.

    Args:
      batch: Columns as the file has them. A column of `kinds` that `batch` lacks counts
        as missing in all rows.
      kinds: Kind by column name; UNKNOWN for a column without any value.
      nulls: Spellings of a missing value in text that is read as numbers. Default:
        only empty fields.
      watch: Looks for numbers that float32 changes.

    Returns:
      Columns in the order of `kinds`, with one list per row; null if the value is
      missing.

    Raises:
      BadValueError: A value is not of its column's kind.
    """
    columns = []
    for name, kind in kinds.items():
        index = batch.schema.get_field_index(name)
        column = pa.nulls(batch.num_rows) if index < 0 else batch.column(index)
        columns.append(_to_lists(name, column, kind, nulls, watch))
    return pa.RecordBatch.from_arrays(columns, list(kinds))


def is_missing(column: pa.ListArray) -> np.ndarray:
    """Whether each row of a feature has no value, bool[rows]."""
    lengths = pc.fill_null(pc.list_value_length(column), 0)
    return lengths.to_numpy(zero_copy_only=False) == 0


def first_missing(column: pa.ListArray) -> int | None:
    """Index of the first row of a feature without any value; None without one."""
    missing = is_missing(column)
    return int(np.argmax(missing)) if missing.any() else None


def first_false(values: pa.Array, holds: Callable[[pa.Array], bool]) -> int:
    """Index of the first value for which `holds` is False, by binary search.

    Mostly it is among the first ones, so the searched slices begin short.

    Args:
      values: At least one value for which `holds` is False.
      holds: True for a slice if it is true for each value of the slice.
    """
    start, stop = 0, 1
    while stop < len(values) and holds(values.slice(start, stop - start)):
        start, stop = stop, 2 * stop + 1
    stop = min(stop, len(values))
    while stop - start > 1:
        middle = (start + stop) // 2
        if holds(values.slice(start, middle - start)):
            start = middle
        else:
            stop = middle
    return start


def _to_lists(
    name: str,
    column: pa.Array,
    kind: Kind,
    nulls: numerals.Nulls,
    watch: rounding.RoundingWatch | None,
) -> pa.ListArray:
    if is_list(column.type):
        return _from_lists(name, column, kind, watch)
    if types.is_dictionary(column.type):
        column = column.dictionary_decode()
    written = column
    if kind != Kind.BYTES and is_text(column.type):
        column = nulls.pointed(column)
    try:
        numbers = _read(column, kind, nulls)
    except pa.ArrowInvalid as error:
        row = first_false(column, lambda part: _is_read(part, kind, nulls))
        raise BadValueError(name, row, written[row].as_py()) from error
    if watch and types.is_floating(numbers.type):
        watch.see(name, column, numbers)
    values = numbers.cast(ARROW[kind], safe=False)
    if not values.null_count:
        offsets = pa.array(np.arange(len(values) + 1, dtype=np.int32))
        return pa.ListArray.from_arrays(offsets, values)
    missing = values.is_null().to_numpy(zero_copy_only=False)
    return _lists(~missing, missing, values.drop_null())


def _from_lists(
    name: str, column: pa.Array, kind: Kind, watch: rounding.RoundingWatch | None
) -> pa.ListArray:
    counts = pc.fill_null(pc.list_value_length(column), 0)
    lengths = counts.to_numpy(zero_copy_only=False)
    values = column.flatten()
    if types.is_dictionary(values.type):
        values = values.dictionary_decode()
    _check_whole(name, column, lengths, values)
    nulls = numerals.ONLY_EMPTY
    try:
        numbers = _read(values, kind, nulls)
    except pa.ArrowInvalid as error:
        index = first_false(values, lambda part: _is_read(part, kind, nulls))
        row = _row_of(lengths, index)
        raise BadValueError(name, row, values[index].as_py()) from error
    _check_whole(name, column, lengths, numbers)  # "" among texts of numbers is none
    if watch and types.is_floating(numbers.type):
        watch.see(name, values, numbers, functools.partial(_row_of, lengths))
    missing = column.is_null().to_numpy(zero_copy_only=False)
    return _lists(lengths, missing, numbers.cast(ARROW[kind], safe=False))


def _check_whole(
    name: str, column: pa.Array, lengths: np.ndarray, values: pa.Array
) -> None:
    """Rejects a list that lacks one of its values.

    Args:
      name: Name of the column.
      column: The lists.
      lengths: Values of each row.
      values: The values of all rows.
    """
    if values.null_count:
        row = _row_of(lengths, _first(pc.is_null(values)))
        raise BadValueError(name, row, column[row].as_py(), "a list with a gap")


def _lists(lengths: np.ndarray, missing: np.ndarray, values: pa.Array) -> pa.ListArray:
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return pa.ListArray.from_arrays(
        pa.array(offsets, mask=np.append(missing, False)), values
    )


def _read(values: pa.Array, kind: Kind, nulls: numerals.Nulls) -> pa.Array:
    """Reads values (no lists) as int64, float64 or binary; missing ones are null.

    Raises:
      pa.ArrowInvalid: A value is not of this kind.
    """
    if values.null_count == len(values):  # has any Arrow type
        return pa.nulls(len(values), ARROW[kind])
    if kind == Kind.BYTES:
        return spelling.text_of(values)
    if is_text(values.type):
        if kind == Kind.INT:
            return whole_numbers.read(values, nulls)
        return numerals.read(values, kind, nulls)
    if is_bytes(values.type) or is_time(values.type):
        raise pa.ArrowInvalid(f"{values.type} is not {kind.name}")
    if types.is_floating(values.type):
        values = numerals.of_floats(values)
    if kind == Kind.INT:
        return values.cast(pa.int64())
    if types.is_decimal(values.type):
        return numerals.of_decimals(values)
    return values.cast(pa.float64(), safe=False)


def _is_read(values: pa.Array, kind: Kind, nulls: numerals.Nulls) -> bool:
    try:
        _read(values, kind, nulls)
    except pa.ArrowInvalid:
        return False
    return True


def _first(flags: pa.BooleanArray) -> int:
    return int(np.argmax(flags.to_numpy(zero_copy_only=False)))


def _row_of(lengths: np.ndarray, value_index: int) -> int:
    return int(np.searchsorted(np.cumsum(lengths), value_index, side="right"))
