"""The verdict on the scored rows of one head or several; numpy only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from strategos.components.evaluation.by_query import described
from strategos.components.evaluation.heads import naming
from strategos.components.evaluation.intervals import interval
from strategos.components.evaluation.outcome import findings, summary
from strategos.components.evaluation.outcome.bounds import BoundCheck, judge
from strategos.components.evaluation.scored import Scored
from strategos.components.evaluation.slices.measured import SliceMetrics
from strategos.components.evaluation.sums import Sums
from strategos.components.targets.label import Label


@dataclass(frozen=True)
class Verdict:
    """Result of an evaluation.

    Attributes:
      slices: Metrics by slice; of several heads as `HEAD.METRIC`.
      checks: The bounds checked against the slices.
      summary: The content of `summary.json`.
    """

    slices: Sequence[SliceMetrics]
    checks: Sequence[BoundCheck]
    summary: dict[str, Any]


def of(
    scored: Scored,
    evaluator: Mapping[str, Any],
    label: str,
    models: Sequence[str],
    incomparable: str = "",
) -> Verdict:
    """Judges scored rows.

    Args:
      scored: Results of all rows.
      evaluator: The section: task, metrics, slices, bounds, allow_constant.
      label: The label, as `Label.text`.
      models: Name of the candidate, perhaps followed by the model to compare with.
      incomparable: Why the model in production cannot be evaluated; "" if it can.
    """
    sections, labels = naming.sections(evaluator), Label.of(label).heads
    if not sections:
        slices, checks, remarks = _part(scored, evaluator, label, models, incomparable)
    else:
        parts = {
            head: _part(
                scored.heads[head], section, labels[head].text, models, incomparable
            )
            for head, section in sections.items()
        }
        slices = naming.merged({head: part[0] for head, part in parts.items()})
        checks = [
            replace(check, metric=f"{head}.{check.metric}")
            for head, part in parts.items()
            for check in part[1]
        ]
        remarks = {
            kind: [
                f"{head}: {x}" for head, part in parts.items() for x in part[2][kind]
            ]
            for kind in ("objections", "warnings")
        }
    first = next(iter(scored.heads.values()), scored)
    content = summary.summarize(
        task=evaluator["task"],
        label=label,
        slices=slices,
        checks=checks,
        without_value=first.sums.without_value(),
        incomparable=incomparable,
        confidence_level=evaluator.get("confidence_level"),
        queries=described.of(scored, evaluator),
        **remarks,
    )
    return Verdict(slices, checks, content)


def _part(
    scored: Scored,
    evaluator: Mapping[str, Any],
    label: str,
    models: Sequence[str],
    incomparable: str,
) -> tuple[list[SliceMetrics], list[BoundCheck], dict[str, list[str]]]:
    """The metrics, checks and findings of one head."""
    slices = scored.sums.metrics(*models)
    if level := evaluator.get("confidence_level"):
        slices = _with_intervals(slices, scored.sums, models, level)
    bounds = evaluator.get("bounds") or {}
    checks = judge(bounds, slices, incomparable=bool(incomparable))
    return slices, checks, findings.of(scored, slices, evaluator, label, models[0])


def _with_intervals(
    slices: Sequence[SliceMetrics], sums: Sums, models: Sequence[str], level: float
) -> list[SliceMetrics]:
    """The metrics with their intervals, and with those of the changes.

    Both models are judged on the same resamples, so their common error cancels out of
    the change.
    """
    ours, *others = (sums.of_resamples(model) for model in models)
    results = []
    for piece in slices:
        place = piece.feature, piece.value
        if place not in ours:  # of too many slices to be resampled
            results.append(piece)
            continue
        own, changes = interval.around(piece.metrics, ours[place], level), {}
        if piece.baseline is not None:
            theirs = others[0][place]
            differences = {x: values - theirs[x] for x, values in ours[place].items()}
            change = {x: piece.metrics[x] - piece.baseline[x] for x in theirs}
            changes = interval.around(change, differences, level)
        results.append(replace(piece, intervals=own, changes=changes))
    return results
