"""Points of curves from counts, in `answers.json`, which is read without TFMA."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from strategos.components.evaluation.classes.entries import all_names
from strategos.components.evaluation.plots import errors
from strategos.components.evaluation.plots.counts import BINS, Counts, edges
from strategos.components.evaluation.plots.errors import Errors
from strategos.components.evaluation.scored import Scored

POINTS = 101
"""Most points of a curve."""
GROUPS = 10
"""Groups of scores, of about equally many rows, in which calibration is shown."""


def of(counts: Counts | Errors) -> dict[str, Any]:
    """The points of one model.

    Args:
      counts: Over all rows.

    Returns:
      `scores`: for each score its `class` (None if there is one score), `roc` and
      `precision_recall` (lists of false-positive rate and true-positive rate, and of
      recall and precision, each with its threshold; [] without both classes),
      `calibration` (groups of rows with `predicted`, the mean score; `observed`, the
      share of positive rows; `rows`, the sum of their weights), and `confusion` at
      threshold 0.5, [[true negatives, false positives], [false negatives, true
      positives]]. For multi_class, `scores` has calibration alone, and `confusion`
      beside it has a row for each label and a column for each predicted class, named
      in `classes`; both are missing where there are too many classes. For regression,
      see `errors.points`.
    """
    if isinstance(counts, Errors):
        return errors.points(counts)
    if not counts.is_multi_class:
        names: Sequence[str | None] = counts.names or [None]
        pairs = zip(names, counts.bins, strict=True)
        return {"scores": [_of_score(*pair) for pair in pairs]}
    score = {"class": None, "calibration": _calibration(counts.bins[0])}
    if counts.confusion is None:
        return {"scores": [score]}
    classes = all_names(counts.names, len(counts.confusion))
    confusion = counts.confusion.tolist()
    return {"scores": [score], "confusion": confusion, "classes": classes}


def _of_score(name: str | None, bins: np.ndarray) -> dict[str, Any]:
    rows, positive, _ = bins
    half = BINS // 2
    confusion = [
        [float(each[:half].sum()), float(each[half:].sum())]
        for each in (rows - positive, positive)
    ]
    roc, precision_recall = _curves(rows, positive)
    return {
        "class": name,
        "roc": roc,
        "precision_recall": precision_recall,
        "calibration": _calibration(bins),
        "confusion": confusion,
    }


def _curves(
    rows: np.ndarray, positive: np.ndarray
) -> tuple[list[list[float]], list[list[float]]]:
    """ROC and precision-recall at falling thresholds, the borders of full bins."""
    full = np.flatnonzero(rows)[::-1]
    tp, fp = np.cumsum(positive[full]), np.cumsum((rows - positive)[full])
    if not len(full) or not tp[-1] > 0 or not fp[-1] > 0:
        return [], []
    threshold, recall, fall_out = edges()[full], tp / tp[-1], fp / fp[-1]
    kept = _thinned(recall + fall_out)
    roc = np.column_stack([fall_out, recall, threshold])[kept]
    precision = np.column_stack([recall, tp / (tp + fp), threshold])[kept]
    return [[0.0, 0.0, 1.0], *roc.tolist()], precision.tolist()


def _thinned(way: np.ndarray) -> np.ndarray:
    """Indices of at most `POINTS` points, evenly along the way, with both ends."""
    wanted = np.linspace(way[0], way[-1], POINTS)
    return np.unique(np.searchsorted(way, wanted).clip(0, len(way) - 1))


def _calibration(bins: np.ndarray) -> list[dict[str, float]]:
    """Groups of neighbouring bins; a bin with many rows is a group of its own."""
    rows = bins[0]
    before = np.cumsum(rows) - rows
    group = np.floor(GROUPS * (before + rows / 2) / max(rows.sum(), 1e-300))
    group = group.clip(0, GROUPS - 1).astype(np.int64)
    totals = [np.bincount(group, each, GROUPS) for each in bins]
    return [
        {"predicted": total / n, "observed": positive / n, "rows": n}
        for n, positive, total in zip(*(each.tolist() for each in totals), strict=True)
        if n > 0
    ]


def document(scored: Scored, task: str | Mapping[str, str]) -> dict[str, Any]:
    """The content of `answers.json`: `task`, and the points of each model in `models`.

    Args:
      scored: Results of all rows.
      task: One of `metrics.TASKS`; or one for each head, and then the content has such
        content by head, in `heads`.
    """
    if not isinstance(task, str):
        return {"heads": {x: document(scored.heads[x], own) for x, own in task.items()}}
    points_of: Any = errors.points_of_rows if task == "reconstruction" else of
    models = {name: points_of(counts) for name, counts in scored.plots.items()}
    return {"task": task, "models": models}
