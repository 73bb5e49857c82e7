"""The section on training: curves by epoch, the strategy and why, throughput."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from strategos.components import node_ids
from strategos.components.wording import counted
from strategos.pipeline.report import charts
from strategos.pipeline.report.document import (
    Block,
    Cell,
    Chart,
    Column,
    Facts,
    Paragraph,
    Raw,
    Section,
    Table,
    header,
)
from strategos.pipeline.report.record import Record
from strategos.pipeline.view import results

_POINTS = 400  # of a curve
_CHARTS = 8
_VALIDATION = "val_"


def training(record: Record) -> Section | None:
    """How the model was trained; None if nothing was."""
    facts = record.run.trainer
    if not facts:
        return None
    history = facts.get("history") or {}
    blocks: list[Block] = [Facts(list(_about(record)))]
    if falling := results.still_falling(history):
        blocks.append(Paragraph(f"{falling[0].upper()}{falling[1:]}.", "warn"))
    names = [name for name in history if not name.startswith(_VALIDATION)]
    names += [n for n in history if n.removeprefix(_VALIDATION) not in history]
    for name in list(dict.fromkeys(names))[:_CHARTS]:
        blocks.append(curve(name.removeprefix(_VALIDATION), history))
    return Section("training", "Training", blocks)


def _about(record: Record) -> Iterator[tuple[str, Cell]]:
    facts = record.run.trainer
    parameters = record.facts(node_ids.TRAINER)
    yield "strategy", facts["strategy"]
    yield "why this one", facts.get("reason")
    replicas, workers = facts.get("replicas", 1), facts.get("workers", 1)
    yield "replicas", replicas
    yield "processes", workers
    yield "global batch", facts.get("global_batch", parameters.get("batch_size"))
    yield "epochs of the settings", parameters.get("epochs")
    yield "steps", facts.get("steps")
    yield "examples per second", facts.get("examples_per_second")
    yield "rows for training", facts.get("rows")
    yield "parameters of the model", facts.get("parameters")
    yield "seed", facts.get("seed")
    yield "start", _start(facts)
    if phases := facts.get("phases"):
        parts = (f"{each['name']}: {each['epochs']}" for each in phases)
        yield "epochs by phase", ", ".join(parts)
    restarts = facts.get("restarts", 0)
    yield "restarts", counted(restarts, "restart") if restarts else "none"
    if hyperparameters := parameters.get("hyperparameters"):
        yield (
            "hyperparameters",
            ", ".join(f"{name}={value}" for name, value in hyperparameters.items()),
        )


def _start(facts: Mapping[str, Any]) -> Cell:
    start = facts.get("warm_start", "none")
    return "from scratch" if start == "none" else Raw(str(start), "model")


def curve(name: str, history: Mapping[str, Any]) -> Chart:
    """The values of a metric by epoch.

    Args:
      name: The metric; in `history`, the validation's name for it begins with `val_`.
      history: Values of each metric by epoch, from the first on.
    """
    columns = [*header("epoch# | data"), Column("value", name, True)]
    rows = [
        row
        for data, key in (("training", name), ("validation", f"{_VALIDATION}{name}"))
        for row in _thinned(data, history.get(key) or ())
    ]
    slug = "".join(c if c.isascii() and c.isalnum() else "-" for c in name)
    number = list(history).index(name) if name in history else len(history)
    return Chart(
        f"epochs-{number}-{slug}",
        charts.lines("epoch", "value", "data", titles=("epoch", name)),
        Table(f"{name} by epoch", columns, rows),
        "Training: the mean over an epoch; validation: after it.",
    )


def _thinned(data: str, values: Any) -> Iterator[tuple[Cell, ...]]:
    """Rows of a table, of a long training every n-th epoch and the last."""
    step = math.ceil(len(values) / _POINTS) or 1
    for place, value in enumerate(values):
        if place % step == 0 or place == len(values) - 1:
            known = isinstance(value, (int, float)) and math.isfinite(value)
            yield place + 1, data, value if known else None
