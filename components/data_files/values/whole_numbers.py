"""Whole numbers in columns of doubles: whether they can stay whole.

A column of identifiers beside a missing value is a column of doubles for pandas.
float32, the type of a FLOAT feature, changes whole numbers beyond 2**24. If it changes
one and all numbers of the column are whole, the column is INT.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from strategos.components.data_files.values import numerals
from strategos.components.data_files.values.arrow_types import is_list, is_text
from strategos.components.data_files.values.kinds import Kind

ALL_WHOLE = 2.0**24
"""float32 represents all whole numbers up to here."""

_HALVES = 2.0**52  # float64 represents no fraction from here on


@dataclasses.dataclass
class WholeNumbers:
    """Whether float32 would change a whole number of one column.

    Attributes:
      whole: Whether all numbers seen are whole and within int64.
      changed: Whether float32 changes one of the numbers seen.
      unseen: Whether some numbers were not seen, e.g. of a declared column of doubles.
      suspected: Whether float32 may change one of the unseen numbers.
    """

    whole: bool = True
    changed: bool = False
    unseen: bool = False
    suspected: bool = False

    @property
    def kept(self) -> bool:
        """Whether the column must be INT, because float32 would change a number."""
        return self.whole and self.changed

    @property
    def undecided(self) -> bool:
        """Whether the unseen numbers decide if the column must be INT."""
        return self.whole and self.unseen and (self.changed or self.suspected)

    def see(self, values: pa.Array, numbers: pa.Array) -> None:
        """Adds numbers.

        Args:
          values: As the file has them.
          numbers: int64 or float64, null where a value is missing.
        """
        if not self.whole:
            return
        whole = numbers.drop_null().to_numpy(zero_copy_only=False)
        if types.is_integer(numbers.type):
            self.changed |= _changes_integers(whole)
            return
        with np.errstate(over="ignore", invalid="ignore"):
            self.changed |= bool((whole.astype(np.float32) != whole).any())
            self.whole = bool(((np.floor(whole) == whole) & np.isfinite(whole)).all())
        if self.whole:
            large = pc.greater_equal(pc.abs(numbers), _HALVES)
            self._see_exactly(
                (values if is_text(values.type) else numbers).filter(large)
            )

    def _see_exactly(self, numbers: pa.Array) -> None:
        """Adds large doubles, or strings that may have more digits than a double."""
        parse = read if is_text(numbers.type) else _to_integers
        try:
            whole = parse(numbers)
        except pa.ArrowInvalid:
            self.whole = False
        else:
            self.changed |= _changes_integers(whole.to_numpy())

    def see_column(self, column: pa.Array) -> None:
        """Adds the numbers of a column, or of its lists; not for text."""
        values = column.flatten() if is_list(column.type) else column
        if types.is_dictionary(values.type):
            values = values.dictionary_decode()
        if types.is_floating(values.type):
            values = numerals.of_floats(values)
        else:
            try:
                values = _to_integers(values)
            except pa.ArrowInvalid:  # a decimal with a fraction, or beyond int64
                self.whole = False
                return
        self.see(column, values)

    def merge(self, later: WholeNumbers) -> WholeNumbers:
        """Adds the findings on other numbers of the column; returns itself."""
        self.whole &= later.whole
        self.changed |= later.changed
        self.unseen |= later.unseen
        self.suspected |= later.suspected
        return self


def _to_integers(values: pa.Array) -> pa.Int64Array:
    return values.cast(pa.int64())


def may_be_changed(bounds: Any) -> bool:
    """Whether float32 may change a whole number of a column.

    Args:
      bounds: `pyarrow.parquet.Statistics` of the column; None if unknown.
    """
    if bounds is None:
        return True
    if not bounds.has_min_max:
        return bounds.num_values > 0
    try:
        return not -ALL_WHOLE <= bounds.min <= bounds.max <= ALL_WHOLE
    except pa.ArrowNotImplementedError:  # decimals that are stored as integers
        return True


def read(text: pa.Array, nulls: numerals.Nulls = numerals.ONLY_EMPTY) -> pa.Int64Array:
    """Parses strings as whole numbers; `5.0` and `5e0` are 5.

    Args:
      text: string[rows]; null is missing.
      nulls: Spellings of a missing value. Default: only empty fields.

    Raises:
      pa.ArrowInvalid: A field is not a whole number, or is beyond int64.
    """
    try:
        return numerals.read(text, Kind.INT, nulls)
    except pa.ArrowInvalid:
        plain = pc.ascii_trim_whitespace(nulls.hide(text))
    plain = pc.replace_substring_regex(plain, r"^([+-]?[0-9]+)\.0*$", r"\1")
    exponents = pc.match_substring_regex(plain, r"^[+-]?[0-9.]+[eE]")
    if pc.any(exponents).as_py():
        numbers = numerals.read(plain.filter(exponents), Kind.FLOAT)
        spelled = numbers.cast(pa.int64()).cast(plain.type)
        plain = pc.replace_with_mask(plain, pc.fill_null(exponents, False), spelled)
    return numerals.read(plain, Kind.INT)


def _changes_integers(values: np.ndarray) -> bool:
    """Whether float32 changes one of the int64."""
    if not len(values) or -ALL_WHOLE <= values.min() <= values.max() <= ALL_WHOLE:
        return False
    doubles = values.astype(np.float64)
    with np.errstate(invalid="ignore"):
        exact = doubles.astype(np.int64) == values
    return bool((~exact | (doubles.astype(np.float32) != doubles)).any())
