"""Objections and warnings of an evaluation, besides bounds; numpy only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from strategos.components.evaluation.metrics import MEAN, METRICS, TRIVIAL
from strategos.components.evaluation.outcome.bounds import apart
from strategos.components.evaluation.scored import Scored
from strategos.components.evaluation.slices.measured import SliceMetrics
from strategos.components.targets.label import Label
from strategos.components.wording import counted, listed

_ENOUGH = 100  # rows from which one answer for all of them is no chance


def of(
    scored: Scored,
    slices: Sequence[SliceMetrics],
    evaluator: Mapping[str, Any],
    label: str,
    candidate: str,
) -> dict[str, list[str]]:
    """The objections to a blessing, and the warnings, as arguments of `summarize`.

    Args:
      scored: All rows.
      slices: Metrics of the slices.
      evaluator: The section: task, metrics, slices, bounds, allow_constant.
      label: The label, as `Label.text`.
      candidate: Name of the model to judge.

    Returns:
      Sentences under `objections` and `warnings`.
    """
    name = Label.of(label).name
    objections: list[str] = []
    warnings: list[str] = []
    if scored.learned.changed:
        warnings.append(f"label: {scored.learned.describe(name)}.")
    varying = (
        "the features vary" if Label.of(label).reconstructs else f"`{name}` varies"
    )
    if constant := _constant(scored, varying, candidate):
        accepted = evaluator.get("allow_constant")
        (warnings if accepted else objections).append(constant)
    answers = scored.ranges.get(candidate)
    if answers and not answers.is_finite:
        warnings.append("the model predicts NaN or infinite numbers for some rows")
    if without := scored.queries.without_query:
        rows, verb = counted(without, "row"), "is" if without == 1 else "are"
        query = evaluator["query"]
        warnings.append(f"{rows} without a value of `{query}` {verb} not ranked")
    if scored.positive:
        now, before = scored.positive
        warnings.append(
            f"label: class 1 of `{name}` is `{now}`, and `{before}` for the model in "
            "production: precision, recall and other metrics of positive answers are "
            "of the other class now. A fixed list of the two values in "
            "`preprocessing_fn`, in place of a vocabulary, keeps their order"
        )
    if poor := _not_better(slices, evaluator["task"], name):
        warnings.append(poor)
    return {"objections": objections, "warnings": warnings}


def _constant(scored: Scored, varying: str, candidate: str) -> str:
    sums, answers = scored.sums, scored.ranges.get(candidate)
    few = sums.examples < _ENOUGH or not sums.labels_vary()
    if few or answers is None or not answers.is_constant:
        return ""
    answer = ", ".join(f"{value:.4g}" for value in answers.low[:4])
    more = ", …" if len(answers.low) > 4 else ""
    return (
        f"the model predicts the same for all {sums.examples:,} rows, {answer}{more}, "
        f"and {varying}: it has learned nothing from the features"
    )


def _not_better(slices: Sequence[SliceMetrics], task: str, label: str) -> str:
    """A warning about metrics in which the model does not beat the trivial model."""
    overall = next(piece for piece in slices if piece.feature is None)
    poor = []
    for name, trivial in (overall.trivial.metrics if overall.trivial else {}).items():
        value = overall.metrics[name]
        comparable = METRICS[name].is_compared and value == value and trivial == trivial
        if comparable and not METRICS[name].is_better(value, trivial):
            ours, theirs = apart(value, trivial)
            poor.append(f"{name} ({ours}; trivial: {theirs})")
    if not poor:
        return ""
    kind = TRIVIAL.get(task, MEAN).format(label)
    return f"the model is not better than always predicting {kind} in {listed(poor)}"
