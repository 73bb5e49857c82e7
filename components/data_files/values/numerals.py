"""Parses text as numbers and missing values.

A text is a number if Python's `int` or `float` parses it, as in TFX's CsvExampleGen:
surrounding spaces and a plus sign are allowed, hexadecimal digits are not. One
exception: digits grouped by underscores (`1_000`) stay text.
"""

from __future__ import annotations

import dataclasses
import functools
import re

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from strategos.components.data_files.values.kinds import Kind

_SPACES = r"[ \t\n\v\f\r]*"
_DIGITS = r"(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
_NUMBER = rf"^{_SPACES}[+-]?(?:{_DIGITS}|(?i:inf|infinity|nan)){_SPACES}$"
_WHOLE = rf"^{_SPACES}[+-]?[0-9]+{_SPACES}$"
_LEADING_ZEROS = rf"^{_SPACES}[+-]?0[0-9]+{_SPACES}$"
_NAN = rf"^{_SPACES}[+-]?(?i:nan){_SPACES}$"
_INFINITE = rf"^{_SPACES}[+-]?(?i:inf|infinity){_SPACES}$"
_SEPARATED = (
    r"\s*[+-]?[0-9]{1,3}(?:(?:,[0-9]{3})+(?:\.[0-9]+)?|(?:\.[0-9]{3})*,[0-9]+)\s*"
)
_WITH_UNIT = r"\s*([+-]?[$€£]\s*[0-9.,]*[0-9]|[+-]?[0-9.,]*[0-9]\s*[%€$£])\s*"
_INT64 = 2**63
_EXACT = 2**53  # float64 represents all whole numbers up to here
_EXACT_POWER = 22  # and all powers of ten


@dataclasses.dataclass(frozen=True)
class Nulls:
    """How the fields of a column of numbers are written: missing values, decimal mark.

    An empty field, or a field of spaces only, is always missing in such a column.

    Attributes:
      spellings: Texts as in `data.null_values`; surrounding spaces are ignored.
      decimal: The decimal mark, `.` or `,`.
    """

    spellings: tuple[str, ...] = ()
    decimal: str = "."

    @functools.cached_property
    def _spelled(self) -> pa.Array:
        """The spellings as an array; made late, as pyarrow imports pandas for it."""
        return pa.array({"", *(text.strip() for text in self.spellings)}, pa.string())

    @functools.cached_property
    def read_as_numbers(self) -> bool:
        """Whether a spelling is also a finite number, such as -999."""
        finite = pc.and_not(
            pc.match_substring_regex(self._spelled, _NUMBER),
            pc.match_substring_regex(self._spelled, rf"{_NAN}|{_INFINITE}"),
        )
        return pc.any(finite).as_py()

    def hide(self, text: pa.Array) -> pa.Array:
        """Returns `text` (strings) with null in place of each spelling."""
        trimmed = pc.ascii_trim_whitespace(text)
        spelled = pc.is_in(trimmed, value_set=self._spelled.cast(text.type))
        # Not `if_else`: pyarrow 18.1 gives it wrong bytes of a slice of strings.
        return pc.replace_with_mask(text, spelled, pa.scalar(None, text.type))

    def pointed(self, text: pa.Array) -> pa.Array:
        """Text of numbers (strings) with `.` as its decimal mark.

        If the mark is `,`, spellings of a missing value become null, and `.` becomes
        `,`: `1.234` is no number then, as it may be 1234.
        """
        if self.decimal == ".":
            return text
        marked = pc.replace_substring(self.hide(text), ".", "\0")
        pointed = pc.replace_substring(marked, self.decimal, ".")
        return pc.replace_substring(pointed, "\0", self.decimal)


ONLY_EMPTY = Nulls()


def read(text: pa.Array, kind: Kind, nulls: Nulls = ONLY_EMPTY) -> pa.Array:
    """Parses strings as numbers.

    Args:
      text: string[rows]; null is missing.
      kind: INT or FLOAT.
      nulls: Further spellings of a missing value. Default: only empty fields.

    Returns:
      int64[rows] or float64[rows], null where a value is missing.

    Raises:
      pa.ArrowInvalid: A field is not a number of this kind.
    """
    if not nulls.read_as_numbers:  # text that parses at once contains no spelling
        try:
            numbers = _read(text, kind)
            if not (kind == Kind.FLOAT and pc.any(pc.is_nan(numbers)).as_py()):
                return numbers
        except pa.ArrowInvalid:
            pass
    trimmed = pc.ascii_trim_whitespace(nulls.hide(text))
    plain = pc.replace_substring_regex(trimmed, r"^\+([0-9.iInN])", r"\1")
    numbers = _read(plain, kind)
    if kind == Kind.FLOAT and pc.any(pc.is_nan(numbers)).as_py():
        unread = plain.filter(pc.is_nan(numbers))
        if not pc.all(pc.match_substring_regex(unread, _NAN)).as_py():
            raise pa.ArrowInvalid("not a number")  # Arrow parses `nan(1)` as NaN
    return numbers


