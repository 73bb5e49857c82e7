"""The entries of rows: a number a row, or one for each class or value; numpy only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


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
      classes: Entries of a row that stand together, one for each class or value.
    """

    index: np.ndarray
    row: np.ndarray
    code: np.ndarray
    classes: int


def all_names(known: Sequence[str], width: int) -> list[str]:
    """The names of all classes, each once: those that have none by their number.

    For example, `#3` for the class of number 3 if another one is called `3`.

    Args:
      known: Names of the first classes.
      width: Number of classes.
    """
    numbers = map(str, range(len(known), width))
    return [*known, *(f"#{each}" if each in known else each for each in numbers)]


def everything(
    rows: int,
    slices: Mapping[str, SliceMembership],
    classes: Sequence[str],
    part: str,
) -> dict[str | None, SliceMembership]:
    """The slices to add up: all rows, each sliced feature, and each class or feature.

    Args:
      rows: Number of rows.
      slices: The rows of each value, by sliced feature.
      classes: Names of the classes, or the feature of each value of a row; () if a row
        has one label.
      part: `slicing.part_of` the task.
    """
    every = np.arange(rows)
    members: dict[str | None, SliceMembership] = {
        None: SliceMembership([None], every, np.zeros_like(every))
    }
    members.update(slices.items())
    if classes:
        names = [*dict.fromkeys(classes)]
        code = np.tile(np.arange(len(names)), rows)
        members[part] = SliceMembership(names, every.repeat(len(names)), code)
    return members


def of(
    member: SliceMembership,
    classes: Sequence[str],
    weight: np.ndarray | None,
    *,
    is_part: bool,
) -> Entries:
    """The entries of the slices of a feature, without rows of weight 0.

    Args:
      member: The rows of each slice.
      classes: See `everything`.
      weight: float64 [rows]; None for 1.
      is_part: Whether the slices hold a class, or the values of a feature, of each row.
    """
    row, code, width = member.row, member.code, max(1, len(classes))
    if weight is not None:
        some = weight[row] > 0
        row, code = row[some], code[some]
    if width == 1:
        return Entries(row, row, code, 1)
    if is_part:
        row = row[code == 0]  # each once
        index = (row[:, np.newaxis] * width + np.arange(width)).reshape(-1)
        codes = np.tile(places(classes, member.values), len(row))
        return Entries(index, row.repeat(width), codes, 1)
    index = (row[:, np.newaxis] * width + np.arange(width)).reshape(-1)
    return Entries(index, row.repeat(width), code.repeat(width), width)


def resampled(entries: Entries, times: np.ndarray) -> Entries:
    """The entries of each slice in each resample, as often as their row counts there.

    Args:
      entries: The entries of the slices.
      times: int64 [rows, resamples], how often a row counts in a resample.

    Returns:
      Entries with `code`: the slice's code times `resamples`, plus the resample.
    """
    width, resamples = entries.classes, times.shape[1]
    counts = times[entries.row[::width]].reshape(-1)
    block, resample = np.divmod(np.repeat(np.arange(counts.size), counts), resamples)
    index, row, code = (
        each.reshape(-1, width)[block]
        for each in (entries.index, entries.row, entries.code)
    )
    code = code * resamples + resample[:, np.newaxis]
    return Entries(index.reshape(-1), row.reshape(-1), code.reshape(-1), width)


def places(classes: Sequence[str], values: Sequence[str]) -> np.ndarray:
    """The slice of each class, or of each value of a row; int64 [classes].

    Args:
      classes: See `everything`.
      values: The slices.
    """
    known = {value: code for code, value in enumerate(values)}
    return np.array([known[name] for name in classes], np.int64)


def spread(place: np.ndarray, classes: int) -> np.ndarray:
    """The places of the classes of some slices, which stand side by side.

    Args:
      place: int64 [slices].
      classes: Classes of each slice.

    Returns:
      int64 [slices · classes].
    """
    return (place[:, np.newaxis] * classes + np.arange(classes)).reshape(-1)
