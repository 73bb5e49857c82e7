"""Confidence intervals of a summary, for people; standard library only."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any


def of(summary: Mapping[str, Any] | None, kind: str) -> dict[str, float]:
    """Half the width of the confidence intervals, by name of the metric.

    Args:
      summary: The content of `summary.json`, or one of its slices; None without an
        evaluation.
      kind: `metrics` or `changes`.
    """
    intervals = ((summary or {}).get("intervals") or {}).get(kind) or {}
    return {name: (high - low) / 2 for name, (low, high) in intervals.items()}


def heading(summary: Mapping[str, Any] | None) -> str:
    """The heading of a column of `of`: `± (95 %)`; "" without intervals.

    Args:
      summary: The content of `summary.json`; None without an evaluation.
    """
    intervals = (summary or {}).get("intervals")
    return f"± ({100 * intervals['confidence_level']:g} %)" if intervals else ""


def heading_of_slices(summary: Mapping[str, Any]) -> str:
    """The heading of a column of the margins of slices; "" if no slice has intervals.

    Args:
      summary: The content of `summary.json`.
    """
    has_some = any("intervals" in piece for piece in summary["slices"])
    return heading(summary) if has_some else ""


def of_difference(
    before: Mapping[str, Any] | None, after: Mapping[str, Any] | None
) -> dict[str, float]:
    """Half the width of the interval of the difference of two independent values.

    The root of the sum of squares, as two intervals may overlap though the difference
    is significant (Schenker and Gentleman 2001).

    Args:
      before: As for `of`, with intervals of the same level.
      after: Likewise.
    """
    old, new = of(before, "metrics"), of(after, "metrics")
    return {name: math.hypot(old[name], new[name]) for name in old.keys() & new.keys()}
