"""The division of rows by a column of dates or times."""

from __future__ import annotations

import dataclasses
import datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from strategos.components.data_files.values import features
from strategos.components.data_files.values.arrow_types import is_bytes, is_text
from strategos.components.errors import required

_MICROS = 1_000_000
_ZONE = r"\d:\d\d.*(?:Z|[+-]\d\d(?::?\d\d)?)$"
EXPECTED = "a date or time, such as 2024-03-01 or 2024-03-01T12:00:00Z"
"""The values of a column of times, in words."""


@dataclasses.dataclass(frozen=True)
class Times:
    """Which rows are the newest.

    Attributes:
      column: Column of dates or times.
      eval: The newest rows, for evaluation: so many seconds before the newest time of
        all rows, or the date or time that they begin at.
      validation: Likewise for validation, before `eval`; None for none.
      newest: The newest time of all rows, in microseconds since 1970; None before it
        is known.
    """

    column: str
    eval: int | str
    validation: int | str | None = None
    newest: int | None = None

    @property
    def needs_newest(self) -> bool:
        """Whether `newest` must be known to divide rows."""
        return isinstance(self.eval, int)

    @property
    def described(self) -> str:
        """The division in words."""
        validation = ""
        if self.validation is not None:
            validation = f"; validation from {_spelled(self._bounds[1])} on"
        bound = _spelled(self._bounds[0])
        return f"time (`{self.column}` from {bound} on{validation})"

    def masks(self, batch: pa.RecordBatch) -> tuple[np.ndarray, np.ndarray]:
        """bool[rows]: whether each row is in `eval`, and whether in it or validation.

        Args:
          batch: Rows as the file has them.

        Raises:
          BadValueError: A row has no time, or one that is no time.
        """
        times = self.of(batch).to_numpy()
        evaluated, held_back = self._bounds
        return times >= evaluated, times >= held_back

    def of(self, batch: pa.RecordBatch) -> pa.Int64Array:
        """The time of each row, in microseconds since 1970 in UTC, int64[rows].

        Args:
          batch: Rows as the file has them.

        Raises:
          BadValueError: A row has no time, or one that is no time.
        """
        index = batch.schema.get_field_index(self.column)
        column = pa.nulls(batch.num_rows) if index < 0 else batch.column(index)
        if types.is_dictionary(column.type):
            column = column.dictionary_decode()
        if column.null_count:
            row = pc.index(column.is_null(), True).as_py()
            raise features.BadValueError(self.column, row, "", "a row has no time")
        try:
            return _instants(column)
        except pa.ArrowInvalid as error:
            row = features.first_false(column, _are_instants)
            value = column[row].as_py()
            raise features.BadValueError(self.column, row, value) from error

    @property
    def _bounds(self) -> tuple[int, int]:
        """The times that evaluation and validation begin at, in microseconds."""
        if isinstance(self.eval, str):
            evaluated = _instant(self.eval)
        else:
            # Of a newest day and `30d`, the thirty days that end with it.
            evaluated = required(self.newest) - self.eval * _MICROS + 1
        held_back = evaluated
        if isinstance(self.validation, str):
            held_back = _instant(self.validation)
        elif self.validation is not None:
            held_back = evaluated - self.validation * _MICROS
        return evaluated, held_back


def _instants(column: pa.Array) -> pa.Int64Array:
    """Microseconds since 1970; raises pa.ArrowInvalid for text that is no time."""
    if types.is_date(column.type):
        column = column.cast(pa.timestamp("us"))
    if types.is_timestamp(column.type):
        whole = column.cast(pa.timestamp("us", column.type.tz), safe=False)
        return whole.cast(pa.int64())
    if is_bytes(column.type):
        column = column.cast(pa.string())
    if not is_text(column.type):
        raise pa.ArrowInvalid(f"{column.type} is no time")
    encoded = column.cast(pa.string()).dictionary_encode()
    return _parsed(encoded.dictionary).take(encoded.indices)


def _parsed(text: pa.StringArray) -> pa.Int64Array:
    """Parses text with and without a zone; digits below a microsecond are dropped."""
    text = pc.replace_substring_regex(text, r"(\.\d{6})\d+", r"\1")
    zoned = pc.match_substring_regex(text, _ZONE)
    with_zone = text.filter(zoned).cast(pa.timestamp("us", "UTC")).cast(pa.int64())
    plain = text.filter(pc.invert(zoned)).cast(pa.timestamp("us")).cast(pa.int64())
    instants = np.empty(len(text), np.int64)
    flags = zoned.to_numpy(zero_copy_only=False)
    instants[flags], instants[~flags] = with_zone.to_numpy(), plain.to_numpy()
    return pa.array(instants)


def _are_instants(column: pa.Array) -> bool:
    try:
        _instants(column)
    except pa.ArrowInvalid:
        return False
    return True


def _instant(text: str) -> int:
    return int(_parsed(pa.array([text.replace(" ", "T", 1)]))[0].as_py())


def _spelled(micros: int) -> str:
    begin = datetime.datetime(1970, 1, 1)
    return str(begin + datetime.timedelta(microseconds=micros))
