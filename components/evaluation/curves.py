"""Areas under curves by slice, from counts of scores that merge; numpy only.

Exact while the slices of a feature have at most `EXACT_SCORES` distinct scores in all.
Beyond that, the largest slices count their scores in bins: a slice keeps its scores one
by one as long as they are at most as many as the bins. There are `BINS` bins, then half
as many, a quarter, … until the counts fit: not fewer than `SLICE_SCORES`, unless all
slices together have more than `MOST_SCORES` scores. The number of bins depends on the
rows alone, not on how they are cut or merged. Each area from bins comes with its
largest possible error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

import numpy as np

from strategos.components.evaluation.metrics import (
    EXACT_SCORES,
    MOST_SCORES,
    SLICE_SCORES,
)

BINS = 1 << 16
NEGLIGIBLE = 1e-9  # errors below it are roundoff

_BLOCK = 1 << 18  # entries of curves that are computed at once

Area: TypeAlias = Callable[["Steps"], np.ndarray]


class Curves:
    """Counts of positive and of all rows by slice and score, or sums of their weights.

    Attributes:
      slices: Number of slices.
    """

    def __init__(self) -> None:
        # Each part: slice, score or bin, rows, positive rows; one number an entry.
        self._parts: list[tuple[np.ndarray, ...]] = []
        self._entries = self._compacted = 0
        self._bins: int | None = None  # also the most scores that a slice keeps
        self._binned = np.zeros(0, bool)  # by slice: whether it counts in bins
        self.slices = 0

    def empty(self) -> Curves:
        """Counts of no rows."""
        return Curves()

    def add(
        self,
        code: np.ndarray,
        score: np.ndarray,
        label: np.ndarray,
        weight: np.ndarray | None = None,
    ) -> None:
        """Counts rows.

        Args:
          code: int [entries], the slice of each row.
          score: float64 [entries], from 0 to 1; others that are finite count as the
            nearest of these, once the slice counts in bins.
          label: float64 [entries], 0 or 1.
          weight: float64 [entries], above 0; None for 1.
        """
        self.slices = max(self.slices, int(code.max(initial=-1)) + 1)
        known = np.isfinite(score)
        code, score = narrow(code[known]), score[known]
        if (score == (single := score.astype(np.float32))).all():  # as models answer
            score = single
        rows, positive = np.ones(len(score), np.uint8), label[known].astype(np.uint8)
        if weight is not None:
            rows, positive = weight[known], weight[known] * label[known]
        self._append(self._in_bins((code, score, rows, positive), np.zeros(0, bool)))

    def merge(self, later: Curves, place: np.ndarray) -> None:
        """Adds the counts of other rows.

        Args:
          later: Counts of other rows; must not be used again.
          place: int [slices of `later`], the slice here of each slice there.
        """
        self.slices = max(self.slices, int(place.max(initial=-1)) + 1)
        bins = [each for each in (self._bins, later._bins) if each is not None]
        theirs = np.zeros(len(place), bool)
        theirs[: len(later._binned)] = later._binned
        there = place[theirs]
        binned = np.zeros(max([len(self._binned), *(there + 1)]), bool)
        binned[: len(self._binned)] = self._binned
        binned[there] = True
        if bins:
            self._coarsen(min(bins), binned)
            later._coarsen(min(bins), _of(binned, place))
        parts = [(narrow(place[code]), *others) for code, *others in later._parts]
        self._append(*parts)

    def compact(self) -> None:
        """Makes the counts small and quick to merge: one entry for a slice and score.

        At most `MOST_SCORES` entries, and mostly at most `EXACT_SCORES`.
        """
        if not self._parts:
            return
        columns = (np.concatenate(column) for column in zip(*self._parts, strict=True))
        part = _counted(*columns)
        scores = np.bincount(part[0])
        binned = np.zeros(len(scores), bool)
        binned[: len(self._binned)] = self._binned[: len(scores)]
        self._parts = [part]
        bins = _fitting(self._bins, scores, binned)
        if bins is not None and (bins != self._bins or (scores > bins).any()):
            self._coarsen(bins, binned | (scores > bins))
            self._parts = [_counted(*self._parts[0])]
        self._entries = self._compacted = len(self._parts[0][0])

    def areas(self, area: Area, slices: int) -> tuple[np.ndarray, np.ndarray]:
        """The area under a curve by slice; NaN if a slice lacks one of the classes.

        Args:
          area: `roc` or `precision_recall`.
          slices: Number of slices.

        Returns:
          float64 [slices] and float64 [slices]: the areas, and the largest error that
          each can have.
        """
        values, errors = np.full(slices, np.nan), np.zeros(slices)
        self.compact()
        for code, rows, positive in self._blocks():
            p = positive.astype(np.float64)
            n = rows - p
            both = (np.bincount(code, p) > 0) & (np.bincount(code, n) > 0)
            known = both[code]
            steps = Steps(code[known], p[known], n[known])
            values[steps.slices] = area(steps)
            known &= _of(self._binned, code)
            binned = Steps(code[known], p[known], n[known])
            errors[binned.slices] = _error(area, values[binned.slices], binned)
        return values, np.where(errors < NEGLIGIBLE, 0.0, errors)

    def _blocks(self) -> Iterator[tuple[np.ndarray, ...]]:
        """Slice, rows and positive rows of each entry, at falling scores.

        A block has all entries of its slices, and mostly about `_BLOCK` entries: the
        arrays that areas are computed from are several times as large as the counts.
        """
        for code, _, *counts in self._parts:
            starts = np.searchsorted(code, code[::_BLOCK])
            for each in np.split(np.arange(len(code)), np.unique(starts)[1:]):
                yield code[each][::-1], *(count[each][::-1] for count in counts)

    def _append(self, *parts: tuple[np.ndarray, ...]) -> None:
        self._parts += parts
        self._entries += sum(len(part[0]) for part in parts)
        if self._entries > 2 * max(EXACT_SCORES, self._compacted):
            self.compact()

    def _coarsen(self, bins: int, binned: np.ndarray) -> None:
        """Counts the slices `binned` in `bins` bins, at most as many as now."""
        if bins == self._bins and np.array_equal(binned, self._binned):
            return
        before, ratio = self._binned, (self._bins or bins) // bins
        self._bins, self._binned = bins, binned
        parts = []
        for code, score, *counts in self._parts:
            wider = _wider(score, ratio).astype(score.dtype)
            score = np.where(_of(before, code), wider, score)
            parts.append(self._in_bins((code, score, *counts), before))
        self._parts = parts

    def _in_bins(
        self, part: tuple[np.ndarray, ...], before: np.ndarray
    ) -> tuple[np.ndarray, ...]:
        """The entries, with bins for the scores of slices that newly count in them."""
        code, score, *counts = part
        new = _of(self._binned, code) & ~_of(before, code)
        if new.any():
            score = score.copy()
            score[new] = _bin(score[new], self._bins or BINS)
        return code, score, *counts


class Steps:
    """The curves of several slices at falling thresholds, one slice after another.

    Args:
      code: int [steps], the slice of each step; equal ones are neighbours.
      positive: float64 [steps], rows of the step with label 1.
      negative: float64 [steps], rows of the step with label 0.

    Attributes:
      code: As the argument.
      positive: As the argument.
      negative: As the argument.
      tp: float64 [steps], true positives before the step.
      fp: float64 [steps], false positives before the step.
      slices: int [slices], the slices in the order of their steps.
    """

    def __init__(self, code: np.ndarray, positive: np.ndarray, negative: np.ndarray):
        first = np.ones(len(code), bool)
        first[1:] = code[1:] != code[:-1]
        self._starts = np.flatnonzero(first)
        self._place = np.cumsum(first) - 1
        self.code, self.slices = code, code[self._starts]
        self.positive, self.tp = positive, self._before(positive)
        self.negative, self.fp = negative, self._before(negative)

    def total(self, values: np.ndarray) -> np.ndarray:
        """The sum of values by slice, float64 [slices].

        Args:
          values: float64 [steps].
        """
        return np.add.reduceat(values, self._starts)

    def _before(self, rows: np.ndarray) -> np.ndarray:
        """Rows of the slice before each step; exact for whole numbers."""
        before = np.zeros(len(rows))
        np.cumsum(rows[:-1], out=before[1:])
        return before - before[self._starts][self._place]


def roc(steps: Steps) -> np.ndarray:
    """The areas under ROC curves, float64 [slices].

    Args:
      steps: Curves of slices that have rows of both classes.
    """
    area = steps.total(steps.negative * (steps.tp + steps.positive / 2))
    return area / (steps.total(steps.positive) * steps.total(steps.negative))


def precision_recall(steps: Steps) -> np.ndarray:
    """The areas under precision-recall curves, float64 [slices].

    Interpolates true and false positives, not precision (Davis & Goadrich 2006).

    Args:
      steps: Curves of slices that have rows of both classes.
    """
    predicted, rows = steps.tp + steps.fp, steps.positive + steps.negative
    slope = steps.positive / np.where(rows > 0, rows, 1.0)
    intercept = steps.tp - slope * predicted
    inner = predicted > 0
    ratio = np.where(inner, (predicted + rows) / np.where(inner, predicted, 1.0), 1.0)
    area = slope * (steps.positive + intercept * np.log(ratio))
    return steps.total(area) / steps.total(steps.positive)


def _fitting(bins: int | None, scores: np.ndarray, binned: np.ndarray) -> int | None:
    """The largest number of bins with few enough counts; None if no bins are needed.

    A slice in bins counts as many entries as it has bins, full or not: thus more rows
    never need fewer entries, and the order of merging does not matter.

    Args:
      bins: The number so far.
      scores: int [slices], distinct scores, or bins, of each slice.
      binned: bool [slices], whether a slice counts in bins.
    """
    while bins != 1:
        most = np.inf if bins is None else bins
        entries = np.minimum(np.where(binned, most, scores), most).sum()
        next_bins = BINS if bins is None else bins // 2
        if entries <= (EXACT_SCORES if next_bins >= SLICE_SCORES else MOST_SCORES):
            break
        bins = next_bins
    return bins


def _error(area: Area, values: np.ndarray, steps: Steps) -> np.ndarray:
    """The largest errors: within a bin, all positives come first, or last."""
    code, nothing = np.repeat(steps.code, 2), np.zeros_like(steps.positive)
    most, least = (
        area(Steps(code, *(np.column_stack(pair).reshape(-1) for pair in pairs)))
        for pairs in (
            ((steps.positive, nothing), (nothing, steps.negative)),
            ((nothing, steps.positive), (steps.negative, nothing)),
        )
    )
    return np.maximum(most - values, values - least)


def _of(flags: np.ndarray, code: np.ndarray) -> np.ndarray:
    """The flag of each entry's slice; False for slices beyond the flags."""
    if not flags.any():
        return np.zeros(len(code), bool)
    bits = flags[np.minimum(code, len(flags) - 1)]
    return bits & (code < len(flags))


