"""Which slices the rows of a batch are in; TensorFlow and numpy only."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from strategos.components.evaluation.classes.entries import SliceMembership
from strategos.components.evaluation.slices.slicing import Part, Slicing

_LOWEST, _HIGHEST = -(2**63), 2**63 - 1


def of(
    slicings: Iterable[Slicing], features: Mapping[str, tf.SparseTensor]
) -> dict[str, SliceMembership]:
    """The rows of each slice, by name of the slicing.

    Args:
      slicings: The slicings.
      features: Values by name of the feature, [rows, values].
    """
    of_part: dict[Part, SliceMembership] = {}
    by_name = {}
    for slicing in slicings:
        for part in slicing.parts:
            if part not in of_part:
                of_part[part] = _of_part(features[part.feature], part)
        members = [of_part[part] for part in slicing.parts]
        by_name[slicing.name] = members[0] if len(members) == 1 else crossed(members)
    return by_name


def crossed(members: Sequence[SliceMembership]) -> SliceMembership:
    """The rows of each combination of values that a row has.

    Args:
      members: The rows of each value of a feature, in the order of the rows.

    Returns:
      The rows of each tuple of values.
    """
    first = members[0]
    single = SliceMembership([(x,) for x in first.values], first.row, first.code)
    return functools.reduce(_crossed, members[1:], single)


def _crossed(mine: SliceMembership, others: SliceMembership) -> SliceMembership:
    """Adds a feature to a cross: joins the values of each row."""
    width = len(others.values)
    rows = 1 + max(mine.row.max(initial=-1), others.row.max(initial=-1))
    count = np.bincount(others.row, minlength=rows)
    first = np.cumsum(count) - count
    times = count[mine.row]
    left = np.repeat(np.arange(len(mine.row)), times)
    step = np.arange(len(left)) - np.repeat(np.cumsum(times) - times, times)
    right = first[mine.row[left]] + step
    code = mine.code[left] * width + others.code[right]
    distinct, place = np.unique(code, return_inverse=True)
    pairs = zip(*(each.tolist() for each in np.divmod(distinct, width)), strict=True)
    values = [(*mine.values[i], others.values[j]) for i, j in pairs]
    return SliceMembership(values, mine.row[left], place.reshape(-1))


def _of_part(feature: tf.SparseTensor, part: Part) -> SliceMembership:
    row = feature.indices[:, 0].numpy()
    values, code = (
        in_bins(feature.values.numpy(), part) if part.edges else _by_value(feature)
    )
    if len(row) and (np.diff(row) == 0).any():
        # A value that a row repeats counts once.
        row, code = np.divmod(np.unique(row * len(values) + code), len(values))
    return SliceMembership(values, row, code)


def _by_value(feature: tf.SparseTensor) -> tuple[list[Any], np.ndarray]:
    """The distinct values, and the index of each value."""
    if feature.dtype == tf.string:
        # Makes no Python object of each value.
        distinct, inverse = (part.numpy() for part in tf.unique(feature.values))
    else:  # unlike TensorFlow's, takes NaN for one value
        distinct, inverse = np.unique(feature.values.numpy(), return_inverse=True)
    names: dict[str | int | float, int] = {}
    codes = [names.setdefault(_slice_value(each), len(names)) for each in distinct]
    return list(names), np.array(codes, np.int64)[inverse.reshape(-1)]


def in_bins(values: np.ndarray, part: Part) -> tuple[list[Any], np.ndarray]:
    """The bins that have values, NaN after them, and the index of each value's.

    Args:
      values: int64 or float32 [values].
      part: A feature in bins.
    """
    bins = [*part.bins, math.nan]
    edges: np.ndarray
    if values.dtype == np.int64:
        # Exact: as float64, whole numbers above 2**53 fall together.
        whole = [min(max(math.ceil(x), _LOWEST), _HIGHEST) for x in part.edges]
        edges = np.array(whole, np.int64)
    else:  # an edge of 0.7 is the float32 that the data have for 0.7
        edges = np.array(part.edges, np.float64).astype(values.dtype)
    code = np.searchsorted(edges, values, side="right")
    code = np.where(np.isnan(values), len(bins) - 1, code)
    present, place = np.unique(code, return_inverse=True)
    return [bins[i] for i in present], place.reshape(-1)


def _slice_value(value: bytes | np.number) -> str | int | float:
    """The value that names a slice; equal for all values of the slice.

    A float32 becomes the shortest decimal that stands for it: 0.1, not 0.10000000149.
    """
    if isinstance(value, bytes):
        # Bytes other than UTF-8 stay distinct: `\xff` and `\xfe` are two slices.
        return value.decode("utf-8", "backslashreplace")
    if isinstance(value, np.floating):
        # A dict treats each NaN as a new key, unless it is the same object.
        return math.nan if np.isnan(value) else float(str(value)) + 0.0  # no -0.0
    return int(value)
