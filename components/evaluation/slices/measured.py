"""The metrics of a slice, as measured; standard library only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from strategos.components.evaluation.slices import slicing


@dataclass(frozen=True)
class Trivial:
    """Metrics of a trivial model on the rows of a slice, see `trivial`.

    Attributes:
      answer: The model's answer for each row: the mean label, or the most frequent
        class; of several heads by head.
      metrics: The model's metrics by name; NaN if undefined.
      is_perfect: Whether all labels are the same, so that nothing can be better.
    """

    answer: float | Mapping[str, float]
    metrics: Mapping[str, float]
    is_perfect: bool = False


@dataclass(frozen=True)
class SliceMetrics:
    """The metrics of one slice.

    Attributes:
      feature: Name of the slicing (`slicing.Slicing`); None for all examples.
      value: The feature's value, or those of a cross; None for all examples.
      examples: Number of examples in the slice.
      metrics: The candidate's metrics by name; NaN if undefined.
      baseline: The metrics of the model in production, or None.
      errors: Largest error, over both models, of the metrics that are not exact.
      trivial: The trivial model on the same rows, or None if it was not measured.
      finite: Whether all answers of the candidate are finite.
      weighted: Sum of the examples' weights; None without weights.
      intervals: Confidence intervals of the candidate's metrics, (low, high).
      changes: Confidence intervals of the changes from the model in production.
    """

    feature: str | None
    value: Any
    examples: int
    metrics: Mapping[str, float]
    baseline: Mapping[str, float] | None = None
    errors: Mapping[str, float] = field(default_factory=dict)
    trivial: Trivial | None = None
    finite: bool = True
    weighted: float | None = None
    intervals: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    changes: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The slice's name for people: `carrier=OO`, or `overall`."""
        if self.feature is None:
            return "overall"
        return f"{self.feature}={slicing.text(self.value)}"
