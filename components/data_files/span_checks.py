"""The checks of spans that a run records, in words; standard library only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

FILE = "checks.json"
"""Name of the file with the checks, in the artifact of SpanValidator."""

_WORDS = {
    "at_least": "at least {} required",
    "at_most": "at most {} allowed",
    "may_rise": "a rise of at most {} allowed",
}


def describe(check: Mapping[str, Any]) -> str:
    """One line on a check, without its gate and span.

    Args:
      check: A check as `checks.json` has it.
    """
    feature = f"`{check['feature']}`: " if check["feature"] else ""
    if check["received"] is None:
        return f"{feature}{check['note']}"
    wanted = _WORDS[check["bound"]].format(_shown(check["required"]))
    received = _shown(check["received"])
    return f"{feature}{received} received, {wanted} ({check['note']})"


def worst(checks: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The check nearest to its bound, or farthest beyond it, of each span and gate.

    Args:
      checks: Checks as `checks.json` has them.
    """
    worst_of: dict[tuple[int, str], Mapping[str, Any]] = {}
    for check in checks:
        key = check["span"], check["gate"]
        if key not in worst_of or _excess(check) > _excess(worst_of[key]):
            worst_of[key] = check
    return list(worst_of.values())


def _shown(figure: float) -> str:
    return f"{figure:,}" if isinstance(figure, int) else f"{figure:.4g}"


def _excess(check: Mapping[str, Any]) -> float:
    """How far a figure is beyond its bound; negative if the bound holds.

    A distance counts in parts of its bound, which may be wide for few rows.
    """
    if check["received"] is None:
        return float("inf")
    over = check["received"] - check["required"]
    if check["bound"] == "at_most" and check["required"] > 0:
        over /= check["required"]
    return -over if check["bound"] == "at_least" else over
