"""Facts of the values of a column: their kind, number and form."""

from __future__ import annotations

import functools
from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strategos.components.data_files.values.kinds import Kind
from strategos.pipeline.init.sample import Sample

_TIME = r"([ T]\d{1,2}:\d{2}(:\d{2}(\.\d+)?)?)?\s*(Z|[+-]\d\d:?\d\d)?\s*$"
_YEAR_FIRST = rf"^\s*\d{{4}}[./-]\d{{1,2}}[./-]\d{{1,2}}{_TIME}"
_YEAR_LAST = rf"^\s*\d{{1,2}}[./-]\d{{1,2}}[./-]\d{{4}}{_TIME}"
_AMOUNT = (
    r"^\s*[+-]?\s*([$€£¥]|[A-Z]{3}\s)?\s*[+-]?[0-9][0-9.,' ]*"
    r"(\s?[$€£¥%]|\s[A-Za-z]{1,3})?\s*$"
)
_LEADING_ZERO = r"^\s*0[0-9]"
_DECIMAL_COMMA = r"^\D*[0-9.]*,([0-9]{1,2}|[0-9]{4,})\D*$|[0-9]\.[0-9]{3},"
_NEARLY_ALL = 0.98
_MOST = 0.9
_LEAST_ROWS = 20  # to say that a column identifies rows

TRUE = frozenset({"yes", "y", "true", "t", "ja", "j", "oui", "si", "sí", "1", "on"})
FALSE = frozenset({"no", "n", "false", "f", "nein", "non", "0", "off", "none"})


