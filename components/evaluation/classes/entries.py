"""The entries of rows: one number a row, or one for each class of a row; numpy only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from strategos.components.evaluation.slices.slicing import CLASS


@dataclass(frozen=True)
class SliceMembership:
    """The values of a feature in each row; a row may have none or several.

    Attributes:
      values: The distinct values.
      row: int64 [members], index of a row.
      code: int64 [members], index into `values` of a value that the row has.
    """

    values: Sequence[Any]
    row: np.ndarray
    code: np.ndarray


@dataclass(frozen=True)
class Entries:
    """Where labels and scores of some rows are, among those of all rows, flattened.

    Attributes:
      index: int64 [entries], into labels and scores as one array.
      row: int64 [entries], index of the entry's row.
      code: int64 [entries], the slice of each entry.
      classes: Entries of a row that stand together, one for each class.
    """

    index: np.ndarray
    row: np.ndarray
    code: np.ndarray
    classes: int


def all_names(known: Sequence[str], width: int) -> list[str]:
    """The names of all classes: those that have none by their number.

    Args:
      known: Names of the first classes.
      width: Number of classes.
    """
    return [*known, *map(str, range(len(known), width))]


def everything(
    rows: int, slices: Mapping[str, SliceMembership], classes: Sequence[str]
) -> dict[str | None, SliceMembership]:
    """The slices to add up: all rows, each sliced feature, and each class.

    Args:
      rows: Number of rows.
      slices: The rows of each value, by sliced feature.
      classes: Names of the classes; () if a row has one label.
    """
    every = np.arange(rows)
    members: dict[str | None, SliceMembership] = {
        None: SliceMembership([None], every, np.zeros_like(every))
    }
    members.update(slices.items())
    if classes:
        code = np.tile(np.arange(len(classes)), rows)
        members[CLASS] = SliceMembership(classes, every.repeat(len(classes)), code)
    return members


def of(
    feature: str | None, member: SliceMembership, width: int, weight: np.ndarray | None
) -> Entries:
    """The entries of the slices of a feature, without rows of weight 0.

    Args:
      feature: The feature; `CLASS` for slices that hold one class of each row.
      member: The rows of each slice.
      width: Labels of a row.
      weight: float64 [rows]; None for 1.
    """
    row, code = member.row, member.code
    if weight is not None:
        some = weight[row] > 0
        row, code = row[some], code[some]
    if width == 1:
        return Entries(row, row, code, 1)
    if feature == CLASS:
        return Entries(row * width + code, row, code, 1)
    index = (row[:, np.newaxis] * width + np.arange(width)).reshape(-1)
    return Entries(index, row.repeat(width), code.repeat(width), width)


def spread(place: np.ndarray, classes: int) -> np.ndarray:
    """The places of the classes of some slices, which stand side by side.

    Args:
      place: int64 [slices].
      classes: Classes of each slice.

    Returns:
      int64 [slices · classes].
    """
    return (place[:, np.newaxis] * classes + np.arange(classes)).reshape(-1)
