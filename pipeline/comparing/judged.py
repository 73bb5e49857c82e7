"""Why a model was blessed or not: each bound in a sentence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from strategos.components.errors import UserError
from strategos.components.evaluation.metrics import badness
from strategos.components.evaluation.outcome import summary as verdicts
from strategos.pipeline.history.runs import Run

STATES = ("fails", "holds", "skipped")


def blessing(run: Run) -> dict[str, Any]:
    """The verdict of a run.

    Args:
      run: The run, in full.

    Returns:
      `run`, `blessed`, `reason`, `objections` (reasons against the model besides its
      bounds) and `bounds`: the checks of `summary.json`, each with its `state`, of
      `STATES`, its `margin` (how far the value is on the right side of the bound,
      negative if it fails; None without a value) and a `text`.

    Raises:
      UserError: The run evaluated no model.
    """
    if run.summary is None:
        why = f": {run.failed_node or run.outcome}: {run.cause}" if run.cause else ""
        raise UserError(
            f"run {run.run_id} evaluated no model{why}",
            remedy="Name a run with an evaluation; see `strategos runs`.",
        )
    order = STATES.index
    bounds = [_explained(check) for check in run.summary["bounds"]]
    return {
        "run": run.run_id,
        "blessed": run.summary["blessed"],
        "reason": run.summary["reason"],
        "objections": list(run.summary.get("objections") or ()),
        "bounds": sorted(bounds, key=lambda each: order(each["state"])),
    }


def _explained(check: Mapping[str, Any]) -> dict[str, Any]:
    state = "skipped" if check.get("skipped") else "holds" if check["ok"] else "fails"
    margin, text = _margin(check), verdicts.describe(check)
    if state == "skipped":
        text = f"{check['metric']}, {check['slice']}: {check['note']}"
    elif margin is not None:
        size = f"{abs(margin):.4g}"
        text += f", {size} to spare" if state == "holds" else f", short by {size}"
    return {**check, "state": state, "margin": margin, "text": text}


def _margin(check: Mapping[str, Any]) -> float | None:
    """How far the value is on the right side of the bound."""
    required, received = check["required"], check["received"]
    if required is None or received is None:
        return None
    if check["bound"] == "better_than":
        name = check["metric"]
        return float(badness(name, required) - badness(name, received))
    difference = float(received - required)
    return difference if check["bound"] == "at_least" else -difference
