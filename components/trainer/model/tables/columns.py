"""Finds the rows of kernels that belong to the columns of numeric features.

A model that concatenates its features may take them in another order than the earlier
model, without any change of size.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf

from strategos.components.trainer.model.tables.forward import UNKNOWN, Forward, Use
from strategos.components.transformed.feature_ids import FeatureIds

_PROBES = 3
_PREFIX = "columns of "


@dataclasses.dataclass(frozen=True)
class Position:
    """The rows of a kernel for the columns of a feature.

    Attributes:
      table: Index of the kernel among the model's tables.
      feature: Name of the feature.
      name: Name of the feature's columns in `Positions.ids`.
      axis: Axis of the rows in the kernel.
      offset: Row of the first column.
      size: Number of columns.
    """

    table: int
    feature: str
    name: str
    axis: int
    offset: int
    size: int


@dataclasses.dataclass(frozen=True)
class Positions:
    """The rows of all kernels for the columns of all features.

    Attributes:
      found: One position for each pair of feature and kernel.
      ids: The columns of each feature as entries, in order; by `Position.name`.
    """

    found: Sequence[Position]
    ids: Mapping[str, FeatureIds]


def find(forward: Forward) -> Positions:
    """Finds features with one row of a kernel for each of their columns.

    Args:
      forward: The traced call of the model.
    """
    sizes = {
        name: int(np.prod(value.shape[1:]))
        for name in sorted({x for use in forward.uses for x in use.sources})
        if name not in forward.lookups and _is_matrix(value := forward.feature(name))
    }
    probes = [
        (name, column)
        for name, size in sizes.items()
        for column in sorted({*np.linspace(0, size - 1, _PROBES).astype(int).tolist()})
    ]
    met: dict[tuple[Use, str], list[tuple[int, set[int]]]] = {}
    for (name, column), changed in zip(
        probes, forward.columns_changed(probes), strict=True
    ):
        for use, columns in changed.items():
            if name in use.sources:
                met.setdefault((use, name), []).append((column, columns))
    positions, ids = [], {}
    for (use, name), pairs in met.items():
        offsets = {min(x, default=0) - column for column, x in pairs}
        axis = use.axis_of_columns(use.operand.shape[-1])
        single = all(len(x) == 1 for _, x in pairs)
        if single and len(offsets) == 1 and axis != UNKNOWN:
            key = f"{_PREFIX}{name}"
            ids[key] = _columns(sizes[name])
            place = use.table, name, key, axis, offsets.pop(), sizes[name]
            positions.append(Position(*place))
    return Positions(positions, ids)


def feature_of(name: str) -> str | None:
    """The feature of a name in `Positions.ids`; None for other names."""
    return name.removeprefix(_PREFIX) if name.startswith(_PREFIX) else None


def _is_matrix(value: tf.Tensor) -> bool:
    numbers = isinstance(value, tf.Tensor) and not value.dtype.is_bool
    return numbers and value.dtype != tf.string and 0 not in value.shape


def _columns(size: int) -> FeatureIds:
    every = np.arange(size)
    none = np.zeros(0, np.int64)
    return FeatureIds(
        f"{size} columns", False, every, every, none, is_discrete=False, varies=False
    )
