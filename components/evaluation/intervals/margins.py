"""Confidence intervals of a summary, for people; standard library only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def of(summary: Mapping[str, Any] | None, kind: str) -> dict[str, float]:
    """Half the width of the confidence intervals, by name of the metric.

    Args:
      summary: The content of `summary.json`; None without an evaluation.
      kind: `metrics` or `changes`.
    """
    found = ((summary or {}).get("intervals") or {}).get(kind) or {}
    return {name: (high - low) / 2 for name, (low, high) in found.items()}


def heading(summary: Mapping[str, Any] | None) -> str:
    """The heading of a column of `of`: `± (95 %)`; "" without intervals.

    Args:
      summary: The content of `summary.json`; None without an evaluation.
    """
    intervals = (summary or {}).get("intervals")
    return f"± ({100 * intervals['confidence_level']:g} %)" if intervals else ""
