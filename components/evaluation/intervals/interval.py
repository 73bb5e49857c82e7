"""Confidence intervals from the metrics of resamples; numpy only."""

from __future__ import annotations

import statistics
from collections.abc import Mapping

import numpy as np

Interval = tuple[float, float]


def around(
    values: Mapping[str, float], resampled: Mapping[str, np.ndarray], level: float
) -> dict[str, Interval]:
    """The interval of each metric: the value ± t · standard error.

    Args:
      values: The metrics of all rows.
      resampled: float64 [resamples], the metrics of the resamples by name.
      level: The confidence level.

    Returns:
      (low, high) by name; none for a metric that is undefined in a resample.
    """
    intervals = {}
    for name, value in values.items():
        samples = resampled[name]
        if not (np.isfinite(samples).all() and np.isfinite(value)):
            continue
        half = quantile(level, len(samples) - 1) * float(samples.std(ddof=1))
        intervals[name] = value - half, value + half
    return intervals


def quantile(level: float, freedom: int) -> float:
    """The two-sided quantile of Student's t.

    By the expansion 26.7.5 of Abramowitz and Stegun, which is right to four digits
    from 19 degrees of freedom on.

    Args:
      level: The share of the distribution within ± the quantile.
      freedom: Degrees of freedom.
    """
    z = statistics.NormalDist().inv_cdf((1 + level) / 2)
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + sum(term / freedom**power for power, term in enumerate(terms, 1))
