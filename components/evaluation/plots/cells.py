"""Mergeable counts of numbers without known bounds, in a grid that adapts itself.

A cell is as wide as a power of two, and its borders are multiples of its width. The
width is the smallest at which few enough cells have a row; only these are kept. So an
outlier takes one cell instead of making all others wide, and as a wider cell consists
of whole narrower ones, the grid of all rows does not depend on how they are divided
(the uniform collapse of UDDSketch, Epicoco et al. 2020, here of equal widths).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

_BITS = 52  # of all coordinates of a cell, which fit exactly into a float64
_FINEST = -1000  # exponent of the narrowest width
_DENSE = 1 << 16  # cells, with empty ones, that are counted without being sorted
_SPREADS = (  # Morton 1966: a zero between any two bits
    *((16, 0x0000FFFF0000FFFF), (8, 0x00FF00FF00FF00FF)),
    *((4, 0x0F0F0F0F0F0F0F0F), (2, 0x3333333333333333), (1, 0x5555555555555555)),
)


@dataclass(frozen=True)
class Cells:
    """The cells that have rows.

    Attributes:
      exponent: A cell is 2**exponent wide.
      corners: int64 [cells, axes]: the lower borders in widths, in no order.
      sums: float64 [quantities, cells]: sums over the rows of each cell.
      most: Most cells.
    """

    exponent: int
    corners: np.ndarray
    sums: np.ndarray
    most: int

    @property
    def width(self) -> float:
        """The width of a cell on each axis."""
        return float(np.ldexp(1.0, self.exponent))

    def merge(self, later: Cells) -> Cells:
        """The cells of these and of other rows."""
        exponent = max(self.exponent, later.exponent)
        both = [each.coarser(exponent).corners for each in (self, later)]
        sums = np.concatenate([self.sums, later.sums], axis=1)
        return _collapsed(exponent, np.concatenate(both), sums, self.most)

    def coarser(self, exponent: int) -> Cells:
        """The cells by a larger width, possibly with duplicates.

        Args:
          exponent: The exponent of the width, at least that of these cells.
        """
        corners = self.corners >> min(exponent - self.exponent, 63)
        return Cells(exponent, corners, self.sums, self.most)


def of(
    values: np.ndarray, sums: np.ndarray, most: int, earlier: Cells | None = None
) -> Cells:
    """Counts rows.

    Args:
      values: float64 [rows, axes], finite; one axis or two.
      sums: float64 [quantities, rows]: the quantities to sum up.
      most: Most cells.
      earlier: Cells that these will be merged with; to start at their width is faster.
    """
    largest = np.abs(values).max(initial=0.0)
    exponent = int(np.frexp(largest)[1]) - _BITS // values.shape[1] + 1
    exponent = exponent if largest else _FINEST
    exponent = max(exponent, earlier.exponent if earlier else _FINEST, _FINEST)
    corners = np.floor(np.ldexp(values, -exponent)).astype(np.int64)
    return _collapsed(exponent, corners, sums, most)


def _collapsed(
    exponent: int, corners: np.ndarray, sums: np.ndarray, most: int
) -> Cells:
    """At most so many cells, by the smallest width."""
    corners, sums, are_distinct = _once(corners, sums)
    if are_distinct and len(corners) <= most:
        return Cells(exponent, corners, sums, most)
    axes = corners.shape[1]
    codes = _codes(corners)
    order = np.argsort(codes, kind="stable")
    codes = codes[order]
    bits = np.frexp((codes[1:] ^ codes[:-1]).astype(np.float64))[1]
    apart = -(-bits // axes)  # halvings after which two neighbours are in one cell
    cells = 1 + np.cumsum(np.bincount(apart, minlength=1)[::-1])[::-1]  # [halvings + 1]
    shift = int(np.argmax(np.append(cells[1:], 1) <= most))
    starts = np.append(0, np.flatnonzero(apart > shift) + 1)
    kept = np.add.reduceat(sums[:, order], starts, axis=1)
    return Cells(exponent + shift, corners[order[starts]] >> shift, kept, most)


def _once(corners: np.ndarray, sums: np.ndarray) -> tuple[np.ndarray, np.ndarray, bool]:
    """Each cell once, if the cells lie close together; and whether they do."""
    if not len(corners):
        return corners, sums, True
    low = corners.min(axis=0)
    spans = (corners.max(axis=0) - low + 1).tolist()
    if math.prod(spans) > _DENSE:
        return corners, sums, False
    place = np.ravel_multi_index((corners - low).T, spans)
    full = np.flatnonzero(np.bincount(place))
    once = np.column_stack(np.unravel_index(full, spans)) + low
    return once, np.stack([np.bincount(place, each)[full] for each in sums]), True


def _codes(corners: np.ndarray) -> np.ndarray:
    """Codes of which a cell twice as wide has all those without their last bits."""
    columns = (corners + (1 << (_BITS // corners.shape[1] - 1))).T
    if len(columns) == 1:
        return columns[0]
    first, second = map(_spread, columns)
    return first << 1 | second


def _spread(number: np.ndarray) -> np.ndarray:
    for shift, mask in _SPREADS:
        number = (number | number << shift) & mask
    return number
