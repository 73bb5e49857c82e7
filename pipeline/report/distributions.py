"""Distributions of one feature in several data sets, from TFDV's statistics alone.

TFDV keeps two histograms of a feature of numbers, of ten buckets each: of equal widths,
and of equal counts. Together they are points of the cumulative distribution, from which
the shares between any borders follow; between two points, values are spread evenly.
No numpy: the command that writes the report starts faster without it.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise
from typing import TypeAlias

from tensorflow_metadata.proto.v0 import statistics_pb2

Feature: TypeAlias = statistics_pb2.FeatureNameStatistics

BINS = 20
"""Bins between the borders of a feature of numbers."""
_STANDARD = statistics_pb2.Histogram.STANDARD
_QUANTILES = statistics_pb2.Histogram.QUANTILES
_INT = statistics_pb2.FeatureNameStatistics.INT


def has_numbers(feature: Feature) -> bool:
    """Whether a feature has finite numbers and their histograms."""
    numbers = feature.num_stats
    ends = numbers.min, numbers.max
    return bool(numbers.histograms) and all(map(math.isfinite, ends))


def distance(one: Feature, other: Feature) -> float | None:
    """How far a feature of one data set is from the same feature of another, 0 to 1.

    Of numbers, the Jensen-Shannon divergence (base 2) of TFDV's histograms of equal
    widths; of text, the largest difference of a value's share. A value that is not
    among the most frequent ones counts as frequent as the rarest of these.

    Args:
      one: The feature in one data set.
      other: The feature in the other.

    Returns:
      The distance; None if they differ in type or one of both has no value.
    """
    if has_numbers(one) and has_numbers(other):
        return _divergence(one, other)
    if one.string_stats.top_values and other.string_stats.top_values:
        return _largest_difference(one, other)
    return None


def borders(features: Sequence[Feature]) -> list[float]:
    """Borders of bins that show a feature of numbers in all of some data sets.

    Outliers farther from the first or the last decile than these are from each other
    are outside. Integers of few values have a bin each.

    Args:
      features: The feature in each data set, with numbers.
    """
    low = min(_ends(each)[0] for each in features)
    high = max(_ends(each)[1] for each in features)
    if all(each.type == _INT for each in features) and high - low < BINS:
        first, last = math.ceil(low), math.floor(high)
        return [first + n - 0.5 for n in range(last - first + 2)]
    if low == high:
        return [low - 0.5, low + 0.5]
    return [low + (high - low) * n / BINS for n in range(BINS)] + [high]


def shares(feature: Feature, borders: Sequence[float]) -> list[float]:
    """The share of a feature's numbers in each bin, 0 to 1; the last has its border.

    Args:
      feature: A feature with numbers.
      borders: Ascending; see `borders`.
    """
    points = _integers(feature) if _is_narrow(feature) else _both(feature)
    below = [_below(points, border) for border in borders]
    if borders[-1] >= feature.num_stats.max:
        below[-1] = 1.0
    return [right - left for left, right in pairwise(below)]


def frequent(features: Sequence[Feature], most: int) -> dict[str, list[float | None]]:
    """Shares of the most frequent values of a text feature in some data sets.

    Args:
      features: The feature in each data set; the first decides on the order.
      most: Number of values.

    Returns:
      The shares by value; None for a value that is not among the most frequent ones of
      a data set.
    """
    known = [_shares_of_values(each) for each in features]
    names = dict.fromkeys(name for each in known for name in list(each)[:most])
    largest = sorted(names, key=lambda x: -max(each.get(x, 0.0) for each in known))
    first = known[0]
    order = sorted(largest[:most], key=lambda name: -first.get(name, 0.0))
    rarest = [0.0 if _lists_all(each) else None for each in features]
    return {
        name: [each.get(name, x) for each, x in zip(known, rarest, strict=True)]
        for name in order
    }


Points: TypeAlias = "tuple[list[float], list[float]]"
"""Numbers, ascending, and the share of the values below each."""


def _points(feature: Feature, kinds: Iterable[int]) -> Points:
    """Points of the cumulative distribution that histograms of some kinds know."""
    points = []
    for histogram in feature.num_stats.histograms:
        if histogram.type in kinds:
            buckets = [
                (each.low_value, each.high_value, each.sample_count)
                for each in histogram.buckets
            ]
            total, below = sum(count for *_, count in buckets) or 1.0, 0.0
            for low, high, count in buckets:
                points += [(low, below / total), (high, (below + count) / total)]
                below += count
    points.sort()
    numbers, shares = [x for x, _ in points], [share for _, share in points]
    return numbers, list(accumulate(shares, max))


def _both(feature: Feature) -> Points:
    return _points(feature, (_STANDARD, _QUANTILES))


def _is_narrow(feature: Feature) -> bool:
    """Whether integers have so few values that the buckets of equal widths tell."""
    numbers = feature.num_stats
    return feature.type == _INT and numbers.max - numbers.min < BINS


def _integers(feature: Feature) -> Points:
    """The points of few integers: a bucket's values are at the integers in it."""
    numbers, shares = _points(feature, (_STANDARD,))
    last = feature.num_stats.max
    moved = [x + 0.5 if x >= last else math.ceil(x) - 0.5 for x in numbers]
    return moved, shares


