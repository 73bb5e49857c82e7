"""The content of `summary.json`, which is read without TFMA; standard library only."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from strategos.components.evaluation.outcome.bounds import BOUNDS, BoundCheck, apart
from strategos.components.evaluation.slices.measured import SliceMetrics
from strategos.components.evaluation.slices.slicing import text
from strategos.components.targets.label import Label
from strategos.components.wording import first

FILE = "summary.json"
WITHOUT_BASELINE = (
    "`strategos run --without-baseline`, or `retrain`, judges the model without "
    "comparing, and records so."
)
"""Remedy for a model in production that cannot be evaluated."""


def summarize(
    *,
    task: str | Mapping[str, str],
    label: str,
    slices: Sequence[SliceMetrics],
    checks: Sequence[BoundCheck],
    without_value: Mapping[str, int] = MappingProxyType({}),
    objections: Sequence[str] = (),
    warnings: Sequence[str] = (),
    incomparable: str = "",
    confidence_level: float | None = None,
    queries: Mapping[str, Any] = MappingProxyType({}),
) -> dict[str, Any]:
    """The content of `summary.json`, which is strict JSON.

    Undefined metrics are None. `errors` has the largest error of each metric that is
    not exact, e.g. an area under a curve of more than `metrics.EXACT_SCORES` scores. A
    slice of NaN or infinite values has the text `nan`, `inf` or `-inf` as its value; of
    a bin it is `[500, 1000)`, and of a cross the values with ` x ` between them.
    `trivial` has the metrics of the trivial model on all rows, and its `answer`. Of
    several heads, metrics are named `HEAD.METRIC`, `answer` and `task` are by head, and
    `heads` has the label of each.
    `intervals`, with `confidence_level`, has the ends of the interval of each of the
    `metrics` over all rows, and of its change from the model in production (`changes`);
    a slice has `intervals`, too, if slices are resampled.
    `examples` counts rows; `weighted` is the sum of their weights, None without
    `weight`.

    Args:
      task: One of `metrics.TASKS`, or one for each head.
      label: The label, as `Label.text`.
      slices: The measured slices, including the overall one.
      checks: The bounds checked against the slices.
      without_value: Number of examples in none of a feature's slices, by feature.
      objections: Reasons to reject the model besides its bounds.
      warnings: Warnings for the user.
      incomparable: Why the model in production cannot be evaluated; "" if it can.
      confidence_level: Of the intervals of the metrics over all rows; None for none.
      queries: From `by_query.described.of`.
    """
    if incomparable:
        warnings = [*warnings, f"no comparison with production: {incomparable}"]
    overall = next(piece for piece in slices if piece.feature is None)
    records = [dict(vars(check)) for check in checks]
    intervals = _intervals(overall, confidence_level)
    return {
        "task": task,
        "label": Label.of(label).name,
        **_heads(Label.of(label)),
        "examples": overall.examples,
        "weighted": overall.weighted,
        **queries,
        "overall": _defined(overall.metrics),
        "baseline": _defined(overall.baseline) if overall.baseline else None,
        "errors": dict(overall.errors),
        "trivial": _trivial(overall),
        **({"intervals": intervals} if intervals else {}),
        "slices": [
            {
                "feature": piece.feature,
                "value": _as_json(piece.value),
                "examples": piece.examples,
                "weighted": piece.weighted,
                "metrics": _defined(piece.metrics),
                "errors": dict(piece.errors),
                **({"intervals": ends} if (ends := _ends(piece)) else {}),
            }
            for piece in slices
            if piece.feature is not None
        ],
        "without_value": dict(without_value),
        "bounds": records,
        "objections": list(objections),
        "warnings": list(warnings),
        "incomparable": incomparable,
        "blessed": not objections and all(check.ok for check in checks),
        "reason": "; ".join([*objections, _reason(records)]),
    }


def _intervals(overall: SliceMetrics, level: float | None) -> dict[str, Any]:
    if level is None:
        return {}
    none: dict[str, Any] = {"metrics": {}, "changes": {}}
    return {"confidence_level": level, **none, **_ends(overall)}


def _ends(piece: SliceMetrics) -> dict[str, Any]:
    """The ends of the intervals of a slice; {} without any."""
    kinds = {"metrics": piece.intervals, "changes": piece.changes}
    ends = {kind: {x: [*y] for x, y in each.items()} for kind, each in kinds.items()}
    return ends if any(kinds.values()) else {}


def _heads(label: Label) -> dict[str, Any]:
    pairs = {head: own.name for head, own in label.heads.items()}
    return {"heads": pairs} if pairs else {}


def trivial_answers(summary: Mapping[str, Any]) -> list[tuple[str, str, float]]:
    """The answers of the trivial model: task, label and answer of each head.

    Args:
      summary: The content of `summary.json`.
    """
    trivial = summary.get("trivial")  # absent in older summaries
    if not trivial:
        return []
    heads = summary.get("heads")
    if not heads:
        return [(summary["task"], summary["label"], trivial["answer"])]
    tasks, answers = summary["task"], trivial["answer"]
    return [(tasks[head], label, answers[head]) for head, label in heads.items()]


def failures(summary: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The failed checks of a summary, overall ones first.

    Args:
      summary: The content of `summary.json`.
    """
    failed = [check for check in summary["bounds"] if not check["ok"]]
    return sorted(failed, key=lambda check: check["slice"] != "overall")


