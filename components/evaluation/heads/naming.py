"""Metrics of a model with several heads, named `HEAD.METRIC`; standard library only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from strategos.components.evaluation.slices.measured import SliceMetrics, Trivial
from strategos.components.evaluation.slices.slicing import canonical, slicings

_Value = TypeVar("_Value")


def split(name: str) -> tuple[str, str]:
    """The head and the metric of a name: `late.auc` has `late` and `auc`.

    Args:
      name: `HEAD.METRIC`; the metric may have dots, too.
    """
    head, _, metric = name.partition(".")
    return head, metric


def sections(evaluator: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The section of each head, with its task and with metrics without prefix.

    Args:
      evaluator: The section: task, metrics, slices, bounds.

    Returns:
      Sections by head; {} for a model with one head.
    """
    tasks = evaluator["task"]
    if isinstance(tasks, str):
        return {}
    # Rows are in the same slices for each head, bounds of the others included.
    sliced = slicings(evaluator)
    by_head = {}
    for head, task in tasks.items():
        metrics = [x for x in evaluator["metrics"] if split(x)[0] == head]
        bounds = evaluator.get("bounds") or {}
        by_head[head] = {
            **evaluator,
            "task": task,
            "metrics": [split(name)[1] for name in metrics],
            "slices": sliced,
            "bounds": {
                split(name)[1]: bound
                for name, bound in bounds.items()
                if split(name)[0] == head
            },
        }
    return by_head


def merged(by_head: Mapping[str, Sequence[SliceMetrics]]) -> list[SliceMetrics]:
    """The metrics of all heads of each slice.

    Args:
      by_head: The slices of the same rows, by head. Slices by class exist for heads
        with several classes a row.
    """
    pieces: dict[tuple[str, Any], dict[str, SliceMetrics]] = {}
    for head, slices in by_head.items():
        for piece in slices:
            key = f"{piece.feature}", canonical(piece.value)
            pieces.setdefault(key, {})[head] = piece
    return [*map(_of_slice, pieces.values())]


def _of_slice(pieces: Mapping[str, SliceMetrics]) -> SliceMetrics:
    first = next(iter(pieces.values()))
    baselines = {head: piece.baseline or {} for head, piece in pieces.items()}
    trivials = {head: x.trivial for head, x in pieces.items() if x.trivial}
    answers = {head: each.answer for head, each in trivials.items()}
    trivial = Trivial(
        {head: x for head, x in answers.items() if isinstance(x, float)},
        _named({head: each.metrics for head, each in trivials.items()}),
        is_perfect=all(each.is_perfect for each in trivials.values()),
    )
    return SliceMetrics(
        first.feature,
        first.value,
        first.examples,
        _named({head: piece.metrics for head, piece in pieces.items()}),
        _named(baselines) if first.baseline is not None else None,
        _named({head: piece.errors for head, piece in pieces.items()}),
        trivial,
        finite=all(piece.finite for piece in pieces.values()),
        weighted=first.weighted,
        intervals=_named({head: piece.intervals for head, piece in pieces.items()}),
        changes=_named({head: piece.changes for head, piece in pieces.items()}),
    )


def _named(by_head: Mapping[str, Mapping[str, _Value]]) -> dict[str, _Value]:
    return {
        f"{head}.{name}": value
        for head, values in by_head.items()
        for name, value in values.items()
    }
