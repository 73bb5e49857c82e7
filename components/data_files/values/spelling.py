"""One text for each value, whatever the type, unit or zone that a file stores it in.

`text_of` gives the text of a BYTES feature, `key_of` the text of a split key.
Equal whole numbers have the same text as integers, doubles and decimals.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from strategos.components.data_files.values import numerals
from strategos.components.data_files.values.arrow_types import is_bytes, is_text
from strategos.components.data_files.values.kinds import Kind

_INTEGER = "^(?:0|-?[1-9][0-9]*)$"
_WHOLE = re.compile(rb"([+-]?)0*([0-9]+)(?:\.0*)?")
_WHOLE_AS_TEXT = r"^[ \t\n\v\f\r]*[+-]?(?:0|[1-9][0-9]*)(?:\.0*)?[ \t\n\v\f\r]*$"
_INT64 = 2.0**63


def text_of(column: pa.Array) -> pa.BinaryArray:
    """The text of each value of a column without lists.

    Text and bytes are unchanged. A number is its shortest decimal, a whole number is
    written as an integer: 5 for 5, 5.0 and the decimal 5.00. An instant is in UTC, such
    as `2024-03-01 12:00:00Z`; without `Z` if the file has no zone. The fraction of a
    second of an instant or a time of day ends with the last digit that is not 0.

    Args:
      column: Any type that a tf.Example can hold.

    Returns:
      binary[rows], null where a value is missing.
    """
    if types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if types.is_floating(column.type):
        return _floats(column)
    if types.is_decimal(column.type):
        return _each_once(column, _of_decimal)
    if is_bytes(column.type) or is_text(column.type):
        return column.cast(pa.binary())
    if types.is_timestamp(column.type) or types.is_time(column.type):
        return _times(column)
    return column.cast(pa.string()).cast(pa.binary())


def key_of(column: pa.Array, kind: Kind, nulls: numerals.Nulls) -> pa.BinaryArray:
    """The text of each value by which `data.split` divides rows.

    Equal values have equal keys: 5 for ` 5`, `+5`, `5.0` and `5e0` in a column of
    numbers, of any type. Text is unchanged, except whole numbers without leading zeros:
    a column that later becomes text keeps its keys.

    Args:
      column: A column without lists, as the file has it.
      kind: The column's kind.
      nulls: Spellings of a missing value, for a column of numbers.

    Returns:
      binary[rows], null where a value is missing.
    """
    if types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if types.is_boolean(column.type) and kind != Kind.BYTES:
        column = column.cast(pa.int64())
    encoded = (column if is_text(column.type) else text_of(column)).dictionary_encode()
    values = encoded.dictionary
    if kind in (Kind.INT, Kind.FLOAT) and is_text(values.type):
        values = nulls.pointed(nulls.hide(values))
    wanted = ~_matches(values, _INTEGER)
    if kind == Kind.BYTES:
        wanted &= _matches(values, _WHOLE_AS_TEXT)
    values = values.cast(pa.binary())
    if wanted.any():
        keys = values.to_pylist()
        for index in np.flatnonzero(wanted):
            keys[index] = None if keys[index] is None else _shortest(keys[index])
        values = pa.array(keys, pa.binary())
    return values.take(encoded.indices)


def _shortest(number: bytes) -> bytes:
    """The shortest decimal of a number; an integer if it is whole, e.g. 5 for 5e0."""
    number = number.strip()
    whole = _WHOLE.fullmatch(number)
    if whole:
        sign, digits = whole.groups()
        return b"-" + digits if sign == b"-" and digits != b"0" else digits
    value = float(number)
    return str(int(value) if value.is_integer() else value).encode()


def _floats(column: pa.Array) -> pa.BinaryArray:
    """The shortest decimal that is this number in the type of the column."""
    if types.is_float16(column.type):  # Arrow does not cast float16 to text
        column = numerals.of_floats(column).cast(pa.float32())
    encoded = column.dictionary_encode()
    texts = encoded.dictionary.cast(pa.string()).to_pylist()
    pairs = zip(texts, encoded.dictionary.to_pylist(), strict=True)
    spelled = pa.array([_of_float(*pair) for pair in pairs], pa.binary())
    return spelled.take(encoded.indices)


def _of_float(text: str, value: float) -> bytes:
    whole = math.isfinite(value) and value.is_integer() and abs(value) < _INT64
    return (str(int(value)) if whole else text).encode()


def _of_decimal(value: Any) -> bytes:
    text = format(value, "f")
    return (text.rstrip("0").rstrip(".") if "." in text else text).encode()


def _times(column: pa.Array) -> pa.BinaryArray:
    """Instants or times of day, whatever their unit and zone."""
    zone = types.is_timestamp(column.type) and column.type.tz
    if zone:  # the stored number counts from the epoch in UTC
        column = column.cast(pa.int64()).cast(pa.timestamp(column.type.unit))
    text = column.cast(pa.string())
    if column.type not in (pa.timestamp("s"), pa.time32("s")):
        text = pc.ascii_rtrim(pc.ascii_rtrim(text, characters="0"), characters=".")
    if zone:
        text = pc.binary_join_element_wise(text, "Z", "")
    return text.cast(pa.binary())


def _each_once(column: pa.Array, spell: Callable[[Any], bytes]) -> pa.BinaryArray:
    """Calls `spell` for each distinct value."""
    encoded = column.dictionary_encode()
    spelled = [spell(value) for value in encoded.dictionary.to_pylist()]
    return pa.array(spelled, pa.binary()).take(encoded.indices)


def _matches(values: pa.Array, pattern: str) -> np.ndarray:
    mask = pc.fill_null(pc.match_substring_regex(values, pattern), False)
    return mask.to_numpy(zero_copy_only=False)
