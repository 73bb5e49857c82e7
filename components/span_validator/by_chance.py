"""How far apart samples of one distribution are by chance, at their numbers of rows.

The null hypothesis: rows of both data sets are drawn from one distribution, each for
itself. Under it, a distance exceeds the result with a probability of at most `level`.

Text (`of_values`): bounds that hold for any number of rows. Given how often a value
occurs in both samples together, its count in one of them is hypergeometric (Fisher's
exact test), and its tail is at most a geometric series, as the distribution is
log-concave; probabilities are added up over all values. For values that are new, counts
are negatively associated (Joag-Dev & Proschan 1983), so the Chernoff bound of
independent ones holds.

Numbers (`of_numbers`): a bootstrap. Pairs of samples are drawn from both data sets
together, their histograms made and compared as by TFDV. The extremes of the data are
among the numbers: they decide on the buckets. Beyond the 95th percentile the
tail is exponential, which the tail of a chi-square distribution is at most, as is
(asymptotically) that of the Jensen-Shannon divergence between histograms.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from scipy.special import gammaln

from strategos.components.span_validator.measure import Numbers, Values

Floats: TypeAlias = np.ndarray

_SAMPLES = 1000  # pairs that the bootstrap draws
_TAIL = 0.05
_NEW = 0.1  # the part of the level for values that are new
_BUCKETS = 10  # of TFDV's histograms


def of_values(now: Values, other: Values, level: float) -> float:
    """The distance that chance explains between the values of a text, 0 to 1.

    Args:
      now: The values of the data.
      other: The values of the data to compare with. If they are not complete, a value
        that is not among them counts as the rarest that is.
      level: Probability of a larger distance by chance.
    """
    least = 0.0 if other.complete else min(other.counts.values())
    unlisted = least * other.scale
    names = now.counts.keys() | other.counts.keys()
    pooled = np.rint(
        [
            now.counts.get(name, 0) * now.scale
            + (other.counts[name] * other.scale if name in other.counts else unlisted)
            for name in names
        ]
    )
    counts, times = np.unique(pooled[pooled > 0], return_counts=True)
    rows, others = np.maximum(np.rint([now.rows, other.rows]), 1)
    total = max(rows + others, counts.max(initial=0))
    # Of two values, either moves as the other does.
    moving = (counts[:1], np.ones(1)) if times.sum() == 2 else (counts, times)
    distance = _of_one_value(moving, rows, total - rows, level * (1 - _NEW))
    if other.complete:
        new = _of_new_values(counts, times, rows, total, level * _NEW)
        distance = max(distance, new / rows - other.once / other.total)
    return float(min(distance, 1.0))


def _of_one_value(
    moving: tuple[Floats, Floats], rows: float, others: float, level: float
) -> float:
    """The largest difference between the shares of one value in both samples."""
    counts, times = moving
    low, high = 0.0, 1.0
    for _ in range(30):
        middle = (low + high) / 2
        tails = [
            _tail(np.ceil((middle + counts / b) * a * b / (a + b) - 1e-9), counts, a, b)
            for a, b in ((rows, others), (others, rows))
        ]
        if float(times @ sum(tails)) <= level:
            high = middle
        else:
            low = middle
    return high


def _tail(least: Floats, counts: Floats, rows: float, others: float) -> Floats:
    """An upper bound of the probability that a sample of `rows` has `least` or more.

    Args:
      least: float64[n].
      counts: float64[n], occurrences among all rows.
      rows: Rows of the sample.
      others: The other rows.
    """
    x, most = least, np.minimum(counts, rows)
    possible = x <= most
    x = np.minimum(x, most)
    apart = others - counts + x  # rows of the other sample with another value
    with np.errstate(divide="ignore", invalid="ignore"):
        mass = np.exp(
            _log_choose(counts, x)
            + _log_choose(rows + others - counts, rows - x)
            - _log_choose(rows + others, rows)
        )
        ratio = (counts - x) * (rows - x) / ((x + 1) * (apart + 1))
        bound = np.where((ratio < 1) & (apart >= 0), mass / (1 - ratio), 1.0)
    return np.where(possible, np.minimum(bound, 1.0), 0.0)


def _of_new_values(
    counts: Floats, times: Floats, rows: float, total: float, level: float
) -> float:
    """The largest number of rows with values that the other sample does not have."""
    few = counts <= rows
    counts, times = counts[few], times[few]
    inside = _log_choose(total - counts, rows - counts) - _log_choose(total, rows)
    outside = np.log1p(-np.minimum(np.exp(inside), 1 - 1e-16))
    rates = np.geomspace(1e-4, 20, 100)[:, None]
    growth = np.logaddexp(outside, inside + rates * counts) @ times
    return float(((growth - np.log(level)) / rates[:, 0]).min())


def _log_choose(of: Floats | float, some: Floats | float) -> Floats:
    logarithm = (
        gammaln(of + 1.0) - gammaln(some + 1.0) - gammaln(np.subtract(of, some) + 1)
    )
    return np.asarray(logarithm)


def of_numbers(now: Numbers, other: Numbers, level: float) -> float:
    """The divergence that chance explains between histograms of numbers, 0 to 1.

    Args:
      now: The numbers of the data.
      other: The numbers of the data to compare with.
      level: Probability of a larger divergence by chance.
    """
    random = np.random.default_rng(0)
    numbers = np.concatenate([now.sample, other.sample])
    shares = np.concatenate([x.shares * x.rows for x in (now, other)])
    order = np.argsort(numbers, kind="stable")
    numbers, shares = numbers[order], shares[order] / shares.sum()

    def histograms(rows: float) -> _Histograms:
        counts = random.multinomial(max(round(rows), 1), shares, _SAMPLES)
        return _Histograms(numbers, counts)

    drawn = np.sort(divergence(histograms(now.rows), histograms(other.rows)))
    tail = drawn[int(len(drawn) * (1 - _TAIL)) :]
    beyond = float((tail - tail[0]).mean())
    return min(float(tail[0] + max(np.log(_TAIL / level), 0) * beyond), 1.0)


class _Histograms:
    """Histograms of many samples, of buckets of equal width as TFDV makes them.

    Args:
      numbers: float64[n], ascending.
      counts: int64[samples, n], how often each number is in each sample.

    Attributes:
      bounds: float64[samples, buckets + 1].
      shares: float64[samples, buckets + 1], of the rows below each bound.
    """

    def __init__(self, numbers: Floats, counts: np.ndarray):
        present = counts > 0
        low = numbers[present.argmax(axis=1)]
        high = numbers[len(numbers) - 1 - present[:, ::-1].argmax(axis=1)]
        self.bounds = np.linspace(low, high, _BUCKETS + 1, axis=1)
        width = np.where(high > low, high - low, 1.0)[:, None]
        places = np.clip((numbers - low[:, None]) / width * _BUCKETS, 0, _BUCKETS - 1)
        first = np.arange(len(counts))[:, None] * _BUCKETS
        flat = (places.astype(np.int64) + first).ravel()
        size = len(counts) * _BUCKETS
        by_bucket = np.bincount(flat, counts.ravel(), size).reshape(-1, _BUCKETS)
        self.shares = np.zeros((len(counts), _BUCKETS + 1))
        self.shares[:, 1:] = by_bucket.cumsum(axis=1)
        self.shares /= self.shares[:, -1:]

    @property
    def single(self) -> Floats:
        """bool[samples]: whether all numbers of a sample are equal."""
        return np.asarray(self.bounds[:, 0] == self.bounds[:, -1])

    def below(self, points: Floats) -> Floats:
        """The shares of the rows below some points; rows of a bucket are spread evenly.

        Args:
          points: float64[samples, points].
        """
        low, high = self.bounds[:, :1], self.bounds[:, -1:]
        width = np.where(high > low, high - low, 1.0)
        place = np.clip((points - low) / width * _BUCKETS, 0, _BUCKETS)
        bucket = np.minimum(place.astype(np.int64), _BUCKETS - 1)
        left = np.take_along_axis(self.shares, bucket, axis=1)
        right = np.take_along_axis(self.shares, bucket + 1, axis=1)
        return left + (place - bucket) * (right - left)


def divergence(one: _Histograms, other: _Histograms) -> Floats:
    """The Jensen-Shannon divergence (base 2) of pairs of histograms.

    The buckets of both are cut at the bounds of either. A sample of equal numbers is
    apart from any other (1), but for one of the same number (0).

    Args:
      one: Histograms of n samples.
      other: Histograms of n samples.

    Returns:
      float64[n].
    """
    points = np.sort(np.concatenate([one.bounds, other.bounds], axis=1), axis=1)
    p, q = (np.diff(each.below(points), axis=1) for each in (one, other))
    both = (p + q) / 2

    def information(of: Floats) -> Floats:
        terms = np.where(of > 0, of, 1) / np.where(both > 0, both, 1)
        return np.asarray((of * np.log2(terms)).sum(axis=1))

    divergences = (information(p) + information(q)) / 2
    equal = one.single & other.single & (one.bounds[:, 0] == other.bounds[:, 0])
    return np.where(one.single | other.single, np.where(equal, 0.0, 1.0), divergences)
