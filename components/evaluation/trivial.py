"""Metrics of a trivial model, by slice, from mergeable counts of labels; numpy only.

The trivial model knows no feature and gives one answer for all rows of a slice: the
mean label, or for classes the most frequent class, with the shares of all classes as
probabilities; of several labels or features a row, the mean of each. A model that is
not better has learned nothing of use.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from strategos.components.evaluation.classes.entries import spread
from strategos.components.evaluation.curves import narrow
from strategos.components.evaluation.metrics import Metric

MOST_VALUES = 1024  # distinct labels of a slice that are kept apart
_LEAST_VALUES, _ALL_VALUES = 16, 8192  # of each label of a row, and of all of them
_COMPACTED = 1 << 14  # entries up to which nothing is compacted


def _nothing() -> np.ndarray:  # Python 3.11 takes no array as a default
    return np.zeros(0)


@dataclass(frozen=True)
class OneAnswer:
    """The trivial model, which gives one answer for all rows of a slice.

    Attributes:
      task: One of `metrics.TASKS`.
      answer: float64 [slices]: the mean label, over all classes of multi_label and all
        values of reconstruction; or the most frequent class.
      share: float64 [slices], multi_class: the share of rows of that class.
      loss: float64 [slices], multi_class: cross entropy of the shares of all classes.
      deviation: float64 [slices], regression and reconstruction: mean distance of a
        label from the mean.
      variance: float64 [slices], of the same: mean of its square.
      shares: float64 [classes, slices], binary and multi_label: the mean of each label
        of a row, which is the answer.
      by_query: Sums of the metrics by query, by name; see `by_query.metrics`.
    """

    task: str
    answer: np.ndarray
    share: np.ndarray = field(default_factory=_nothing)
    loss: np.ndarray = field(default_factory=_nothing)
    deviation: np.ndarray = field(default_factory=_nothing)
    variance: np.ndarray = field(default_factory=_nothing)
    shares: np.ndarray = field(default_factory=_nothing)
    by_query: Mapping[str, np.ndarray] = field(default_factory=dict)

    def ones(self, metric: Metric) -> np.ndarray:
        """Whether the answer for each class is positive; bool [classes, slices].

        Args:
          metric: A metric with a threshold.
        """
        return self.shares > (metric.threshold or 0.5)

    def positives(self, metric: Metric) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """True positives, positive answers and positive labels a row.

        Args:
          metric: A metric with a threshold.

        Returns:
          float64 [slices] each, summed over the classes.
        """
        ones = self.ones(metric)
        true_positives = np.where(ones, self.shares, 0.0).sum(axis=0) + 0 * self.answer
        return (
            true_positives,
            ones.sum(axis=0) + 0 * self.answer,
            self.shares.sum(axis=0),
        )


class Labels:
    """Counts of labels by slice and value.

    A slice with more than `MOST_VALUES` distinct numbers keeps fewer of their leading
    bits, and the first two moments of the rest: means and variances are exact, and mean
    absolute deviations are right to 5 digits; to 3 if a row has many labels, of which
    fewer numbers are kept. Classes are all kept. The result depends on the rows alone,
    not on how they are cut or merged.

    Args:
      classes: Whether labels are numbers of classes.
      width: Labels of a row, which are counted apart: the labels of a row stand
        together among the entries.
    """

    def __init__(self, classes: bool = False, width: int = 1):
        self._classes, self._width = classes, width
        most = max(_LEAST_VALUES, _ALL_VALUES // width)
        self._most = min(most, MOST_VALUES)
        # Each part: slice, value, rows, and the sums over rows of label minus value
        # and of its square; one number an entry.
        self._parts: list[tuple[np.ndarray, ...]] = []
        self._cut = np.zeros(0, np.uint32)  # by slice: bits of float32 that are cut off
        self._entries = self._compacted = 0

    def add(
        self, code: np.ndarray, label: np.ndarray, weight: np.ndarray | None = None
    ) -> None:
        """Counts rows.

        Args:
          code: int [entries], the slice of each row.
          label: float64 [entries], finite.
          weight: float64 [entries], above 0, that stands for a row's count; None for 1.
        """
        if self._width > 1:
            code = code * self._width + np.arange(len(code)) % self._width
        value = label if self._classes else label.astype(np.float32)
        rest = label - value
        rows = np.ones(len(code)) if weight is None else weight
        part = _in_order(code, value, rows, rows * rest, rows * rest**2)
        self._append(_small(*_merged(*part)))

    def empty(self) -> Labels:
        """Counts of no rows."""
        return Labels(self._classes, self._width)

    def merge(self, later: Labels, place: np.ndarray) -> None:
        """Adds the counts of other rows.

        Args:
          later: Counts of other rows; must not be used again.
          place: int [slices of `later`], the slice here of each slice there.
        """
        place = spread(place, self._width)
        cut = np.zeros(max([len(self._cut), *(place + 1)]), np.uint32)
        cut[: len(self._cut)] = self._cut
        there = place[: len(later._cut)]
        cut[there] = np.maximum(cut[there], later._cut)
        self._cut = cut
        parts = ((narrow(place[code]), *others) for code, *others in later._parts)
        self._append(*parts)

    def compact(self) -> None:
        """Makes the counts small and quick to merge: one entry by slice and value."""
        if not self._parts:
            return
        columns = (np.concatenate(column) for column in zip(*self._parts, strict=True))
        code, *others = _in_order(*columns)
        cut = np.zeros(int(code.max()) + 1 if len(code) else 0, np.uint32)
        cut[: len(self._cut)] = self._cut[: len(cut)]
        while True:
            code, *others = _merged(code, *_shifted(cut[code], *others))
            count = np.bincount(code, minlength=len(cut))
            full = count > self._most
            if self._classes or not full.any():
                break
            # A bit less halves them at most, so that no number of bits is passed over.
            halvings = np.log2(count[full] / self._most).astype(np.uint32)
            cut[full] += np.maximum(halvings, 1)
        self._parts, self._cut = [_small(code, *others)], cut
        self._entries = self._compacted = len(code)

    def varied(self, slices: int, parts: np.ndarray | None = None) -> np.ndarray:
        """Whether a slice has two labels or more; bool [slices].

        Args:
          slices: Number of slices.
          parts: See `one_answer`.
        """
        place = self._places(slices, parts)
        distinct = self._counts(len(place))[0]
        return _sum(place, distinct > 1, slices) > 0

    def one_answer(
        self, task: str, slices: int, parts: np.ndarray | None = None
    ) -> OneAnswer:
        """The trivial model of each slice.

        Args:
          task: One of `metrics.TASKS`.
          slices: Number of slices.
          parts: int [width], if these counts are of all rows: the slice of each label
            of a row. By default, a slice has all labels of its rows.
        """
        if task == "multi_class":
            return self._of_classes(slices)
        place = self._places(slices, parts)
        _, rows, total = self._counts(len(place))
        rows = np.where(rows > 0, rows, np.nan)  # all rows of a slice may weigh 0
        mean = total / rows
        if task not in ("regression", "reconstruction"):
            shares = mean.reshape(slices, self._width).T
            return OneAnswer(task, shares.mean(axis=0), shares=shares)
        code, value, count, first, second = self._entries_of()
        off = value - mean[code]
        deviation = np.abs(count * off + first)
        # Elsewhere all rows of an entry are on one side of the mean.
        around = _shortened(mean[code], self._cut[code]) == value
        near = (each[around] for each in (off, count, first, second))
        deviation[around] = _as_if_even(*near)
        squares = second + 2 * off * first + count * off**2
        means = mean, *(_sum(code, x, len(place)) / rows for x in (deviation, squares))
        labels = np.bincount(place, minlength=slices)
        answer, deviation, variance = (_sum(place, x, slices) / labels for x in means)
        return OneAnswer(task, answer, deviation=deviation, variance=variance)

    def _places(self, slices: int, parts: np.ndarray | None) -> np.ndarray:
        """The slice of each label of the rows of each slice."""
        return np.arange(slices).repeat(self._width) if parts is None else parts

    def _of_classes(self, slices: int) -> OneAnswer:
        code, value, count, *_ = self._entries_of()
        share = count / _sum(code, count, slices)[code]
        order = np.lexsort((-value, share))  # of equal classes the first one
        most, answer = np.full(slices, np.nan), np.full(slices, np.nan)
        most[code[order]], answer[code[order]] = share[order], value[order]
        loss = -_sum(code, share * np.log(share), slices) + 0 * most
        return OneAnswer("multi_class", answer, most, loss)

    def _counts(self, slices: int) -> tuple[np.ndarray, ...]:
        """Distinct labels, rows and sum of labels by slice."""
        code, value, count, first, _ = self._entries_of()
        distinct = np.bincount(code, minlength=slices)
        total = _sum(code, count * value + first, slices)
        return distinct, _sum(code, count, slices), total

    def _entries_of(self) -> tuple[np.ndarray, ...]:
        self.compact()
        nothing: Sequence[np.ndarray] = np.zeros(0, np.uint8), *[np.zeros(0)] * 4
        code, *others = self._parts[0] if self._parts else nothing
        return code, *(each.astype(np.float64) for each in others)

    def _append(self, *parts: tuple[np.ndarray, ...]) -> None:
        self._parts += parts
        self._entries += sum(len(part[0]) for part in parts)
        if self._entries > 2 * max(_COMPACTED, self._compacted):
            self.compact()


def _shifted(bits: np.ndarray, value: np.ndarray, *sums: np.ndarray) -> tuple:
    """Entries with `bits` bits fewer in their values, and sums that match these."""
    rows, first, second = sums
    if not bits.any():
        return value, rows, first, second
    shorter = _shortened(value, bits)
    by = value.astype(np.float64) - shorter
    return (
        shorter,
        rows,
        first + rows * by,
        second + 2 * by * first + rows * by**2,
    )


def _shortened(value: np.ndarray, bits: np.ndarray) -> np.ndarray:
    """Values without the last bits that they have in single precision."""
    mask = np.left_shift(np.uint32(0xFFFFFFFF), bits)
    raw = value.astype(np.float32).view(np.uint32) & mask
    return raw.view(np.float32)


def _as_if_even(
    off: np.ndarray, rows: np.ndarray, first: np.ndarray, second: np.ndarray
) -> np.ndarray:
    """The sum of absolute distances of each entry, if its labels are evenly spread.

    Args:
      off: float64 [entries], the value minus the point from which to measure.
      rows: float64 [entries].
      first: float64 [entries], sum of label minus value.
      second: float64 [entries], sum of its square.
    """
    rest = first / rows
    centre = np.abs(off + rest)
    half = np.sqrt(3 * np.maximum(second / rows - rest**2, 0.0))
    across = (half**2 + centre**2) / np.where(half > 0, 2 * half, 1.0)
    return rows * np.where(centre < half, across, centre)


def _in_order(code: np.ndarray, value: np.ndarray, *sums: np.ndarray) -> tuple:
    """Entries by slice, then by value."""
    order = np.lexsort((value, code))
    return tuple(column[order] for column in (code, value, *sums))


def _merged(code: np.ndarray, value: np.ndarray, *sums: np.ndarray) -> tuple:
    """Sorted entries, added up by slice and value."""
    new = np.ones(len(code), bool)
    new[1:] = (code[1:] != code[:-1]) | (value[1:] != value[:-1])
    starts = np.flatnonzero(new)
    if len(starts):
        sums = tuple(np.add.reduceat(each, starts, dtype=np.float64) for each in sums)
    return code[starts], value[starts], *sums


def _small(code: np.ndarray, value: np.ndarray, *sums: np.ndarray) -> tuple:
    """The same entries in fewer bytes: they go from worker to worker."""
    rows, *rest = sums
    nothing = np.zeros(len(code), np.int8)
    small = (each if each.any() else nothing for each in rest)
    whole = rows.astype(np.int64)
    return narrow(code), value, narrow(whole) if (whole == rows).all() else rows, *small


def _sum(code: np.ndarray, values: np.ndarray, slices: int) -> np.ndarray:
    return np.bincount(code, values, slices).astype(np.float64, copy=False)