def identifies(text: pa.Array, numbers: pa.Array) -> bool:
    """Whether a whole number in `text` is an identifier, damaged by parsing it.

    Parsing drops leading zeros (`00501`), and a float rounds whole numbers beyond
    int64; TFX keeps the latter as text, too.

    Args:
      text: string[rows].
      numbers: The result of `read` for `text`.
    """
    suspects = pc.and_(pc.less(text, "1"), pc.greater(pc.binary_length(text), 1))
    suspects = pc.and_(suspects, pc.is_valid(numbers))
    if types.is_floating(numbers.type):
        suspects = pc.and_(suspects, pc.equal(pc.floor(numbers), numbers))
        large = pc.greater_equal(pc.abs(numbers), float(_INT64))
        if pc.any(large).as_py():
            digits = text.filter(large)
            digits = digits.filter(pc.match_substring_regex(digits, _WHOLE))
            if any(not -_INT64 <= int(d) < _INT64 for d in digits.to_pylist()):
                return True
    suspects = text.filter(suspects)
    return bool(pc.any(pc.match_substring_regex(suspects, _LEADING_ZEROS)).as_py())


def count(text: pa.Array) -> int:
    """How many of the strings are numbers."""
    return pc.sum(pc.match_substring_regex(text, _NUMBER)).as_py() or 0


def why_not(text: str) -> str:
    """Why `identifies` is true for `text`, as half a sentence; "" if it is not."""
    value = pa.array([text])
    if _matches(value, _LEADING_ZEROS)[0]:
        return "has leading zeros, as identifiers have"
    if _matches(value, _WHOLE)[0]:
        return "is beyond int64"
    return ""


def has_separators(text: str) -> bool:
    """Whether a text is a number with separators of thousands, or a decimal comma."""
    return re.fullmatch(_SEPARATED, text) is not None


def has_unit(text: str) -> bool:
    """Whether a text is a number with a sign of percent or of a currency."""
    return re.fullmatch(_WITH_UNIT, text) is not None


def of_floats(values: pa.Array) -> pa.DoubleArray:
    """Converts floating numbers of any width to float64."""
    if types.is_float16(values.type):  # Arrow does not cast float16
        missing = values.is_null().to_numpy(zero_copy_only=False)
        halves = values.to_numpy(zero_copy_only=False)
        return pa.array(halves.astype(np.float64), mask=missing)
    return values.cast(pa.float64())


def of_decimals(values: pa.Array) -> pa.DoubleArray:
    """Converts decimals to the nearest float64; Arrow's cast is off by a rounding."""
    scale = values.type.scale
    if types.is_decimal128(values.type) and 0 <= scale <= _EXACT_POWER:
        words = np.frombuffer(values.buffers()[1], np.int64)
        words = words[2 * values.offset : 2 * (values.offset + len(values))]
        unscaled, high = words[::2], words[1::2]
        missing = values.is_null().to_numpy(zero_copy_only=False)
        exact = (high == unscaled >> 63) & (unscaled >= -_EXACT) & (unscaled <= _EXACT)
        if (exact | missing).all():
            return pa.array(unscaled / 10.0**scale, mask=missing)
    return pa.array([None if v is None else float(v) for v in values.to_pylist()])


def _read(text: pa.Array, kind: Kind) -> pa.Array:
    """Parses numbers as Arrow does, except hexadecimal ones.

    Raises:
      pa.ArrowInvalid: A string is not a number of this kind.
    """
    if kind == Kind.FLOAT:
        return text.cast(pa.float64())
    numbers = text.cast(pa.int64())
    zero = pc.starts_with(text, "0")
    if pc.any(pc.match_substring_regex(text.filter(zero), "^0[xX]")).as_py():
        raise pa.ArrowInvalid("hexadecimal")
    return numbers


def _matches(text: pa.Array, pattern: str) -> np.ndarray:
    return _to_numpy(pc.match_substring_regex(text, pattern))


def _to_numpy(flags: pa.BooleanArray) -> np.ndarray:
    """Converts flags to NumPy; null, the flag of a missing value, becomes False."""
    return pc.fill_null(flags, False).to_numpy(zero_copy_only=False)
