"""Sentences on a training, and tables of metrics, for a run's report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from strategos.components.evaluation.intervals import margins
from strategos.components.evaluation.metrics import badness
from strategos.components.evaluation.outcome.bounds import FEW_EXAMPLES
from strategos.pipeline.view import terminal

_Values: TypeAlias = Mapping[str, float | None]

FEW_ROWS = 30
"""Slices of fewer rows are not among the worst: chance decides there."""

_PRODUCTION = "in production"
_LAST = 5  # The end of a training: this part of its epochs, a fifth, at least one.
_SHARE = 0.05  # Of the fall since the first epoch: less than this is no fall any more.


def trained(facts: Mapping[str, Any]) -> str:
    """The training's strategy, e.g. `mirrored on 2 replicas, restarted once: …`.

    Args:
      facts: The Trainer's record, see `Run.trainer`.
    """
    text, replicas = facts["strategy"], facts.get("replicas", 1)
    restarts = facts.get("restarts", 0)
    if replicas > 1:
        text += f" on {replicas} replicas"
    if phases := facts.get("phases"):
        parts = (f"{x['name']} {x['epochs']}" for x in phases)
        text += f", epochs by phase: {', '.join(parts)}"
    if restarts:
        text += f", restarted {'once' if restarts == 1 else f'{restarts} times'}"
    return f"{text}: {facts.get('reason', '')}"


def still_falling(history: Mapping[str, Sequence[float]] | None) -> str:
    """Reports that the loss was still falling when training ended; else "".

    It was if the last epoch has the least loss, and the last fifth of the epochs has
    more than a twentieth of the fall since the first epoch. For example, 0.70, 0.60,
    0.55 was still falling; 0.70, 0.50, 0.495 was not.

    Args:
      history: Values by metric, one for each epoch: `val_loss`, or `loss` without it.
    """
    name = next(
        (each for each in ("val_loss", "loss") if (history or {}).get(each)), ""
    )
    values = (history or {}).get(name, ())
    end = max(1, round(len(values) / _LAST))
    if len(values) < 2:
        return ""
    before, last = values[-1 - end], values[-1]
    fell = last <= min(values) and before - last > _SHARE * (values[0] - last)
    if not fell:  # also for NaN
        return ""
    return (
        f"{name} was still falling: {before:.4g} after {len(values) - end} of "
        f"{len(values)} epochs, {last:.4g} at the end; a larger trainer.epochs "
        "may give a better model"
    )


def overall(
    summary: Mapping[str, Any], last: Mapping[str, float] | None = None
) -> Table:
    """Metrics over all examples: of the model, the baseline and the trivial model.

    Args:
      summary: The evaluation's `summary.json`.
      last: Metrics of the run before, to show the change since; None without one.
    """
    others = {"last run": last, _PRODUCTION: summary.get("baseline")}
    heading = f"{summary['examples']:,} examples"
    if (weighted := summary.get("weighted")) is not None:  # absent in older summaries
        heading += f" that weigh {weighted:,.6g}"
    trivial = summary.get("trivial")  # absent in older summaries
    return _compared(heading, summary["overall"], others, trivial, summary)


def recorded(
    metrics: Mapping[str, float], last: Mapping[str, float] | None = None
) -> Table:
    """The metrics in ML Metadata, for a run without a summary at hand.

    Args:
      metrics: Values by name.
      last: As for `overall`.
    """
    return _compared("metrics", metrics, {"last run": last})


def ranked(summary: Mapping[str, Any], metric: str) -> list[tuple[str, Any]]:
    """The slices by a metric, worst first, without slices of too few rows.

    Args:
      summary: The evaluation's `summary.json`.
      metric: Name of the metric.

    Returns:
      (name, slice) each.
    """
    small = {
        bound["slice"]
        for bound in summary["bounds"]
        if bound.get("skipped") == FEW_EXAMPLES
    }
    ranked = []
    for piece in summary["slices"]:
        name = f"{piece['feature']}={piece['value']}"
        value = piece["metrics"].get(metric)  # slices by class are those of a head
        if value is not None and name not in small and piece["examples"] >= FEW_ROWS:
            ranked.append((-badness(metric, value), name, piece))
    return [
        (name, piece) for _, name, piece in sorted(ranked, key=lambda each: each[:2])
    ]


def _compared(
    heading: str,
    metrics: _Values,
    others: Mapping[str, _Values | None],
    trivial: _Values | None = None,
    summary: Mapping[str, Any] | None = None,
) -> Table:
    """A row for each metric, with its change from each of the others."""
    by_model = {name: values for name, values in others.items() if values}
    margin, of_value = margins.heading(summary), margins.of(summary, "metrics")
    of_change = {_PRODUCTION: margins.of(summary, "changes")} if margin else {}
    headings = ["model", *([margin] if margin else [])]
    for other in by_model:
        headings += [other, "change", *([margin] if other in of_change else [])]
    table = grid(heading, *headings, *(["trivial"] if trivial else []))
    for name, value in metrics.items():
        row: list[RenderableType] = [name, terminal.number(value)]
        row += [terminal.number(of_value.get(name))] if margin else []
        for other, values in by_model.items():
            before = values.get(name)
            row += [terminal.number(before), change(name, before, value)]
            if other in of_change:
                row.append(terminal.number(of_change[other].get(name)))
        if trivial:
            row.append(terminal.number(trivial.get(name)))
        table.add_row(*row)
    return table


def grid(*headings: str) -> Table:
    """An empty table without lines; columns after the first are right-aligned.

    Args:
      *headings: Of the columns.
    """
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for index, heading in enumerate(headings):
        table.add_column(
            heading,
            justify="right" if index else "left",
            no_wrap=True,
            header_style="dim",
        )
    table.columns[0].min_width = 16
    return table


def change(name: str, before: float | None, after: float | None) -> Text:
    """The difference of two values, red if the second is worse, green if better.

    Args:
      name: The metric.
      before: The first value; None if it is undefined.
      after: The second value; likewise.
    """
    if before is None or after is None or before == after:
        return Text("-" if before != after else "same")
    worse = badness(name, after) - badness(name, before)
    style = "" if worse == 0 else "red" if worse > 0 else "green"
    return Text(terminal.number(after - before, sign="+"), style=style)


def beyond(is_beyond: bool | None, margin: float | None) -> str:
    """Whether a change may be chance, in words; "" if that is unknown.

    Args:
      is_beyond: Whether the change is larger than its margin.
      margin: Half the width of the change's confidence interval.
    """
    if is_beyond is None:
        return ""
    word = "beyond" if is_beyond else "within"
    return f"{word} ± {terminal.number(margin)}"
