"""The bound that a first fit justifies."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping

from strategos.pipeline.init.label import Label
from strategos.pipeline.root import boosted_trees

_ERRORS = 2.0  # standard errors: about 95 % of repeated evaluations are within


@dataclasses.dataclass(frozen=True)
class Bound:
    """A limit of the task's main metric.

    Attributes:
      kind: `at_least` or `at_most`.
      limit: The limit.
      value: The fit's own value.
      interval: Half the width of the value's interval.
      trees: The value of gradient-boosted trees; None if none were trained.
    """

    kind: str
    limit: float
    value: float
    interval: float
    trees: float | None = None

    def __str__(self) -> str:
        return f"{self.kind}: {self.limit:.3g}"

    @property
    def why(self) -> str:
        """The reason, for a comment."""
        fit = f"the first fit has {self.value:.3g} ± {self.interval:.2g}"
        if self.trees is None:
            return fit
        return f"{fit}, {boosted_trees.NAME} {self.trees:.3g}"

    @property
    def holds(self) -> bool:
        """Whether the fit itself is within the limit."""
        if self.kind == "at_least":
            return self.value >= self.limit
        return self.value <= self.limit


def bound(
    label: Label, metrics: Mapping[str, float], trivial: Mapping[str, float], rows: int
) -> Bound:
    """The bound of the task's main metric.

    The bound is the fit's own value less its interval, but never within the interval
    of the trivial model: a fit to noise is not blessed.

    Args:
      label: The label.
      metrics: The fit's metrics on the evaluation split.
      trivial: Those of the trivial model.
      rows: Number of rows of the evaluation split.
    """
    if label.task == "regression":
        value = metrics["mae"]
        # Variance of the absolute errors: their mean square less the squared mean.
        error = math.sqrt(max(0.0, metrics["rmse"] ** 2 - value**2) / rows)
        interval = _ERRORS * error
        most = min(value + interval, trivial["mae"] - interval)
        return Bound("at_most", _written(most, math.ceil), value, interval)
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
    limit = _written(min(least, 1.0), math.floor)
    return Bound("at_least", limit, value, _ERRORS * error)


def _written(limit: float, outward: Callable[[float], int]) -> float:
    """A limit of three digits, which the fit keeps as well: 0.999 for 0.9997."""
    if not limit or not math.isfinite(limit):
        return limit
    exponent = math.floor(math.log10(abs(limit))) - 2
    return float(f"{outward(limit / 10.0**exponent)}e{exponent}")


def _error_of_auc(auc: float, positives: float, negatives: float) -> float:
    """The standard error of an AUC, by Hanley and McNeil (Radiology 143, 1982)."""
    both_positive, both_negative = auc / (2 - auc), 2 * auc**2 / (1 + auc)
    variance = (
        auc * (1 - auc)
        + (positives - 1) * (both_positive - auc**2)
        + (negatives - 1) * (both_negative - auc**2)
    ) / (positives * negatives)
    return math.sqrt(max(variance, 0.0))
