"""The section on several runs: a table, and a metric from run to run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from strategos.components.wording import counted, duration
from strategos.pipeline.history.runs import Run
from strategos.pipeline.report import charts
from strategos.pipeline.report.document import (
    Block,
    Cell,
    Chart,
    Column,
    Paragraph,
    Raw,
    Section,
    Table,
    header,
)
from strategos.pipeline.report.sections import outcome
from strategos.pipeline.view import report, terminal

_METRICS = 3  # columns


def runs(listed: Sequence[Run]) -> Section:
    """The runs, and the first metric of their models.

    Args:
      listed: The runs, the newest first.
    """
    blocks: list[Block] = [Paragraph("No runs.")]
    if listed:
        blocks = [table(listed), *_course(listed)]
    return Section("runs", counted(len(listed), "run"), blocks)


def table(
    listed: Sequence[Run],
    first: Sequence[str] = (),
    *,
    name: Callable[[Run], Cell] = lambda run: run.run_id,
    pushed: Callable[[Run], Cell] = lambda run: version(run),
    several: bool | None = None,
) -> Table:
    """A row for each run.

    Args:
      listed: The runs, the newest first.
      first: Metrics that come before others.
      name: Makes the cell with the id of a run.
      pushed: Makes the cell with the version that a run pushed.
      several: Whether the table names the pipelines; by default, if they differ.
    """
    known = report.history_metrics(listed)
    ours = [metric for metric in first if metric in known]
    metrics = list(dict.fromkeys([*ours, *known]))[:_METRICS]
    if several is None:
        several = len({run.pipeline for run in listed}) > 1
    columns = [
        Column("run", "run"),
        *([Column("pipeline", "pipeline")] if several else []),
        *header("outcome | started | took#"),
        *(Column(metric, metric, True) for metric in metrics),
        *header("pushed | remark"),
    ]
    rows = [
        (
            name(run),
            *([run.pipeline] if several else []),
            *_facts(run),
            *(run.metrics.get(metric) for metric in metrics),
            pushed(run),
            _remark(run),
        )
        for run in listed
    ]
    return Table("Runs, the newest first", columns, rows)


def version(run: Run) -> str:
    """The version that a run pushed; "" if none."""
    if not run.pushed:
        return ""
    text = run.pushed[1] or "yes"
    return f"{text} ({run.slot})" if run.slot else text


def _facts(run: Run) -> Iterator[Cell]:
    yield outcome.state(run.outcome)
    yield terminal.moment(run.started)
    yield None if run.duration is None else duration(run.duration)


def _remark(run: Run) -> Cell:
    remark = report.remark(run)
    return Raw(remark, "remark") if remark else ""


def _course(listed: Sequence[Run]) -> Iterator[Chart]:
    """The first metric by the number of the run, if two runs or more have it."""
    for metric in report.history_metrics(listed)[:1]:
        columns = [*header("number# | run | pipeline"), Column("value", metric, True)]
        rows = [
            (number, run.run_id, run.pipeline, run.metrics[metric])
            for number, run in enumerate(reversed(listed), 1)
            if metric in run.metrics
        ]
        if len(rows) > 1:
            titles = ("run, from the oldest", metric)
            yield Chart(
                "runs-metric",
                charts.lines("number", "value", "pipeline", titles=titles),
                Table(f"{metric} by run", columns, rows),
                "Each run evaluates on its own rows.",
            )
