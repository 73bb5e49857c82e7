"""How many rows have no value in a column, and where the first one is."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping

from strategos.components.wording import abridged, counted

SHOWN = 8
"""Columns that a report names."""


@dataclasses.dataclass(frozen=True)
class Emptiness:
    """The rows without a value in a column.

    Attributes:
      rows: Number of the rows without a value.
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


def describe(empty: Mapping[str, Emptiness]) -> list[str]:
    """The line of the run's report, if a column has rows without a value.

    It names the first such row of the column with the fewest; messages name the rows of
    the other columns.

    Args:
      empty: From `EmptyCells.found`.
    """
    shown = [f"{name} {each.rows:,}" for name, each in empty.items()]
    place = next((each.place for each in empty.values()), "")
    if place:
        shown[0] += f" (first at {place})"
    return [f"missing values: {abridged(shown, SHOWN)}"] if shown else []


def to_json(empty: Mapping[str, Emptiness]) -> str:
    """`empty` as text, for a property of an artifact."""
    return json.dumps({name: dataclasses.asdict(each) for name, each in empty.items()})


def from_json(text: str) -> dict[str, Emptiness]:
    """Reads the text of `to_json`; {} for ""."""
    return {name: Emptiness(**each) for name, each in json.loads(text or "{}").items()}
