"""Judges the model in production by a new span, before a run reads the span."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from strategos.components.evaluation.outcome.bounds import BOUNDS, judge
from strategos.components.evaluation.slices.measured import SliceMetrics

if TYPE_CHECKING:
    from strategos.pipeline.config.operating import Schedule


@dataclasses.dataclass(frozen=True)
class Preview:
    """Measurements of one new span.

    Attributes:
      distances: TFDV's distance of each feature from the reference.
      chance: By feature farther than its bound, the distance that chance explains.
      reference: The newest span that the model in production was trained on.
      metrics: Metrics of the model in production on the span; None where undefined.
      usual: Metrics of the model in production in its own evaluation.
      problem: Why the span could not be measured; "" if it was.
    """

    distances: Mapping[str, float] = dataclasses.field(default_factory=dict)
    chance: Mapping[str, float] = dataclasses.field(default_factory=dict)
    reference: int | None = None
    metrics: Mapping[str, float | None] = dataclasses.field(default_factory=dict)
    usual: Mapping[str, float] = dataclasses.field(default_factory=dict)
    problem: str = ""


def drift(span: int, preview: Preview, schedule: Schedule) -> str:
    """Describes a distance that makes a run due; "" if none does.

    Args:
      span: The span's number.
      preview: Its measurements.
      schedule: Its bounds.
    """
    if schedule.drift is None:
        return ""
    if preview.problem:
        return f"span {span} cannot be compared: {preview.problem}"
    limits, default = schedule.drift.features, schedule.drift.at_most
    excess = {
        name: value - max(limits.get(name, default), preview.chance.get(name, 0.0))
        for name, value in preview.distances.items()
    }
    worst = max(sorted(excess), key=excess.__getitem__, default=None)
    if worst is None or excess[worst] <= 0:
        return ""
    limit, chance = limits.get(worst, default), preview.chance.get(worst, 0.0)
    return (
        f"`{worst}` of span {span} is at a distance of {preview.distances[worst]:.4g} "
        f"from span {preview.reference}, the newest one of the model in production "
        f"(`schedule.drift` allows {limit:g}, and chance explains {chance:.4g})"
    )


def fall(span: int, preview: Preview, schedule: Schedule) -> str:
    """Describes a metric that makes a run due; "" if none does.

    Args:
      span: The span's number.
      preview: Its measurements.
      schedule: Its bounds.
    """
    if not schedule.metrics:
        return ""
    if preview.problem:
        return (
            f"the model in production cannot be measured on span {span}: "
            f"{preview.problem}"
        )
    if not preview.metrics:
        return ""
    names = [name for name in schedule.metrics if name in preview.metrics]
    bounds = {name: schedule.metrics[name].model_dump() for name in names}
    values = {name: _number(preview.metrics[name]) for name in names}
    usual = {name: preview.usual.get(name, math.nan) for name in names}
    whole = SliceMetrics(None, None, 0, values, usual)
    failed = [check for check in judge(bounds, [whole]) if not check.ok]
    if not failed:
        return ""
    check = failed[0]
    wanted = BOUNDS[check.bound].format(f"{check.required:g}")
    text = f"{check.metric} of the model in production on span {span}"
    if check.received is None:
        return f"{text} is undefined"
    value = f"{values[check.metric]:.4g}"
    if check.bound in ("may_drop", "may_rise"):
        value += f", {usual[check.metric]:.4g} at its evaluation"
    return f"{text} is {value} (`schedule.metrics`: {wanted})"


def _number(value: float | None) -> float:
    return math.nan if value is None else value
