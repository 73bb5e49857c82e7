"""Finds the numbers that a FLOAT feature, a float32, does not hold as the file does."""

from __future__ import annotations

import decimal
from collections.abc import Callable, Collection

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from strategos.components.data_files.values import spelling
from strategos.components.data_files.values.arrow_types import is_text
from strategos.components.data_files.values.whole_numbers import ALL_WHOLE

_EXACT = 2.0**53  # float64 represents all whole numbers up to here
_DIGITS = 6  # of any decimal, which float32 gives back
_LONG = 16  # characters of a number that may have more digits than a double


class RoundingWatch:
    """Looks at columns of numbers while they are converted; see `features.convert`.

    Args:
      changes: Columns in which to find a number that is beyond float32's range or has
        another whole part in float32, e.g. 16777217.
      shortenings: Columns in which to find a number that loses digits behind the point
        in float32: its shortest decimal changes, e.g. 0.123456789 to 0.12345679.

    Attributes:
      changed: By column of `changes`, row and text of the first number found.
      shortened: By column of `shortenings`, row and text of the first number found.
    """

    def __init__(self, changes: Collection[str], shortenings: Collection[str]):
        self._changes, self._shortenings = changes, shortenings
        self.changed: dict[str, tuple[int, str]] = {}
        self.shortened: dict[str, tuple[int, str]] = {}

    def see(
        self,
        name: str,
        values: pa.Array,
        numbers: pa.DoubleArray,
        row_of: Callable[[int], int] = int,
    ) -> None:
        """Looks at numbers that become float32.

        Args:
          name: The column.
          values: As the file has them.
          numbers: The same as doubles, null where a value is missing.
          row_of: Returns the row of the value with an index. Default: the same.
        """
        bounds = pc.min_max(numbers).as_py().values()
        wanted = []
        if any(abs(bound or 0) >= ALL_WHOLE for bound in bounds):
            wanted.append((self._changes, self.changed, _changed))
        wanted.append((self._shortenings, self.shortened, _shortened))
        for columns, shortened, first in wanted:
            if name in columns:
                index = first(values, numbers.to_numpy(zero_copy_only=False))
                if index is not None:
                    shortened[name] = row_of(index), str(values[index].as_py()).strip()


def _changed(values: pa.Array, doubles: np.ndarray) -> int | None:
    """Index of the first large number that float32 changes."""
    floats, differs = _as_floats(doubles)
    large = np.abs(doubles) >= ALL_WHOLE
    exact = _first_inexact(values, doubles, large & ~differs, floats)
    return _least(_first(differs & large), exact)


def _shortened(values: pa.Array, doubles: np.ndarray) -> int | None:
    """Index of the first other number that float32 prints as another decimal."""
    floats, differs = _as_floats(doubles)
    small = np.abs(doubles) < ALL_WHOLE
    suspects = np.flatnonzero(differs & small)
    suspects = suspects[~_has_few_digits(doubles[suspects])]
    given_back = pa.array(floats[suspects]).cast(pa.string()).cast(pa.float64())
    lost = np.zeros(len(doubles), bool)
    lost[suspects] = given_back.to_numpy() != doubles[suspects]
    return _least(_first(lost), _first_inexact(values, doubles, small & ~lost, floats))


def _as_floats(doubles: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The numbers as float32, and whether this changed each number."""
    with np.errstate(over="ignore"):
        floats = doubles.astype(np.float32)
    return floats, (floats != doubles) & ~np.isnan(doubles)


def _first_inexact(
    values: pa.Array, doubles: np.ndarray, wanted: np.ndarray, floats: np.ndarray
) -> int | None:
    """Index of the first number that loses digits and has more than a double holds."""
    for index in np.flatnonzero(wanted & _is_long(values, doubles)):
        number = values[int(index)].as_py()
        number = decimal.Decimal(number.strip() if isinstance(number, str) else number)
        if number not in _spellings(floats[index]):
            return int(index)
    return None


def _spellings(value: np.float32) -> set[decimal.Decimal]:
    """The decimals in a file that this number represents without a loss of digits."""
    double = float(value)
    spellings = {decimal.Decimal(double), decimal.Decimal(repr(double))}
    if abs(value) < ALL_WHOLE:
        spellings.add(decimal.Decimal(str(value)))
    return spellings


def _has_few_digits(doubles: np.ndarray) -> np.ndarray:
    """bool[rows]: whether each number is the double of a decimal of six digits."""
    sizes = np.abs(doubles)
    exponents = np.floor(np.log10(np.where(sizes == 0, 1, sizes)))
    scale = 10.0 ** np.clip(_DIGITS - 1 - exponents, -22, 22)
    return np.rint(doubles * scale) / scale == doubles


def _is_long(values: pa.Array, doubles: np.ndarray) -> np.ndarray:
    """bool[rows]: whether a number may have more digits than a double."""
    if types.is_integer(values.type):
        return np.abs(doubles) >= _EXACT
    text = values
    if types.is_decimal(values.type) and values.type.precision >= _LONG:
        text = spelling.text_of(values)
    elif not is_text(values.type):
        return np.zeros(len(doubles), bool)
    long = pc.fill_null(pc.greater_equal(pc.binary_length(text), _LONG), False)
    return long.to_numpy(zero_copy_only=False) & np.isfinite(doubles)


def _least(one: int | None, other: int | None) -> int | None:
    return min((index for index in (one, other) if index is not None), default=None)


def _first(flags: np.ndarray) -> int | None:
    return int(np.argmax(flags)) if flags.any() else None