def _bin(score: np.ndarray, bins: int) -> np.ndarray:
    """The number of each score's bin; bins are narrow near 0 and 1.

    The arcsine of the root gives an estimated share about the same variance everywhere
    (Anscombe 1948): a model of rare events predicts near 0.
    """
    score = np.clip(score, 0.0, 1.0, dtype=np.float64)
    share = np.arcsin(np.sqrt(score)) * (2 / np.pi)
    bins_of = np.minimum(np.floor(share * BINS), BINS - 1)
    return _wider(bins_of, BINS // bins)


def _wider(bins: np.ndarray, ratio: int) -> np.ndarray:
    """The number of each bin after merging `ratio` bins to one."""
    return bins // float(ratio)


def _counted(
    code: np.ndarray, score: np.ndarray, rows: np.ndarray, positive: np.ndarray
) -> tuple[np.ndarray, ...]:
    order = _order(code, score)
    code, score = code[order], score[order]
    first = np.ones(len(code), bool)
    first[1:] = (code[1:] != code[:-1]) | (score[1:] != score[:-1])
    starts = np.flatnonzero(first)
    counts = (
        _total(each[order], starts) if len(starts) else each
        for each in (rows, positive)
    )
    return code[starts], score[starts], *counts


def _total(counts: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """The sums from each start to the next; whole numbers in the smallest type."""
    if counts.dtype.kind == "f":
        return np.add.reduceat(counts, starts)
    return narrow(np.add.reduceat(counts, starts, dtype=np.int64))


def _order(code: np.ndarray, score: np.ndarray) -> np.ndarray:
    """The order by code, then by score.

    NumPy sorts integers of two bytes by radix: to sort 600,000 scores by their digits
    takes a third of the time.
    """
    first, *others = *_digits(score), code
    order = np.argsort(first, kind="stable")
    for digit in others:
        order = order[np.argsort(digit[order], kind="stable")]
    return order


def _digits(score: np.ndarray) -> list[np.ndarray]:
    """Scores as integers of two bytes, the least significant first."""
    # The bits of floats sort like their values, once negative floats are inverted.
    bits = (score + 0.0).view(f"u{score.itemsize}")  # no -0.0
    sign = bits.dtype.type(1 << (8 * score.itemsize - 1))
    bits = np.where(bits & sign, ~bits, bits | sign)
    return [
        (bits >> shift).astype(np.uint16) for shift in range(0, 8 * score.itemsize, 16)
    ]


def narrow(values: np.ndarray) -> np.ndarray:
    """The same numbers, none of them negative, in the smallest type.

    They go from worker to worker.
    """
    return values.astype(np.min_scalar_type(values.max(initial=0)))
