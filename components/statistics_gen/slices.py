"""The rows of each slice of a batch, with TFDV's names of slices."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from tensorflow_data_validation import constants
from tfx_bsl.arrow import array_util

from strategos.components.errors import UserError
from strategos.components.evaluation.classes.entries import SliceMembership
from strategos.components.evaluation.slices import membership
from strategos.components.evaluation.slices.slicing import Part, Slicing
from strategos.components.statistics.generators import Batch

MOST_SLICES = 500
"""The most slices of an entry of `statistics.slices`: each has its own histograms."""

KEY = "statistics.slices"

SliceKey: TypeAlias = "tuple[int, tuple[str, ...]] | None"
"""A slice: the index of its slicing, and the parts of its name; None for all rows."""


def of(
    batch: Batch, slicings: Sequence[Slicing]
) -> Iterator[tuple[SliceKey, np.ndarray]]:
    """Yields the slices of a batch, each with the indices of its rows, ascending.

    A row is in a slice once, however often it repeats the value.

    Args:
      batch: Decoded tf.Examples.
      slicings: The slicings.

    Raises:
      UserError: A slicing has too many slices.
    """
    for index, slicing in enumerate(slicings):
        parts = sorted(slicing.parts, key=lambda part: part.feature)
        members = [_of_part(batch, part, slicing) for part in parts]
        member = members[0] if len(members) == 1 else membership.crossed(members)
        check(len(member.values), slicing)
        order = np.argsort(member.code, kind="stable")
        firsts = np.arange(1, len(member.values))
        bounds = np.searchsorted(member.code[order], firsts)
        groups = np.split(member.row[order], bounds) if len(member.values) else []
        for value, rows in zip(member.values, groups, strict=True):
            yield (index, value if isinstance(value, tuple) else (value,)), rows


def name(key: SliceKey) -> str:
    """TFDV's name of a slice.

    As by its `get_feature_value_slicer`: `carrier_AA`, and `carrier_AA_origin_JFK` for
    a cross, ordered by feature; for bins of a feature, `distance_[500, 1000)`.
    """
    return "_".join(key[1]) if key else constants.DEFAULT_SLICE_KEY


def column_of(batch: Batch, feature: str) -> pa.Array | None:
    """A column of a batch; None if no row has a value of it.

    Args:
      batch: Decoded tf.Examples.
      feature: Its name.
    """
    index = batch.schema.get_field_index(feature)
    column = None if index < 0 else batch.column(index)
    return None if column is None or pa.types.is_null(column.type) else column


def check(slices: int, slicing: Slicing) -> None:
    """Rejects more slices than memory is planned for.

    Args:
      slices: Number of slices.
      slicing: Their slicing.

    Raises:
      UserError: They are too many.
    """
    if slices > MOST_SLICES:
        raise UserError(
            "the data have more distinct values of it",
            key=KEY,
            received=f"`{slicing.name}`",
            expected=f"at most {MOST_SLICES:,} slices of an entry",
            remedy="Slice by a coarser feature: a group, a region, or `bins`.",
        )


def _of_part(batch: Batch, part: Part, slicing: Slicing) -> SliceMembership:
    """The rows of each value; the values are the parts of names."""
    column = column_of(batch, part.feature)
    if column is None:
        nothing = np.zeros(0, np.int64)
        return SliceMembership([], nothing, nothing)
    flat, row = array_util.flatten_nested(column, True)
    values, code = _by_value(flat, part)
    check(len(values), slicing)
    codes: dict[str, int] = {}
    texts = (f"{part.feature}_{_text(value)}" for value in values)
    place = np.array([codes.setdefault(x, len(codes)) for x in texts], np.int64)
    code = place[code]
    if len(row) and (np.diff(row) == 0).any():
        row, code = np.divmod(np.unique(row * len(codes) + code), len(codes))
    return SliceMembership(list(codes), row, code)


def _by_value(flat: pa.Array, part: Part) -> tuple[Sequence[Any], np.ndarray]:
    if part.edges and not pa.types.is_large_binary(flat.type):
        return membership.in_bins(np.asarray(flat), part)
    if part.edges:
        raise UserError(
            f"`{part.feature}` is a text, and bins are ranges of numbers",
            key=KEY,
            remedy="Remove its `bins`, to slice by each of its values.",
        )
    encoded = flat.dictionary_encode()
    if len(encoded.dictionary) > MOST_SLICES:  # makes no Python object of each value
        return range(len(encoded.dictionary)), encoded.indices.to_numpy()
    return encoded.dictionary.to_pylist(), encoded.indices.to_numpy()


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        # Bytes other than UTF-8, which TFDV rejects, stay distinct.
        return value.decode("utf-8", "backslashreplace")
    return str(value)
