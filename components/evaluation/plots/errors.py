"""Mergeable counts of a regression's predictions and errors; numpy only.

An error is prediction minus label; of a row that is reconstructed, the mean of the
squared errors of its values. The counts take memory for cells, not for rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from strategos.components.evaluation.plots import cells
from strategos.components.evaluation.plots.cells import Cells

GROUPS = 20
"""Groups of predictions, of about equally many rows."""
SHARES = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)
"""Shares of rows with errors that are not larger than the quantile."""
SQUARES = 20
"""Most squares on each axis, from the first to the last percentile of the rows."""
_CELLS, _PAIRS = 2048, 2048  # most cells on a line, and of two axes
_LEAST = 2.0**-100  # error of a row, for its logarithm


@dataclass(frozen=True)
class Errors:
    """The predictions of one model for the rows that count.

    Attributes:
      predicted: By prediction: sums of weights, of weights times predictions, times
        errors and times squared errors.
      error: By error: sums of weights, and of weights times errors.
      pairs: By prediction and label: sums of weights.
    """

    predicted: Cells
    error: Cells
    pairs: Cells

    def merge(self, later: Errors) -> Errors:
        """The counts of these and of other rows."""
        return Errors(
            self.predicted.merge(later.predicted),
            self.error.merge(later.error),
            self.pairs.merge(later.pairs),
        )


def of(
    label: np.ndarray,
    predicted: np.ndarray,
    weight: np.ndarray | None,
    earlier: Errors | None = None,
) -> Errors:
    """Counts a batch of rows; those that are not finite are left out.

    Args:
      label: float64 [rows].
      predicted: float64 [rows].
      weight: float64 [rows], not negative; None for 1.
      earlier: Counts that these will be merged with.
    """
    weight = np.ones(len(label)) if weight is None else weight
    with np.errstate(over="ignore", invalid="ignore"):
        error = predicted - label
    kept = np.isfinite(error) & (weight > 0)
    label, predicted, error, weight = (
        each[kept] for each in (label, predicted, error, weight)
    )
    of_error = weight * error
    with np.errstate(over="ignore"):
        moments = np.stack([weight, weight * predicted, of_error, of_error * error])
    places = {
        "predicted": (predicted[:, np.newaxis], moments, _CELLS),
        "error": (error[:, np.newaxis], moments[[0, 2]], _CELLS),
        "pairs": (np.column_stack([predicted, label]), moments[:1], _PAIRS),
    }
    return Errors(
        **{
            name: cells.of(*each, earlier=getattr(earlier, name, None))
            for name, each in places.items()
        }
    )


def of_rows(
    features: np.ndarray,
    answer: np.ndarray,
    weight: np.ndarray | None,
    earlier: Errors | None = None,
) -> Errors:
    """Counts a batch of reconstructed rows by the binary logarithm of their errors.

    An anomaly may be a million times as far out as a usual row.

    Args:
      features: float64 [rows, values].
      answer: float64 [rows, values].
      weight: float64 [rows], not negative; None for 1.
      earlier: Counts that these will be merged with.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        error = ((answer - features) ** 2).mean(axis=1)
        logarithm = np.log2(np.maximum(error, _LEAST))
    return of(np.zeros(len(error)), logarithm, weight, earlier)


def points_of_rows(errors: Errors) -> dict[str, Any]:
    """The points of one model that reconstructs rows.

    Returns:
      `quantiles` of the error of a row, as [share, error, rows in its cell], exact to
      the share `resolution` of themselves.
    """
    quantiles = _quantiles(errors.error)
    return {
        "quantiles": [[share, 2.0**error, rows] for share, error, rows in quantiles],
        "resolution": 2.0**errors.error.width - 1,
    }


def points(errors: Errors) -> dict[str, Any]:
    """The points of one model.

    Returns:
      `groups` (groups of rows by prediction: `predicted`, the mean prediction;
      `observed`, the mean label; `error` and `deviation`, mean and standard deviation
      of the errors; `rows`, the sum of their weights), `quantiles` of the error, as
      [share, error, rows in its cell], exact to `resolution`, and `squares`: `width`
      of a square, `squares` (lower borders of prediction and label, and rows), and
      `outside`, the rows beyond the outermost squares.
    """
    return {
        "groups": _groups(errors.predicted),
        "quantiles": _quantiles(errors.error),
        "resolution": errors.error.width,
        "squares": _squares(errors.pairs),
    }


def _groups(grid: Cells) -> list[dict[str, float]]:
    """Groups of neighbouring cells; a cell with many rows is a group of its own."""
    sums = grid.sums[:, np.argsort(grid.corners[:, 0])]
    rows = sums[0]
    before = np.cumsum(rows) - rows
    group = np.floor(GROUPS * (before + rows / 2) / max(rows.sum(), 1e-300))
    group = group.clip(0, GROUPS - 1).astype(np.int64)
    totals = np.stack([np.bincount(group, each, GROUPS) for each in sums])
    weight, predicted, error, squared = totals[:, totals[0] > 0]
    mean = error / weight
    deviation = np.sqrt(np.maximum(squared / weight - mean**2, 0))
    columns = {
        "predicted": predicted / weight,
        "observed": (predicted - error) / weight,
        **{"error": mean, "deviation": deviation, "rows": weight},
    }
    rows_of = zip(*(each.tolist() for each in columns.values()), strict=True)
    return [dict(zip(columns, each, strict=True)) for each in rows_of]


def _quantiles(grid: Cells) -> list[list[float]]:
    """The mean errors of the cells in which the quantiles are, and their rows."""
    if not grid.sums.size:
        return []
    weight, error = grid.sums[:, np.argsort(grid.corners[:, 0])]
    up_to = np.cumsum(weight)
    wanted = np.array(SHARES) * up_to[-1]
    place = np.searchsorted(up_to, wanted).clip(0, len(up_to) - 1)
    columns = SHARES, (error[place] / weight[place]).tolist(), weight[place].tolist()
    return [list(row) for row in zip(*columns, strict=True)]


def _squares(grid: Cells) -> dict[str, Any]:
    """Squares from the first to the last percentile of both axes."""
    rows = grid.sums[0]
    if not len(rows):
        return {"width": grid.width, "squares": [], "outside": 0.0}
    low, high = np.array([_middle(column, rows) for column in grid.corners.T]).T
    exponent = grid.exponent
    while (high - low).max() >= SQUARES:
        low, high, exponent = low >> 1, high >> 1, exponent + 1
    corners = grid.coarser(exponent).corners
    inside = ((corners >= low) & (corners <= high)).all(axis=1)
    shown, place = np.unique(corners[inside], axis=0, return_inverse=True)
    counted = np.bincount(place.reshape(-1), rows[inside], len(shown))
    width = float(np.ldexp(1.0, exponent))
    squares = np.column_stack([shown * width, counted]).tolist()
    outside = float(rows[~inside].sum())
    return {"width": width, "squares": squares, "outside": outside}


def _middle(corners: np.ndarray, rows: np.ndarray) -> tuple[int, int]:
    """The corners at the first and the last percentile."""
    order = np.argsort(corners)
    up_to = np.cumsum(rows[order])
    ends = np.searchsorted(up_to, np.array([0.01, 0.99]) * up_to[-1])
    first, last = corners[order][ends.clip(0, len(order) - 1)].tolist()
    return first, last
