"""Infers the types of columns without a schema: the narrowest that holds all values.

A column of doubles is FLOAT, unless all its numbers are whole and float32 would change
one of them: then it is INT.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from strategos.components.data_files.sources import Part, Source
from strategos.components.data_files.values import features, numerals
from strategos.components.data_files.values.arrow_types import is_list
from strategos.components.data_files.values.kinds import Kind
from strategos.components.data_files.values.whole_numbers import WholeNumbers
from strategos.components.errors import UserError
from strategos.components.wording import abridged

_SAMPLE = 256
_NEARLY_ALL = 0.9
_SHOWN_NAMES = 8
_SHOWN_DOUBTS = 5


@dataclasses.dataclass(frozen=True)
class Witness:
    """The first value that needs the type of its column, e.g. `x` for a text column.

    Attributes:
      source: File of the value.
      part: Part of the file that contains the value.
      row: Index of the row in that part; None if the file declares the type.
      value: The value as text, or the type that the file declares.
    """

    source: Source
    part: Part
    row: int | None
    value: str

    def __str__(self) -> str:
        if self.row is None:
            return f"type {self.value} ({self.source.path})"
        return f"{self.value[:100]!r} ({self.source.place(self.part, self.row)})"


class Profile:
    """Type inference for one column: the narrowest kind that holds its values.

    Attributes:
      kind: The narrowest kind that holds all values seen; UNKNOWN before the first.
      values: Number of values seen.
      numbers: Number of values that are numbers; a lower bound in text columns.
      because_of: By kind, the first value that needs at least this kind.
      several: Whether a row may have several values, if no file declares it.
      families: By family of types, such as text, the first value; only of files that
        declare no types.
      wholes: State of the check whether a FLOAT column must be INT instead.
    """

    def __init__(self, nulls: numerals.Nulls):
        """Starts without any value.

        Args:
          nulls: Spellings of a missing value in a column of numbers, e.g. `NA`.
        """
        self._nulls = nulls
        self.several = False
        self.families: dict[str, Witness] = {}
        self._only_nulls = False  # so far nothing but null spellings
        self._kind = Kind.UNKNOWN
        self.values = 0
        self.numbers = 0
        self.because_of: dict[Kind, Witness] = {}
        self.wholes = WholeNumbers()

    @property
    def kind(self) -> Kind:
        """The narrowest kind that holds all values seen.

        A column of null spellings alone is text: `NA` may be Namibia.
        """
        if self._kind == Kind.UNKNOWN and self._only_nulls:
            return Kind.BYTES
        if self._kind == Kind.FLOAT and self.wholes.kept:
            return Kind.INT
        return self._kind

    @property
    def stays_whole(self) -> bool:
        """Whether the column is INT only because float32 would change a number."""
        return self._kind == Kind.FLOAT and self.kind == Kind.INT

    @property
    def undecided(self) -> bool:
        """Whether the kind depends on numbers that were not read, only their type."""
        return self._kind == Kind.FLOAT and self.wholes.undecided

    def see_text(
        self, text: pa.StringArray, source: Source, part: Part, row: int
    ) -> None:
        """Adds fields of a CSV file.

        Args:
          text: string[rows], null for an empty field.
          source: The file.
          part: The part of the file.
          row: Index in the part of the first of these rows.
        """
        if text.null_count == len(text):
            return
        text = self._nulls.pointed(text)
        if self._kind == Kind.UNKNOWN:  # to fail on more rows is slow
            self._widen(text.slice(0, _SAMPLE), source, part, row)
        numbers = self._widen(text, source, part, row)
        if numbers is None:
            self._count(text)
        else:
            self.numbers += numbers
            self.values += numbers

    def see_column(
        self, column: pa.Array, source: Source, part: Part, row: int
    ) -> None:
        """Adds values of a column without a declared type, in the type of these rows.

        Args:
          column: The values, or lists of them; null is missing.
          source: The file.
          part: The part of the file.
          row: Index in the part of the first of these rows.
        """
        self.several |= is_list(column.type)
        kind = features.kind_of(column.type)
        if kind == Kind.UNKNOWN or column.null_count == len(column):
            return
        first = pc.index(column.is_valid(), True).as_py()
        witness = Witness(source, part, row + first, str(column[first].as_py()))
        self.because_of.setdefault(kind, witness)
        self.families.setdefault(_family(column.type), witness)
        self._kind = max(self._kind, kind)
        if kind != Kind.BYTES:
            self.wholes.see_column(column)
        self.values += len(column)
        self.numbers += len(column) * (kind != Kind.BYTES)

    def check_unmixed(self, name: str) -> None:
        """Rejects a column with text in some rows and numbers in others.

        Args:
          name: The column.

        Raises:
          UserError: Names two such values.
        """
        if len(self.families) < 2:
            return
        (one, first), (other, second) = list(self.families.items())[:2]
        raise UserError(
            f"column `{name}` has values of several types: {one}, {first}; "
            f"{other}, {second}",
            remedy="Write all values alike, or declare the column's type in a schema.",
        )

    def see_type(
        self,
        data_type: pa.DataType,
        source: Source,
        part: Part,
        rows: int,
        suspected: bool = False,
    ) -> None:
        """Adds the values of a column with a declared type, without reading them.

        Args:
          data_type: The declared Arrow type.
          source: The file.
          part: The part of the file.
          rows: Number of rows in the part, all counted as values.
          suspected: Whether float32 may change a whole number among the values.
        """
        self.wholes.unseen = True
        self.wholes.suspected |= suspected
        kind = features.kind_of(data_type)
        if kind > self._kind:
            self._kind = kind
            self.because_of[kind] = Witness(source, part, None, str(data_type))
        if kind != Kind.UNKNOWN:
            self.values += rows
            self.numbers += rows * (kind != Kind.BYTES)

    def merge(self, later: Profile) -> None:
        """Adds the profile of the same column in later rows."""
        self._only_nulls |= later._only_nulls
        self.several |= later.several
        self.families = {**later.families, **self.families}
        self._kind = max(self._kind, later._kind)
        self.wholes.merge(later.wholes)
        self.values += later.values
        self.numbers += later.numbers
        self.because_of = {**later.because_of, **self.because_of}

    def _widen(
        self, text: pa.StringArray, source: Source, part: Part, row: int
    ) -> int | None:
        """Raises the kind until it holds all of `text`.

        Returns:
          The number of values, all of them numbers; None for a text column.
        """
        kind = max(self._kind, Kind.INT)
        while kind < Kind.BYTES:
            numbers = self._read(kind, text)
            if numbers is not None:
                count = len(numbers) - numbers.null_count
                self.wholes.see(text, numbers)
                self._only_nulls |= not count
                self._kind = kind if count else self._kind
                return count
            holds = functools.partial(self._holds, kind)
            first = features.first_false(text, holds)
            kind = Kind(kind + 1)
            value = self._nulls.pointed(text.slice(first, 1))[0].as_py()
            self.because_of[kind] = Witness(source, part, row + first, value)
        self._kind = kind
        return None

    def _read(self, kind: Kind, text: pa.StringArray) -> pa.Array | None:
        try:
            numbers = numerals.read(text, kind, self._nulls)
        except pa.ArrowInvalid:
            return None
        return None if numerals.identifies(text, numbers) else numbers

    def _holds(self, kind: Kind, text: pa.StringArray) -> bool:
        return self._read(kind, text) is not None

    def _count(self, text: pa.StringArray) -> None:
        """Counts the values of a text column, and its numbers in a sample of them."""
        text = text.drop_null()
        every = text.take(pa.array(range(0, len(text), len(text) // _SAMPLE + 1)))
        count = numerals.count(every)
        if 2 * count >= len(every):
            text = self._nulls.hide(text).drop_null()
            count = numerals.count(text)
        self.numbers += count
        self.values += len(text)


class Profiles(dict[str, Profile]):
    """Profiles by column; the profile of another column begins empty.

    Args:
      nulls: As for `Profile`.
      names: The known columns.
    """

    def __init__(self, nulls: numerals.Nulls, names: Sequence[str] = ()):
        super().__init__({name: Profile(nulls) for name in names})
        self._nulls = nulls

    def __missing__(self, name: str) -> Profile:
        return self.setdefault(name, Profile(self._nulls))


def _family(data_type: pa.DataType) -> str:
    values = data_type.value_type if is_list(data_type) else data_type
    if pa.types.is_boolean(values):
        return "true or false"
    return "text" if features.kind_of(values) == Kind.BYTES else "a number"


def witnesses(profiles: Mapping[str, Profile], kind: Kind) -> dict[str, Witness]:
    """By column of this kind, the first value that needed it."""
    return {
        name: profile.because_of[kind]
        for name, profile in profiles.items()
        if profile.kind == kind
    }


def describe(profiles: Mapping[str, Profile]) -> list[str]:
    """Describes the inferred types, for the run's report.

    Args:
      profiles: Profile by column name.

    Returns:
      One line per type with its columns, then a line with the columns of doubles that
      are INT, and lines on text columns with nearly only numbers.
    """
    lines = []
    for kind in (Kind.INT, Kind.FLOAT, Kind.BYTES, Kind.UNKNOWN):
        names = [name for name, profile in profiles.items() if profile.kind == kind]
        if names:
            title = kind.name if kind else "without any value"
            lines.append(f"{title}: {abridged(names, _SHOWN_NAMES)}")
    kept = [f"`{name}`" for name, each in profiles.items() if each.stays_whole]
    if kept:
        lines.append(
            f"INT, not FLOAT, because all numbers are whole, and float32 would change "
            f"some: {abridged(kept, _SHOWN_NAMES)}"
        )
    doubtful = [name for name, profile in profiles.items() if _nearly_numeric(profile)]
    lines += [_doubt(name, profiles[name]) for name in doubtful[:_SHOWN_DOUBTS]]
    if len(doubtful) > _SHOWN_DOUBTS:
        rest = abridged(doubtful[_SHOWN_DOUBTS:], _SHOWN_NAMES)
        lines.append(f"nearly all numbers are also: {rest}")
    return lines


def _nearly_numeric(profile: Profile) -> bool:
    """Whether only a few values make a column text instead of a number."""
    witness = profile.because_of.get(Kind.BYTES)
    if profile.kind != Kind.BYTES or witness is None:
        return False
    value, numbers = witness.value, profile.numbers
    spelled = numerals.has_separators(value) or numerals.has_unit(value)
    return spelled or 0 < numbers >= _NEARLY_ALL * profile.values


def _doubt(name: str, profile: Profile) -> str:
    witness = profile.because_of[Kind.BYTES]
    if numerals.has_separators(witness.value):
        return (
            f"`{name}` is BYTES: {witness} has separators of thousands or a decimal "
            "comma. Where it is a number, write it as 1234.5."
        )
    if numerals.has_unit(witness.value):
        return (
            f"`{name}` is BYTES: {witness} has a sign of percent or of a currency. "
            "Where it is a number, write it without."
        )
    why = numerals.why_not(witness.value)
    if why:
        return (
            f"`{name}` is BYTES: {witness} {why}. Where it is a number, declare its "
            f"type in a schema."
        )
    return (
        f"`{name}` is BYTES because of {witness}; {profile.numbers:,} of "
        f"{profile.values:,} values are numbers. Correct the value, add it to "
        f"`data.null_values`, or declare the type in a schema."
    )
