"""Slicings of rows: by features, ranges of numbers, and crosses of them.

Config validation imports this module; standard library only.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

CLASS = "class"
"""The feature of the slices of a multi_label evaluation that hold one class each."""

_PARTS = {"multi_label": CLASS, "reconstruction": "feature"}

MOST_RESAMPLED = 1_000
"""Slices of an entry that has confidence intervals by slice."""

CROSS = " x "
"""Stands between the features in the name of a cross, and between their values."""


@dataclass(frozen=True, order=True)
class Bin:
    """A range of numbers, without its upper end.

    Attributes:
      low: The least number of the range; -inf for the first one.
      high: The least number above the range; inf for the last one, which has infinity.
    """

    low: float
    high: float

    def __str__(self) -> str:
        """The range for people: `[500, 1000)`."""
        return f"[{self.low!r}, {self.high!r}{']' if self.high == math.inf else ')'}"


@dataclass(frozen=True)
class Part:
    """A feature to slice by.

    Attributes:
      feature: Its name.
      edges: Where its bins meet, ascending; () for a slice of each value.
    """

    feature: str
    edges: tuple[float, ...] = ()

    @property
    def bins(self) -> list[Bin]:
        """The ranges between the edges, below the first and from the last on."""
        ends = [-math.inf, *self.edges, math.inf]
        return [Bin(*pair) for pair in itertools.pairwise(ends)]


@dataclass(frozen=True)
class Slicing:
    """An entry of `evaluator.slices`: a feature, or several for their cross.

    Attributes:
      parts: The features. A row is in a slice for each combination of their values.
    """

    parts: tuple[Part, ...]

    @classmethod
    def of(cls, entry: Any) -> Slicing:
        """The slicing of an entry.

        Args:
          entry: `carrier`, `{"feature": "distance", "bins": [500, 1000]}`, a list of
            such parts for a cross, or a slicing.
        """
        if isinstance(entry, Slicing):
            return entry
        parts = entry if isinstance(entry, list | tuple) else [entry]
        return cls(tuple(map(_part, parts)))

    @property
    def name(self) -> str:
        """The feature, or the features of a cross: `origin x carrier`."""
        return CROSS.join(self.features)

    @property
    def features(self) -> list[str]:
        """The features of the parts."""
        return [part.feature for part in self.parts]


def slicings(evaluator: Mapping[str, Any]) -> list[Slicing]:
    """The slicings: the configured entries, then features named by bounds only.

    Not `part_of` the task: its slices are always measured.

    Args:
      evaluator: The section: task, metrics, slices, bounds.
    """
    by_name = {
        each.name: each for each in map(Slicing.of, evaluator.get("slices") or ())
    }
    for bound in (evaluator.get("bounds") or {}).values():
        for name in bound.get("slices") or ():
            by_name.setdefault(name, Slicing.of(name))
    part = part_of(evaluator["task"])
    return [each for name, each in by_name.items() if name != part]


def part_of(task: Any) -> str:
    """The name of the slices that hold a part of each row: `class`, or `feature`.

    Args:
      task: One of `metrics.TASKS`, or one for each head.

    Returns:
      "" for tasks that compare one number of each row.
    """
    tasks = task.values() if isinstance(task, Mapping) else [task]
    return next((_PARTS[each] for each in tasks if each in _PARTS), "")


def canonical(value: Any) -> Any:
    """A value of a slice with `math.nan` for each NaN, which a dict finds by identity.

    Args:
      value: The value of a feature, or the values of a cross.
    """
    if isinstance(value, tuple):
        return tuple(map(canonical, value))
    return math.nan if value != value else value


def order(value: Any) -> tuple[Any, ...]:
    """A key to sort the values of slices by, NaN last.

    Args:
      value: The value of a feature, or the values of a cross.
    """
    parts: Sequence[Any] = value if isinstance(value, tuple) else (value,)
    return tuple((part != part, 0 if part != part else part) for part in parts)


def text(value: Any) -> str:
    """The value of a slice for people: `JFK x [500, 1000)` for a cross.

    Args:
      value: The value of a feature, or the values of a cross.
    """
    return CROSS.join(map(str, value)) if isinstance(value, tuple) else str(value)


def _part(entry: Any) -> Part:
    if isinstance(entry, str):
        return Part(entry)
    return Part(entry["feature"], tuple(entry["bins"]))
