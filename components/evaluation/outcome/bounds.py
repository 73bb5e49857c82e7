"""Checks of bounds against measured slices; standard library only.

A bound applies overall and, for features under its `slices`, to each of the feature's
values with at least `min_examples` examples.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from strategos.components import changes
from strategos.components.evaluation.metrics import METRICS
from strategos.components.evaluation.slices.measured import SliceMetrics

BOUNDS = {
    "at_least": "at least {}",
    "at_most": "at most {}",
    "may_drop": "a drop of at most {}",
    "may_rise": "a rise of at most {}",
    "better_than": "better than {}",
}

FEW_EXAMPLES = "few_examples"
NO_BASELINE = "no_baseline"
UNDEFINED_BASELINE = "undefined_baseline"
ONE_LABEL = "one_label"
UNDEFINED = "undefined"


@dataclass(frozen=True)
class BoundCheck:
    """One bound checked against one slice.

    Attributes:
      metric: Name of the metric.
      slice: `overall` or `feature=value`.
      bound: One of `BOUNDS`.
      required: The bound's number; for `better_than` the metric of the trivial model,
        None if undefined.
      received: The metric; for `may_drop` and `may_rise`, its drop or rise against the
        model in production. None if undefined or not compared.
      examples: Number of examples in the slice.
      ok: Whether the bound holds; True for a skipped bound.
      note: Why the bound was skipped, why the value is undefined, the compared values,
        and the error of a metric that is not exact.
      skipped: `FEW_EXAMPLES`, `NO_BASELINE`, `UNDEFINED_BASELINE`, `ONE_LABEL` or
        `UNDEFINED`; None if the bound was checked.
      feature: The sliced feature; None overall.
      within_error: Whether `received` is nearer to the bound than the metric's error.
    """

    metric: str
    slice: str
    bound: str
    required: float | None
    received: float | None
    examples: int
    ok: bool
    note: str | None = None
    skipped: str | None = None
    feature: str | None = None
    within_error: bool = False


def judge(
    bounds: Mapping[str, Mapping[str, Any]],
    slices: Sequence[SliceMetrics],
    *,
    incomparable: bool = False,
) -> list[BoundCheck]:
    """Checks every bound of an evaluator section against the measured slices.

    Args:
      bounds: By metric: {at_least, at_most, may_drop, may_rise, better_than,
        min_examples, undefined, slices: {feature: {at_least, …}}}; `min_examples` and
        `undefined` (`skip` by default, or `fail`) apply to the slices.
      slices: The measured slices, including the overall one.
      incomparable: Whether the model in production exists and cannot be evaluated;
        then no bound on a change holds.
    """
    checks = _judged(bounds, slices)
    if not incomparable:
        return checks
    failed: dict[str, Any] = {"ok": False, "skipped": None, "note": "not comparable"}
    return [
        replace(check, **failed) if check.skipped == NO_BASELINE else check
        for check in checks
    ]


def _judged(
    bounds: Mapping[str, Mapping[str, Any]], slices: Sequence[SliceMetrics]
) -> list[BoundCheck]:
    checks = []
    for metric, bound in bounds.items():
        overall = next(piece for piece in slices if piece.feature is None)
        checks += [_check(metric, *limit, overall) for limit in _limits(bound)]
        for feature, inner in (bound.get("slices") or {}).items():
            few = bound.get("min_examples") or 0
            skips = bound.get("undefined", "skip") == "skip"
            pieces = [piece for piece in slices if piece.feature == feature]
            for limit in _limits(inner):
                if not pieces:
                    checks.append(_missing(metric, *limit, feature))
                checks += [
                    _check(metric, *limit, piece, few, skips) for piece in pieces
                ]
    return checks


def apart(first: float | None, second: float | None) -> tuple[str, str]:
    """Both numbers with as many digits as distinguish them, at least 4."""
    if first is None or second is None:
        one, two = ("nothing" if x is None else f"{x:.4g}" for x in (first, second))
        return one, two
    for digits in (4, 6, 9, 17):
        texts = f"{first:.{digits}g}", f"{second:.{digits}g}"
        if texts[0] != texts[1]:
            break
    return texts if first != second else (f"{first:.4g}", f"{second:.4g}")


def _limits(bound: Mapping[str, Any]) -> Iterator[tuple[str, float | None]]:
    """Names and numbers of bounds; None for `better_than`, computed from the rows."""
    for name in BOUNDS:
        if bound.get(name) is not None:
            yield name, None if name == "better_than" else float(bound[name])


def _check(
    metric: str,
    bound: str,
    limit: float | None,
    piece: SliceMetrics,
    few: int = 0,
    skips_undefined: bool = False,
) -> BoundCheck:
    trivial, by_query = piece.trivial, METRICS[metric].by_query
    if bound == "better_than" and trivial and math.isfinite(trivial.metrics[metric]):
        limit = trivial.metrics[metric]
    about: dict[str, Any] = {"metric": metric, "slice": piece.name, "bound": bound}
    about |= {"required": limit, "examples": piece.examples, "feature": piece.feature}
    if piece.examples < few:
        note = f"fewer than {few} examples"
        outcome = _skipped(note, FEW_EXAMPLES)
    elif bound == "better_than" and trivial and trivial.is_perfect and not by_query:
        outcome = _skipped("all labels are the same: nothing can be better", ONE_LABEL)
    elif bound == "better_than" and by_query and _is_best(limit):
        outcome = _skipped(
            "each order is the best one: nothing can be better", ONE_LABEL
        )
    elif skips_undefined and piece.weighted == 0:
        outcome = _skipped("undefined: all weights are 0", UNDEFINED)
    elif skips_undefined and _undefined_by_labels(metric, piece):
        cause = METRICS[metric].undefined_by_labels
        outcome = _skipped(f"undefined: {cause}", UNDEFINED)
    elif not math.isfinite(piece.metrics[metric]):
        outcome = {"received": None, "ok": False, "note": _why_undefined(metric)}
    elif bound in ("may_drop", "may_rise"):
        outcome = _changed(metric, bound, limit or 0.0, piece)
    else:
        outcome = _valued(metric, bound, limit, piece)
    return BoundCheck(**about, **outcome)


def _is_best(value: float | None) -> bool:
    return value is not None and math.isclose(value, 1.0, rel_tol=1e-9)


def _skipped(note: str, kind: str) -> dict[str, Any]:
    return {"received": None, "ok": True, "note": note, "skipped": kind}


def _valued(
    metric: str, bound: str, limit: float | None, piece: SliceMetrics
) -> dict[str, Any]:
    """Fields of a check of the metric itself."""
    value, error = piece.metrics[metric], piece.errors.get(metric, 0.0)
    outcome = {"received": value, "note": _off_by(error)}
    if limit is None:
        return {**outcome, "ok": False, "within_error": False}
    holds = {
        "at_least": lambda: value >= limit,
        "at_most": lambda: value <= limit,
        "better_than": lambda: METRICS[metric].is_better(value, limit),
    }
    return {
        **outcome,
        "ok": holds[bound](),
        "within_error": bool(error) and abs(value - limit) <= error,
    }


def _changed(
    metric: str, bound: str, limit: float, piece: SliceMetrics
) -> dict[str, Any]:
    """Fields of a check of the change from the model in production."""
    if piece.baseline is None:
        return _skipped("no model in production to compare with", NO_BASELINE)
    value, before = piece.metrics[metric], piece.baseline[metric]
    if not math.isfinite(before):
        note = "undefined for the model in production"
        return _skipped(note, UNDEFINED_BASELINE)
    pair = (value, before) if bound == "may_drop" else (before, value)
    change = pair[1] - pair[0]
    error = 2 * piece.errors.get(metric, 0.0)  # the error of both models
    old, new = apart(before, value)
    return {
        "received": change,
        "ok": changes.is_within(*pair, limit),
        "note": ", ".join(filter(None, [f"from {old} to {new}", _off_by(error)])),
        "within_error": bool(error) and abs(change - limit) <= error,
    }


def _off_by(error: float) -> str | None:
    return f"known to ±{error:.1g}" if error else None


def _missing(
    metric: str, bound: str, required: float | None, feature: str
) -> BoundCheck:
    note = f"no example has a value of `{feature}`"
    outcome = (required, None, 0, False, note, None)
    return BoundCheck(metric, f"{feature}=*", bound, *outcome, feature)


def _undefined_by_labels(metric: str, piece: SliceMetrics) -> bool:
    """Whether these labels leave the metric undefined for any finite answers."""
    cause, trivial = METRICS[metric].undefined_by_labels, piece.trivial
    if not cause or trivial is None or not piece.finite:
        return False
    return not math.isfinite(trivial.metrics[metric])


def _why_undefined(metric: str) -> str:
    definition = METRICS[metric]
    cause = definition.undefined_by_labels or definition.undefined_by_answers
    return f"undefined: {f'{cause}, or ' * bool(cause)}a prediction is not finite"
