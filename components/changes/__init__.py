"""Compares the change of a figure with a bound."""

from __future__ import annotations

import sys

_ROUNDED = 4 * sys.float_info.epsilon  # of two figures, their difference and the bound


def is_within(before: float, after: float, limit: float) -> bool:
    """Whether a figure rises by at most `limit`, but for the rounding of doubles.

    A rise from 0.02 to 0.17 is within 0.15, though 0.17 - 0.02 > 0.15 as doubles.

    Args:
      before: The figure before; finite.
      after: The figure after; finite.
      limit: The largest rise; 0 allows none, however small.
    """
    rounded = _ROUNDED * max(abs(before), abs(after)) if limit else 0.0
    return after - before <= limit + rounded
