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

from collections.abc import Callable

import numpy as np

from strategos.components.evaluation.metrics import (
    EXACT_SCORES,
    MOST_SCORES,
    SLICE_SCORES,
)

BINS = 1 << 16
NEGLIGIBLE = 1e-9  # errors below it are roundoff

Area = Callable[[np.ndarray, np.ndarray], float]


class Curves:
    """Counts of positive and of all rows by slice and score.

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

    def add(self, code: np.ndarray, score: np.ndarray, label: np.ndarray) -> None:
        """Counts rows.

        Args:
          code: int [entries], the slice of each row.
          score: float64 [entries], from 0 to 1; others that are finite count as the
            nearest of these, once the slice counts in bins.
          label: float64 [entries], 0 or 1.
        """
        self.slices = max(self.slices, int(code.max(initial=-1)) + 1)
        known = np.isfinite(score)
        code, score = narrow(code[known]), score[known]
        if (score == (single := score.astype(np.float32))).all():  # as models answer
            score = single
        ones = np.ones(len(score), np.uint8)
        positive = label[known].astype(np.uint8)
        self._append(self._in_bins((code, score, ones, positive), np.zeros(0, bool)))

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
          area: Called as `area(tp, fp)` with the true and false positives at falling
            thresholds, from 0 upwards.
          slices: Number of slices.

        Returns:
          float64 [slices] and float64 [slices]: the areas, and the largest error that
          each can have.
        """
        values, errors = np.full(slices, np.nan), np.zeros(slices)
        self.compact()
        for code, _, rows, positive in self._parts:
            ends = np.searchsorted(code, np.arange(slices), side="right")
            for i, end in enumerate(ends):
                start = ends[i - 1] if i else 0
                p = positive[start:end][::-1].astype(np.float64)
                n = rows[start:end][::-1] - p
                if p.sum() > 0 and n.sum() > 0:
                    values[i] = area(_from_zero(p), _from_zero(n))
                    if i < len(self._binned) and self._binned[i]:
                        errors[i] = _error(area, values[i], p, n)
        return values, np.where(errors < NEGLIGIBLE, 0.0, errors)

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


def roc(tp: np.ndarray, fp: np.ndarray) -> float:
    """The area under the ROC curve.

    Args:
      tp: float64 [thresholds], true positives at falling thresholds, from 0 upwards.
      fp: float64 [thresholds], false positives.
    """
    x, y = fp / fp[-1], tp / tp[-1]
    return float(np.sum(np.diff(x) * (y[1:] + y[:-1]) / 2))


def precision_recall(tp: np.ndarray, fp: np.ndarray) -> float:
    """The area under the precision-recall curve; takes the arguments of `roc`.

    Interpolates true and false positives, not precision (Davis & Goadrich 2006).
    """
    predicted = tp + fp
    step = np.diff(predicted)
    slope = np.diff(tp) / np.where(step > 0, step, 1.0)
    intercept = tp[:-1] - slope * predicted[:-1]
    inner = predicted[:-1] > 0
    ratio = np.where(inner, predicted[1:] / np.where(inner, predicted[:-1], 1.0), 1.0)
    return float(np.sum(slope * (np.diff(tp) + intercept * np.log(ratio))) / tp[-1])


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


def _error(
    area: Area, value: float, positive: np.ndarray, negative: np.ndarray
) -> float:
    """The largest error: within a bin, all positives come first, or last."""
    nothing = np.zeros_like(positive)
    tp = _from_zero(np.column_stack([positive, nothing]).reshape(-1))
    fp = _from_zero(np.column_stack([nothing, negative]).reshape(-1))
    most = area(tp, fp)
    tp = _from_zero(np.column_stack([nothing, positive]).reshape(-1))
    fp = _from_zero(np.column_stack([negative, nothing]).reshape(-1))
    return max(most - value, value - area(tp, fp))


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
        narrow(np.add.reduceat(each[order], starts, dtype=np.int64))
        if len(starts)
        else each
        for each in (rows, positive)
    )
    return code[starts], score[starts], *counts


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


def _from_zero(counts: np.ndarray) -> np.ndarray:
    return np.append(0.0, np.cumsum(counts))