def describe(check: Mapping[str, Any]) -> str:
    """One line on a check: `auc, overall: at least 0.7 required, 0.65 received (…)`.

    Args:
      check: A check as `summary.json` has it.
    """
    required, received = apart(check["required"], check["received"])
    if check["bound"] == "better_than":
        required = "trivial" if check["required"] is None else f"trivial ({required})"
    wanted = BOUNDS[check["bound"]].format(required)
    details = [f"{check['examples']:,} examples"]
    if check["note"]:
        details.append(check["note"])
    if check.get("within_error"):  # absent in older summaries
        details.append("the bound is within the error")
    return (
        f"{check['metric']}, {check['slice']}: {wanted} required, "
        f"{received} received ({'; '.join(details)})"
    )


def shortened(summary: Mapping[str, Any], most: int) -> dict[str, Any]:
    """A summary with the largest slices only, and bounds that fail before others.

    Args:
      summary: The content of `summary.json`.
      most: Number of slices, and of bounds, that are kept. If there are more,
        `left_out` has the numbers of those that are not.
    """
    short: dict[str, Any] = {}
    left_out = {}
    orders = {"slices": lambda x: -x["examples"], "bounds": lambda x: x["ok"]}
    for name, order in orders.items():
        if len(whole := summary.get(name, ())) > most:
            short[name] = sorted(whole, key=order)[:most]
            left_out[name] = len(whole) - most
    return {**summary, **short, "left_out": left_out} if short else dict(summary)


def faults(summary: Mapping[str, Any]) -> list[str]:
    """Why a model is not blessed, one line each: objections, then failed checks.

    Args:
      summary: The content of `summary.json`.
    """
    objections = summary.get("objections") or ()  # absent in older summaries
    return [*objections, *map(describe, failures(summary))]


def _trivial(overall: SliceMetrics) -> dict[str, Any] | None:
    if overall.trivial is None:
        return None
    return {"answer": overall.trivial.answer, **_defined(overall.trivial.metrics)}


def _reason(records: Iterable[Mapping[str, Any]]) -> str:
    records = list(records)
    if not records:
        return "no bounds configured"
    failed = failures({"bounds": records})
    if not failed:
        skipped = Counter(check["note"] for check in records if check["skipped"])
        held = f"bounds held: {len(records) - skipped.total()}"
        why = "; ".join(f"{count} ({note})" for note, count in skipped.items())
        held += f", skipped: {why}" if skipped else ""
        near = [describe(check) for check in records if check["within_error"]]
        inexact = "; ".join(first(near, 2))
        return f"{held}. Within the error of the metric: {inexact}" if near else held
    return "; ".join(first([describe(check) for check in failed], 2))


def _as_json(value: Any) -> str | int | float:
    is_plain = isinstance(value, str | int | float)
    infinite = isinstance(value, float) and not math.isfinite(value)
    return text(value) if infinite or not is_plain else value


def _defined(metrics: Mapping[str, float]) -> dict[str, float | None]:
    return {
        name: value if math.isfinite(value) else None for name, value in metrics.items()
    }
