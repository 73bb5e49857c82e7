"""Is a run due, on which spans, and why: a pure decision.

Clocks live outside: cron, a Kubernetes CronJob or a schedule only ask. A run is due
when no model was ever pushed, when a span or a new version of one came since the last
push, or when the last pushed model is older than `schedule.max_age`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

from strategos.components.wording import counted, duration, listed

if TYPE_CHECKING:
    from strategos.pipeline.config.sections import Schedule
    from strategos.pipeline.history.runs import Push

Span = tuple[int, int | None]
_SHOWN = 4


@dataclasses.dataclass(frozen=True)
class Decision:
    """What to do now.

    Attributes:
      due: Whether to run.
      reason: Why, or why not: one sentence.
      spans: The (number, version) of the spans to run on, ascending.
      new: Those of them that the last pushed model has not seen.
    """

    due: bool
    reason: str
    spans: tuple[Span, ...]
    new: tuple[Span, ...] = ()


def decide(
    *, now: float, spans: Sequence[Span], last: Push | None, settings: Schedule | None
) -> Decision:
    """Decides from what is there and what was pushed last.

    Args:
      now: Unix seconds.
      spans: The (number, version) of the spans that the config chooses.
      last: The last push; None where there was none.
      settings: The config's `schedule` section, where it has one.
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
    """What the next run waits for."""
    if new:
        unknown = counted(len(new), "span")
        told = f", does not know {unknown}, but `schedule.on_new_span` is false"
    else:
        told = ", knows all spans"
    if limit is not None:
        told += f"; `schedule.max_age` is reached in {duration(limit - age)}"
    return told


def _describe(new: Sequence[Span], seen: dict[int, int | None]) -> str:
    names = []
    for number, version in new:
        name = f"span {number}"
        if number in seen:
            name = f"version {version} of {name} (it saw {seen[number]})"
        elif version is not None:
            name += f" (version {version})"
        names.append(name)
    more = len(names) - _SHOWN
    if more > 0:
        names[_SHOWN:] = [f"{more} more"]
    return listed(names)


def _order(span: Span) -> tuple[int, int]:
    return span[0], span[1] or 0
