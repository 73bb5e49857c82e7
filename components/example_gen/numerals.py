"""Text as numbers: what reads as one, and what reads as a missing value.

A number is what Python's `int` and `float` read, as in TFX's CsvExampleGen: spaces
around it and a plus sign are allowed, hexadecimal digits are not. One departure:
digits grouped by underscores (`1_000`) stay text.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strategos.components.example_gen.columns import Kind

_SPACES = r"[ \t\n\v\f\r]*"
_DIGITS = r"(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
_NUMBER = rf"^{_SPACES}[+-]?(?:{_DIGITS}|(?i:inf|infinity|nan)){_SPACES}$"
_WHOLE = rf"^{_SPACES}[+-]?[0-9]+{_SPACES}$"
_LEADING_ZEROS = rf"^{_SPACES}[+-]?0[0-9]+{_SPACES}$"
_NAN = rf"^{_SPACES}[+-]?(?i:nan){_SPACES}$"
_INFINITE = rf"^{_SPACES}[+-]?(?i:inf|infinity){_SPACES}$"
_INT64 = 2**63


@dataclasses.dataclass(frozen=True)
class Nulls:
    """The spellings of a missing value in a column of numbers.

    An empty field, or one of spaces alone, is missing there in any case.

    Attributes:
      spelled: The spellings, without spaces around them.
      read_as_numbers: Whether one of them would otherwise be a finite number.
    """

    spelled: pa.Array
    read_as_numbers: bool

    @classmethod
    def of(cls, spellings: Iterable[str]) -> Nulls:
        """From the texts of `data.null_values`."""
        spelled = pa.array({"", *(text.strip() for text in spellings)}, pa.string())
        finite = pc.and_not(
            pc.match_substring_regex(spelled, _NUMBER),
            pc.match_substring_regex(spelled, rf"{_NAN}|{_INFINITE}"),
        )
        return cls(spelled, pc.any(finite).as_py())

    def hide(self, text: pa.Array) -> pa.Array:
        """`text` with null in place of each spelling."""
        trimmed = pc.ascii_trim_whitespace(text)
        spelled = pc.is_in(trimmed, value_set=self.spelled.cast(text.type))
        # Not `if_else`: pyarrow 18.1 gives it wrong bytes of a slice of strings.
        return pc.replace_with_mask(text, spelled, pa.scalar(None, text.type))


ONLY_EMPTY = Nulls.of(())


def read(text: pa.Array, kind: Kind, nulls: Nulls = ONLY_EMPTY) -> pa.Array:
    """The numbers in `text`, an array of strings.

    Args:
      text: The fields; null is missing.
      kind: INT or FLOAT.
      nulls: Spellings that are missing too.

    Returns:
      int64 or float64, as long as `text`, null where a value is missing.

    Raises:
      pa.ArrowInvalid: A field is no number of this kind.
    """
    if not nulls.read_as_numbers:  # then none is in what can be read as it stands
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
            raise pa.ArrowInvalid("not a number")  # Arrow takes `nan(1)` for one
    return numbers


def identifies(text: pa.Array, numbers: pa.Array) -> bool:
    """Whether a whole number in `text` would lose something as a number.

    Leading zeros (`00501`), and digits beyond int64, which a float would round: TFX
    keeps the latter as text too.

    Args:
      text: Strings.
      numbers: What `read` made of them.
    """
    suspects = pc.and_(pc.less(text, "1"), pc.greater(pc.binary_length(text), 1))
    suspects = pc.and_(suspects, pc.is_valid(numbers))
    if pa.types.is_floating(numbers.type):
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
    """How many of the strings read as numbers."""
    return pc.sum(pc.match_substring_regex(text, _NUMBER)).as_py() or 0


def why_not(text: str) -> str:
    """Why `identifies` holds for `text`; "" where it does not read as a number."""
    value = pa.array([text])
    if _matches(value, _LEADING_ZEROS)[0]:
        return "has leading zeros, as identifiers have"
    if _matches(value, _WHOLE)[0]:
        return "is beyond int64"
    return ""


def first_rounded(column: pa.Array, nulls: Nulls = ONLY_EMPTY) -> int | None:
    """Index of the first value that float32 makes another one.

    Of whole numbers that is each which float32 has not; of others, one that becomes
    infinite.

    Args:
      column: Integers or strings that `read` as FLOAT.
      nulls: Spellings of a missing value.
    """
    if pa.types.is_integer(column.type):
        return _first(_changed(column.cast(pa.float64(), safe=False)))
    text = nulls.hide(column)
    numbers = read(text, Kind.FLOAT)
    whole = _matches(text, _WHOLE)
    infinite = _to_numpy(pc.is_inf(numbers.cast(pa.float32(), safe=False)))
    return _first((whole & _changed(numbers)) | (infinite & ~_matches(text, _INFINITE)))


def _read(text: pa.Array, kind: Kind) -> pa.Array:
    """As Arrow reads numbers, but for hexadecimal ones.

    Raises:
      pa.ArrowInvalid: A string is no number of this kind.
    """
    if kind == Kind.FLOAT:
        return text.cast(pa.float64())
    numbers = text.cast(pa.int64())
    zero = pc.starts_with(text, "0")
    if pc.any(pc.match_substring_regex(text.filter(zero), "^0[xX]")).as_py():
        raise pa.ArrowInvalid("hexadecimal")
    return numbers


def _changed(numbers: pa.DoubleArray) -> np.ndarray:
    """Which of the numbers float32 does not have; a missing one is not."""
    values = numbers.to_numpy(zero_copy_only=False)
    with np.errstate(over="ignore"):
        changed = values.astype(np.float32) != values
    return changed & ~np.isnan(values)


def _matches(text: pa.Array, pattern: str) -> np.ndarray:
    return _to_numpy(pc.match_substring_regex(text, pattern))


def _first(flags: np.ndarray) -> int | None:
    return int(np.argmax(flags)) if flags.any() else None


def _to_numpy(flags: pa.BooleanArray) -> np.ndarray:
    """Without nulls: a missing value is not what was asked for."""
    return pc.fill_null(flags, False).to_numpy(zero_copy_only=False)