class Column:
    """A column of a sample.

    Attributes:
      name: The column's name.
      kind: Type of the values.
      is_list: Whether rows may have several values.
      rows: Number of rows.
      missing: Number of rows without a value.
      lengths: Number of values of each row, int64 [rows].
      values: The value of each row, null if missing: int64, float32, or string; of a
        list column, the values of all rows. Bytes that are not UTF-8 stay binary.
    """

    def __init__(self, sample: Sample, name: str):
        """Takes the column out of a sample.

        Args:
          sample: The rows.
          name: The column's name.
        """
        lists = sample.columns[name]
        self.name, self.kind = name, sample.kinds[name]
        self.is_list, self.rows = name in sample.lists, sample.rows
        lengths = pc.fill_null(pc.list_value_length(lists), 0)
        self.lengths = lengths.to_numpy().astype(np.int64)
        self.missing = int((self.lengths == 0).sum())
        values = lists.flatten()
        if not self.is_list:  # at most one value a row
            places = np.cumsum(self.lengths) - 1
            values = values.take(pa.array(places, mask=self.lengths == 0))
        self.values = _as_text(values) if self.kind == Kind.BYTES else values

    @functools.cached_property
    def present(self) -> pa.Array:
        """The values, without missing ones, blank text, NaN and infinite numbers."""
        values = self.values.drop_null()
        if self.is_text:
            values = values.filter(pc.not_equal(pc.utf8_trim_whitespace(values), ""))
        elif pa.types.is_floating(values.type):
            values = values.filter(pc.is_finite(values))
        return values

    @functools.cached_property
    def finite(self) -> pa.Array:
        """Whether the value of each row is a number that is not NaN or infinite."""
        if not pa.types.is_floating(self.values.type):
            return self.values.is_valid()
        return pc.fill_null(pc.is_finite(self.values), False)

    @property
    def not_finite(self) -> int:
        """Number of values that are NaN or infinite."""
        return len(self.values.drop_null()) - (pc.sum(self.finite).as_py() or 0)

    @property
    def is_text(self) -> bool:
        """Whether the values are text."""
        return pa.types.is_string(self.values.type)

    @property
    def is_number(self) -> bool:
        """Whether the values are numbers."""
        return self.kind in (Kind.INT, Kind.FLOAT)

    @functools.cached_property
    def counts(self) -> Mapping[object, int]:
        """How often each value occurs, the most frequent first."""
        pairs = pc.value_counts(self.present)
        values = pairs.field("values").to_pylist()
        counts = pairs.field("counts").to_pylist()
        order = sorted(range(len(values)), key=lambda i: (-counts[i], str(values[i])))
        return {values[index]: counts[index] for index in order}

    @property
    def distinct(self) -> int:
        """Number of distinct values."""
        return len(self.counts)

    @functools.cached_property
    def numbers(self) -> np.ndarray:
        """The present values of a column of numbers, float64."""
        return self.present.to_numpy(zero_copy_only=False).astype(np.float64)

    @functools.cached_property
    def amounts(self) -> np.ndarray:
        """The numbers of texts that are amounts, float64."""
        point, thousands = (",", r"\.") if self.has_decimal_comma else (".", ",")
        plain = pc.replace_substring_regex(self.present, thousands, "")
        plain = pc.replace_substring(plain, point, ".")
        plain = pc.replace_substring_regex(plain, "[^0-9.-]", "")
        is_number = pc.match_substring_regex(plain, r"^-?[0-9]*\.?[0-9]+\.?$")
        numbers = plain.filter(is_number).cast(pa.float64())
        return numbers.to_numpy(zero_copy_only=False)

    @property
    def is_truth(self) -> bool:
        """Whether all values are spellings of yes and no, of both."""
        spelled = {str(value).strip().casefold() for value in self.counts}
        both = bool(spelled & TRUE) and bool(spelled & FALSE)
        return self.is_text and both and spelled <= TRUE | FALSE

    @property
    def true_spellings(self) -> list[str]:
        """The spellings of yes, as the files have them."""
        return [str(v) for v in self.counts if str(v).strip().casefold() in TRUE]

    @functools.cached_property
    def date_order(self) -> str:
        """The order of a date's parts: `ymd`, `dmy` or `mdy`; "" if no dates.

        Of `1/2/2024` in all rows nothing shows the order: with slashes it is taken as
        month, day, year, otherwise as day, month, year.
        """
        if self.is_list or self._share_of(_YEAR_FIRST) >= _NEARLY_ALL:
            return "" if self.is_list else "ymd"
        if self._share_of(_YEAR_LAST) < _NEARLY_ALL:
            return ""
        dates = self.present.filter(pc.match_substring_regex(self.present, _YEAR_LAST))
        parts = pc.split_pattern_regex(pc.utf8_trim_whitespace(dates), r"\D+")
        numbers = [pc.list_element(parts, place).cast(pa.int64()) for place in (0, 1)]
        first, second = (pc.max(each).as_py() for each in numbers)
        slashes = pc.any(pc.match_substring(dates, "/")).as_py()
        months_first = second > 12 or (slashes and first <= 12)
        return "mdy" if months_first else "dmy"

    @functools.cached_property
    def is_amount(self) -> bool:
        """Whether text is numbers with signs, units or separators of thousands."""
        is_code = bool(self._share_of(_LEADING_ZERO))
        return not (self.is_list or is_code) and self._share_of(_AMOUNT) >= _MOST

    @functools.cached_property
    def has_decimal_comma(self) -> bool:
        """Whether amounts are written as `1.234,50`."""
        return self._share_of(_DECIMAL_COMMA) > self._share_of(r"[0-9]\.[0-9]{1,2}\D*$")

    @functools.cached_property
    def words(self) -> float:
        """The mean number of words in a text."""
        if not self.is_text or not len(self.present):
            return 0.0
        spaces = pc.count_substring_regex(pc.utf8_trim_whitespace(self.present), r"\s+")
        return float(pc.mean(spaces).as_py()) + 1

    @property
    def length(self) -> int | None:
        """Number of values of each row of a list column; None if it varies."""
        first = int(self.lengths[0])
        return first if first and (self.lengths == first).all() else None

    @property
    def is_unique(self) -> bool:
        """Whether nearly each row has a value of its own."""
        count = len(self.present)
        return (
            not self.is_list
            and count >= _LEAST_ROWS
            and self.distinct >= _NEARLY_ALL * count
        )

    @property
    def numbers_rows(self) -> bool:
        """Whether whole numbers rise row by row, nearly always by one."""
        if self.kind != Kind.INT or self.is_list or len(self.numbers) < _LEAST_ROWS:
            return False
        steps = np.diff(self.numbers)
        return bool((steps == 1).mean() >= _NEARLY_ALL)

    def _share_of(self, pattern: str) -> float:
        """The share of the present texts that match; 0 for other values."""
        if not self.is_text or not len(self.present):
            return 0.0
        matches = pc.match_substring_regex(self.present, pattern)
        return float(pc.mean(matches.cast(pa.float64())).as_py())


def _as_text(values: pa.Array) -> pa.Array:
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:  # bytes, e.g. of an image
        return values
