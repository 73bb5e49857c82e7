"""Areas under curves by slice, from counts of scores that merge; numpy only.

Exact while the slices of a feature have at most `EXACT_SCORES` distinct scores in all.
Beyond that, scores are counted in `BINS` bins, and in half as many, a quarter, … until
the counts fit. Which it is depends on the rows alone, not on how they are cut or
merged. Each area from bins comes with the largest error that it can have.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from strategos.components.evaluator.metrics import EXACT_SCORES

BINS = 1 << 16

Area = Callable[[np.ndarray, np.ndarray], float]


class Curves:
    """Counts of positive and of all rows by slice and score."""

    def __init__(self) -> None:
        # Each part: slice, score or bin, rows, positive rows; one number an entry.
        self._parts: list[tuple[np.ndarray, ...]] = []
        self._entries = 0
        self._bins: int | None = None

    def add(self, code: np.ndarray, score: np.ndarray, label: np.ndarray) -> None:
        """Counts rows.

        Args:
          code: int [entries], the slice of each row.
          score: float64 [entries], from 0 to 1; others that are finite count as the
            nearest of these, once scores are counted in bins.
          label: float64 [entries], 0 or 1.
        """
        known = np.isfinite(score)
        score, ones = score[known], np.ones(int(known.sum()), np.uint8)
        if self._bins is not None:
            score = _bin(score, self._bins)
        elif (score == (single := score.astype(np.float32))).all():  # as models answer
            score = single
        self._append(_narrow(code[known]), score, ones, label[known].astype(np.uint8))

    def merge(self, later: Curves, place: np.ndarray) -> None:
        """Adds the counts of other rows.

        Args:
          later: Counts of other rows; not to be used again.
          place: int [slices of `later`], the slice here of each slice there.
        """
        bins = [each for each in (self._bins, later._bins) if each is not None]
        if bins:
            self._coarsen(min(bins))
            later._coarsen(min(bins))
        for code, *others in later._parts:
            self._append(_narrow(place[code]), *others)

    def compact(self) -> None:
        """Makes the counts small and quick to merge: one entry for a slice and score.

        There are at most `EXACT_SCORES` of them.
        """
        if not self._parts:
            return
        columns = (np.concatenate(column) for column in zip(*self._parts, strict=True))
        part = _counted(*columns)
        while len(part[0]) > EXACT_SCORES and self._bins != 1:
            code, score, *counts = part
            if self._bins is None:
                self._bins = BINS
                score = _bin(score, BINS)
            else:
                self._bins //= 2
                score = _wider(score, 2)
            part = _counted(code, score, *counts)
        self._parts, self._entries = [part], len(part[0])

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
        found, errors = np.full(slices, np.nan), np.zeros(slices)
        self.compact()
        for code, _, rows, positive in self._parts:
            ends = np.searchsorted(code, np.arange(slices), side="right")
            for i, end in enumerate(ends):
                start = ends[i - 1] if i else 0
                p = positive[start:end][::-1].astype(np.float64)
                n = rows[start:end][::-1] - p
                if p.sum() > 0 and n.sum() > 0:
                    found[i] = area(_from_zero(p), _from_zero(n))
                    errors[i] = self._error(area, found[i], p, n)
        return found, errors

    def _error(
        self, area: Area, value: float, positive: np.ndarray, negative: np.ndarray
    ) -> float:
        """The largest error: within a bin, all positives come first, or last."""
        if self._bins is None:
            return 0.0
        nothing = np.zeros_like(positive)
        tp = _from_zero(np.column_stack([positive, nothing]).reshape(-1))
        fp = _from_zero(np.column_stack([nothing, negative]).reshape(-1))
        most = area(tp, fp)
        tp = _from_zero(np.column_stack([nothing, positive]).reshape(-1))
        fp = _from_zero(np.column_stack([negative, nothing]).reshape(-1))
        return max(most - value, value - area(tp, fp))

    def _append(self, *part: np.ndarray) -> None:
        self._parts.append(part)
        self._entries += len(part[0])
        if self._entries > 2 * EXACT_SCORES:
            self.compact()

    def _coarsen(self, bins: int) -> None:
        """Counts in `bins` bins, which are not more than now."""
        if self._bins is None:
            parts = [(c, _bin(score, bins), *n) for c, score, *n in self._parts]
        else:
            ratio = self._bins // bins
            parts = [(c, _wider(score, ratio), *n) for c, score, *n in self._parts]
        self._parts, self._bins = parts, bins


def roc(tp: np.ndarray, fp: np.ndarray) -> float:
    """The area under the ROC curve.

    Args:
      tp: float64 [thresholds], true positives at falling thresholds, from 0 upwards.
      fp: float64 [thresholds], false positives.
    """
    x, y = fp / fp[-1], tp / tp[-1]
    return float(np.sum(np.diff(x) * (y[1:] + y[:-1]) / 2))


def precision_recall(tp: np.ndarray, fp: np.ndarray) -> float:
    """The area under the precision-recall curve; arguments as those of `roc`.

    Interpolates true and false positives, not precision (Davis & Goadrich 2006).
    """
    predicted = tp + fp
    step = np.diff(predicted)
    slope = np.diff(tp) / np.where(step > 0, step, 1.0)
    intercept = tp[:-1] - slope * predicted[:-1]
    inner = predicted[:-1] > 0
    ratio = np.where(inner, predicted[1:] / np.where(inner, predicted[:-1], 1.0), 1.0)
    return float(np.sum(slope * (np.diff(tp) + intercept * np.log(ratio))) / tp[-1])


def _bin(score: np.ndarray, bins: int) -> np.ndarray:
    """The number of each score's bin; bins are narrow near 0 and 1.

    The arcsine of the root gives an estimated share about the same variance everywhere
    (Anscombe 1948): a model of rare events predicts near 0.
    """
    score = np.clip(score, 0.0, 1.0, dtype=np.float64)
    share = np.arcsin(np.sqrt(score)) * (2 / np.pi)
    found = np.minimum(np.floor(share * BINS), BINS - 1)
    return _wider(found, BINS // bins)


def _wider(bins: np.ndarray, ratio: int) -> np.ndarray:
    """The number of each bin where `ratio` of them are one, in two bytes."""
    return (bins // float(ratio)).astype(np.uint16)


def _counted(
    code: np.ndarray, score: np.ndarray, rows: np.ndarray, positive: np.ndarray
) -> tuple[np.ndarray, ...]:
    order = _order(code, score)
    code, score = code[order], score[order]
    first = np.ones(len(code), bool)
    first[1:] = (code[1:] != code[:-1]) | (score[1:] != score[:-1])
    starts = np.flatnonzero(first)
    counts = (
        _narrow(np.add.reduceat(each[order], starts, dtype=np.int64))
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
    """Scores, or bins, as integers of two bytes, the least significant first."""
    if score.dtype == np.uint16:
        return [score]
    # The bits of floats sort as they do, if those of negative ones are turned round.
    bits = (score + 0.0).view(f"u{score.itemsize}")  # no -0.0
    sign = bits.dtype.type(1 << (8 * score.itemsize - 1))
    bits = np.where(bits & sign, ~bits, bits | sign)
    return [
        (bits >> shift).astype(np.uint16) for shift in range(0, 8 * score.itemsize, 16)
    ]


def _narrow(values: np.ndarray) -> np.ndarray:
    """The same numbers, none of them negative, in the smallest type.

    They go from worker to worker.
    """
    return values.astype(np.min_scalar_type(values.max(initial=0)))


def _from_zero(counts: np.ndarray) -> np.ndarray:
    return np.append(0.0, np.cumsum(counts))