def _ends(feature: Feature) -> tuple[float, float]:
    """The least and the largest number that are no outliers."""
    numbers = feature.num_stats
    low, high = numbers.min, numbers.max
    for histogram in numbers.histograms:
        if histogram.type == _QUANTILES and len(histogram.buckets) > 1:
            first = histogram.buckets[0].high_value
            last = histogram.buckets[-1].low_value
            if last > first:
                width = last - first
                low, high = max(low, first - width), min(high, last + width)
    return low, high


def _below(points: Points, x: float) -> float:
    """The share of the values that are less than a number."""
    numbers, shares = points
    place = bisect_left(numbers, x)
    if place == len(numbers):
        return 1.0
    right, share = numbers[place], shares[place]
    if right == x or place == 0:
        return share if right == x else 0.0
    left, before = numbers[place - 1], shares[place - 1]
    return before + (share - before) * (x - left) / (right - left)


def _divergence(one: Feature, other: Feature) -> float:
    ends = [(each.num_stats.min, each.num_stats.max) for each in (one, other)]
    if any(low == high for low, high in ends):
        return float(ends[0] != ends[1])
    first, second = _equal_widths(one), _equal_widths(other)
    cuts = sorted({*first[0], *second[0]})
    p, q = _at_each(first, cuts), _at_each(second, cuts)
    divergence = 0.0
    for (a, b), (c, d) in zip(pairwise(p), pairwise(q), strict=True):
        mine, theirs = b - a, d - c
        both = mine + theirs
        for share in mine, theirs:
            if share > 0:
                divergence += share * math.log2(2 * share / both) / 2
    return min(max(divergence, 0.0), 1.0)


def _equal_widths(feature: Feature) -> Points:
    """The points of the histogram of equal widths: its buckets are neighbours."""
    for histogram in feature.num_stats.histograms:
        if histogram.type == _STANDARD:
            buckets = histogram.buckets
            numbers = [each.low_value for each in buckets]
            below = list(accumulate([each.sample_count for each in buckets], initial=0))
            total = below[-1] or 1.0
            ends = [*numbers, buckets[-1].high_value]
            return ends, [each / total for each in below]
    return [], []


def _at_each(points: Points, cuts: Sequence[float]) -> list[float]:
    """The result of `_below` for each of ascending numbers, in one pass."""
    numbers, shares = points
    values, place = [], 0
    for cut in cuts:
        while place < len(numbers) and numbers[place] < cut:
            place += 1
        if place == len(numbers):
            values.append(1.0)
        elif numbers[place] == cut or place == 0:
            values.append(shares[place])
        else:
            left, before = numbers[place - 1], shares[place - 1]
            slope = (shares[place] - before) / (numbers[place] - left)
            values.append(before + slope * (cut - left))
    return values


def _largest_difference(one: Feature, other: Feature) -> float:
    first, second = _shares_of_values(one), _shares_of_values(other)
    unlisted = [
        0.0 if _lists_all(feature) else min(known.values())
        for feature, known in ((one, first), (other, second))
    ]
    apart = (_apart(name, first, second, unlisted) for name in {**first, **second})
    return max(0.0, *apart)


def _apart(
    name: str,
    first: dict[str, float],
    second: dict[str, float],
    unlisted: Sequence[float],
) -> float:
    mine, theirs = first.get(name), second.get(name)
    if mine is None:
        return (theirs or 0.0) - unlisted[0]
    return mine - unlisted[1] if theirs is None else abs(mine - theirs)


def _shares_of_values(feature: Feature) -> dict[str, float]:
    """The share of each of the most frequent values, the most frequent first."""
    total = feature.string_stats.common_stats.tot_num_values
    listed = feature.string_stats.top_values
    return {each.value: each.frequency / max(total, 1) for each in listed}


def _lists_all(feature: Feature) -> bool:
    text = feature.string_stats
    return int(text.unique) <= len(text.top_values)
