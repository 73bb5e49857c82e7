"""How many rows have no value in a column, and where the first one is."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from strategos.components.wording import abridged, counted

if TYPE_CHECKING:
    import pyarrow as pa

    from strategos.components.example_gen.shards import Piece

_SHOWN = 8
_RECORDED = 200  # columns: databases of ML Metadata hold 64 kB of text


@dataclasses.dataclass(frozen=True)
class Emptiness:
    """The rows without a value in a column.

    Attributes:
      rows: Their number.
      of: Number of all rows.
      place: File and line of the first, if it was looked up.
    """

    rows: int
    of: int
    place: str = ""

    @property
    def all(self) -> bool:
        """Whether the column has no value at all."""
        return self.rows == self.of

    def __str__(self) -> str:
        first = f", the first at {self.place}" if self.place else ""
        return f"no value in {self.rows:,} of {counted(self.of, 'row')}{first}"


class EmptyCells:
    """Counts the rows without a value, by column; a place is looked up when asked."""

    def __init__(self) -> None:
        self._rows = 0
        self._counts: dict[str, int] = {}
        self._first: dict[str, tuple[Piece, int]] = {}

    def see(self, batch: pa.RecordBatch, piece: Piece, row: int) -> None:
        """Adds rows of a piece.

        Args:
          batch: Their features, a list a row: null or without items if missing.
          piece: Where they are from.
          row: Index in the piece of the first of them.
        """
        from strategos.components.example_gen.values import features

        self._rows += batch.num_rows
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            missing = features.is_missing(column)
            count = int(missing.sum())
            if count:
                self._counts[name] = self._counts.get(name, 0) + count
                self._first.setdefault(name, (piece, row + int(missing.argmax())))

    def merge(self, later: EmptyCells) -> EmptyCells:
        """Adds what later rows have."""
        self._rows += later._rows
        for name, count in later._counts.items():
            self._counts[name] = self._counts.get(name, 0) + count
        self._first = {**later._first, **self._first}
        return self

    def found(self) -> dict[str, Emptiness]:
        """By column, those with the fewest empty cells first.

        The places of these few are looked up; that reads a file up to the place.
        """
        names = sorted(self._counts, key=self._counts.__getitem__)[:_RECORDED]
        return {
            name: Emptiness(
                self._counts[name],
                self._rows,
                self._place(name) if number < _SHOWN else "",
            )
            for number, name in enumerate(names)
        }

    def _place(self, name: str) -> str:
        piece, row = self._first[name]
        return piece.place(row)


def describe(found: Mapping[str, Emptiness]) -> list[str]:
    """The line of the run's report, if a column has rows without a value.

    It names one place, of the column with the fewest: messages name those of others.

    Args:
      found: From `EmptyCells.found`.
    """
    shown = [f"{name} {each.rows:,}" for name, each in found.items()]
    place = next((each.place for each in found.values()), "")
    if place:
        shown[0] += f" (first at {place})"
    return [f"missing values: {abridged(shown, _SHOWN)}"] if shown else []


def to_json(found: Mapping[str, Emptiness]) -> str:
    """`found` as text, for a property of an artifact."""
    return json.dumps({name: dataclasses.asdict(each) for name, each in found.items()})


def from_json(text: str) -> dict[str, Emptiness]:
    """What `to_json` wrote; {} for ""."""
    return {name: Emptiness(**each) for name, each in json.loads(text or "{}").items()}
