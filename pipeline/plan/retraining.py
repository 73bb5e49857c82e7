"""Decides whether a run is due, on which spans, and why.

A run is due if no model was ever pushed, if a new span or a new version of a span
arrived after the last push, or if the last pushed model is older than
`schedule.max_age`. The clock is outside: cron or a Kubernetes CronJob calls
`strategos retrain --if-due`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

from strategos.components.wording import abridged, counted, duration, listed

if TYPE_CHECKING:
    from strategos.pipeline.config.sections import Schedule
    from strategos.pipeline.history.runs import Push

Span = tuple[int, int | None]
_SHOWN = 4


@dataclasses.dataclass(frozen=True)
class Decision:
    """Whether a run is due.

    Attributes:
      due: Whether to run.
      reason: Why, or why not: one sentence.
      spans: The (number, version) of the spans to run on, ascending.
      new: The spans among them that the last pushed model was not trained on.
    """

    due: bool
    reason: str
    spans: tuple[Span, ...]
    new: tuple[Span, ...] = ()


def decide(
    *, now: float, spans: Sequence[Span], last: Push | None, settings: Schedule | None
) -> Decision:
    """Decides whether a run is due.

    Args:
      now: Unix seconds.
      spans: The (number, version) of the spans that the config selects.
      last: The last push; None if there was none.
      settings: The `schedule` section; None without one.
    """
    chosen = tuple(sorted(spans, key=_order))
    if last is None:
        known = counted(len(chosen), "span")
        reason = f"Due: no model has been pushed yet ({known} to learn from)."
        return Decision(True, reason, chosen, chosen)
    seen = dict(last.spans)
    new = tuple(span for span in chosen if _is_new(span, seen))
    age = max(0.0, now - last.pushed_at)
    model = f"model {last.version}, pushed {duration(age)} ago"
    if new and (settings is None or settings.on_new_span):
        reason = f"Due: {_describe(new, seen)} came after {model}."
        return Decision(True, reason, chosen, new)
    limit = settings.max_age_seconds if settings else None
    if limit is not None and age >= limit:
        reason = f"Due: {model}, is older than `schedule.max_age` ({settings.max_age})."
        return Decision(True, reason, chosen, new)
    return Decision(False, f"Not due: {model}{_waiting(new, age, limit)}.", chosen, new)


def _is_new(span: Span, seen: dict[int, int | None]) -> bool:
    number, version = span
    return number not in seen or (version or 0) > (seen[number] or 0)


def _waiting(new: Sequence[Span], age: float, limit: int | None) -> str:
    """Describes what the next run waits for."""
    if new:
        unseen = counted(len(new), "span")
        text = f", was not trained on {unseen}, but `schedule.on_new_span` is false"
    else:
        text = ", was trained on all spans"
    if limit is not None:
        text += f"; `schedule.max_age` is reached in {duration(limit - age)}"
    return text


def _describe(new: Sequence[Span], seen: dict[int, int | None]) -> str:
    names = []
    for number, version in new:
        name = f"span {number}"
        if number in seen:
            name = f"version {version} of {name} (it saw {seen[number]})"
        elif version is not None:
            name += f" (version {version})"
        names.append(name)
    return listed(names) if len(names) <= _SHOWN else abridged(names, _SHOWN)


def _order(span: Span) -> tuple[int, int]:
    return span[0], span[1] or 0
