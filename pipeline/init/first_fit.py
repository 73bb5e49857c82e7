"""The bound that a first fit justifies."""

from __future__ import annotations

import math
from collections.abc import Mapping

from strategos.pipeline.init.label import Label

_ERRORS = 2.0  # standard errors: about 95 % of repeated evaluations are within


def bound(
    label: Label, metrics: Mapping[str, float], trivial: Mapping[str, float], rows: int
) -> tuple[str, str]:
    """Limits of the task's main metric, and the reason for a comment.

    The bound is the fit's own value less its interval, but never within the interval
    of the trivial model: what is found in noise is not blessed.

    Args:
      label: The label.
      metrics: The fit's metrics on the evaluation split.
      trivial: Those of the trivial model.
      rows: Number of rows of the evaluation split.

    Returns:
      E.g. `("at_least: 0.81", "the first fit has 0.85 ± 0.04")`.
    """
    if label.task == "regression":
        value = metrics["mae"]
        # Variance of the absolute errors: their mean square less the squared mean.
        error = math.sqrt(max(0.0, metrics["rmse"] ** 2 - value**2) / rows)
        most = min(value + _ERRORS * error, trivial["mae"] - _ERRORS * error)
        return f"at_most: {most:.3g}", _why(value, error)
    name = "auc" if label.task == "binary" else "accuracy"
    value, base = metrics[name], 0.5 if name == "auc" else trivial[name]
    if name == "auc":
        positives = max(1.0, label.share_of_positives * rows)
        error = _error_of_auc(value, positives, max(1.0, rows - positives))
        error_of_base = _error_of_auc(0.5, positives, max(1.0, rows - positives))
    else:
        error, error_of_base = (
            math.sqrt(max(each * (1 - each), 1 / rows) / rows) for each in (value, base)
        )
    least = max(value - _ERRORS * error, base + _ERRORS * error_of_base)
    return f"at_least: {min(least, 1.0):.3f}", _why(value, error)


def passes(bound: str, value: float) -> bool:
    """Whether a value is within the limits that `bound` returned."""
    kind, limit = bound.split(": ")
    return value >= float(limit) if kind == "at_least" else value <= float(limit)


def _why(value: float, error: float) -> str:
    return f"the first fit has {value:.3g} ± {_ERRORS * error:.2g}"


def _error_of_auc(auc: float, positives: float, negatives: float) -> float:
    """The standard error of an AUC, by Hanley and McNeil (Radiology 143, 1982)."""
    both_positive, both_negative = auc / (2 - auc), 2 * auc**2 / (1 + auc)
    variance = (
        auc * (1 - auc)
        + (positives - 1) * (both_positive - auc**2)
        + (negatives - 1) * (both_negative - auc**2)
    ) / (positives * negatives)
    return math.sqrt(max(variance, 0.0))
