"""The pages that list runs: all of them, and the best ones by a metric."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from strategos.components.evaluation.metrics import METRICS
from strategos.components.wording import counted
from strategos.pipeline.history import runs as past_runs
from strategos.pipeline.history.runs import Run
from strategos.pipeline.history.store import Store
from strategos.pipeline.report.document import (
    Block,
    Cell,
    Column,
    Link,
    Paragraph,
    Section,
    Table,
    header,
)
from strategos.pipeline.report.sections import outcome
from strategos.pipeline.report.sections import runs as several_runs
from strategos.pipeline.ui import pages
from strategos.pipeline.ui.index import Evaluation, ranked
from strategos.pipeline.ui.pages import Choice, Page, Search
from strategos.pipeline.ui.source import Source
from strategos.pipeline.view import terminal

_ROWS = 25  # of a page


def runs(source: Source, store: Store, query: Mapping[str, str]) -> Page:
    """All runs, the newest first.

    Args:
      source: The history.
      store: Its open ML Metadata.
      query: `outcome` and `search` to filter, and `page`, a number from 1.
    """
    wanted, search = query.get("outcome", ""), query.get("search", "").strip()
    outcomes = source.index.outcomes(source.pipeline, search)
    entries = source.index.runs(source.pipeline, wanted, search)
    number, last = _page(query, len(entries))
    chosen = entries[(number - 1) * _ROWS : number * _ROWS]
    listed = past_runs.by_id(store, [each.context for each in chosen])
    choices = [
        Choice(f"{text or 'all'} ({n:,})", _runs(text, search), text == wanted)
        for text, n in {"": sum(outcomes.values()), **outcomes}.items()
    ]
    shown = f"page {number:,} of {last:,}" if last > 1 else source.root
    blocks = [_table(listed, source)] if listed else [Paragraph("No such run.")]
    return pages.simple(
        "/runs",
        "Runs",
        f"{counted(len(entries), 'run')}, {shown}",
        Section("runs", "Newest first", blocks),
        choices=choices if len(outcomes) > 1 or wanted else (),
        turns=pages.turns(
            "/runs", {"outcome": wanted, "search": search, "page": number}, last
        ),
        search=Search(search, "Search in ids, reasons and errors", {"outcome": wanted}),
    )


def leaderboard(source: Source, store: Store, query: Mapping[str, str]) -> Page:
    """Evaluated models by a metric, the best first.

    Args:
      source: The history.
      store: Its open ML Metadata.
      query: `metric`, `pipeline` and `page`.
    """
    every = source.index.evaluations(source.pipeline)
    names = sorted({each.pipeline for each in every})
    pipeline = query.get("pipeline") or (names[0] if names else "")
    evaluated = [each for each in every if each.pipeline == pipeline]
    metrics = _metrics_of(evaluated, source)
    metric = query.get("metric") or next(iter(metrics), "")
    best = ranked(evaluated, metric)
    number, last = _page(query, len(best))
    first = (number - 1) * _ROWS
    at = {"metric": metric, "pipeline": pipeline}
    choices = [
        Choice(name, pages.address("/leaderboard", {**at, "pipeline": name}), here)
        for name in names
        if len(names) > 1
        for here in [name == pipeline]
    ]
    choices += [
        Choice(
            name, pages.address("/leaderboard", {**at, "metric": name}), name == metric
        )
        for name in metrics
    ]
    table = _ranks(source, store, best[first : first + _ROWS], metric, first)
    text = (
        "Each metric is over the rows that its own run held out: compare runs of the "
        "same data. A model that later runs took from the cache is listed once."
    )
    blocks: list[Block] = [Paragraph("Nothing is evaluated.")]
    if best:
        blocks = [Paragraph(text), table]
    return pages.simple(
        "/leaderboard",
        "Leaderboard",
        f"{counted(len(best), 'evaluated model')} of {pipeline}" if best else "",
        Section("leaderboard", f"Best by {metric}" if best else "Best", blocks),
        choices=choices,
        turns=_ranked_turns(at, number, last),
    )


def _ranked_turns(at: Mapping[str, str], number: int, last: int) -> list[Choice]:
    """As `pages.turns`, in words for ranks."""
    words = {"Newer": "Better", "Older": "Worse"}
    turns = pages.turns("/leaderboard", {**at, "page": number}, last)
    return [Choice(words.get(each.text, each.text), each.href) for each in turns]


def _ranks(
    source: Source,
    store: Store,
    shown: Sequence[Evaluation],
    metric: str,
    before: int,
) -> Table:
    origins = [source.index.run_of(store, each) for each in shown]
    known = [each.context for each in origins if each]
    runs_by_id = {each.run_id: each for each in past_runs.by_id(store, known)}
    columns = [
        *(Column("rank", "rank", True), Column("value", metric, True)),
        *header("run | outcome | pushed | made: evaluated"),
    ]
    rows: list[Sequence[Cell]] = []
    for place, (each, origin) in enumerate(zip(shown, origins, strict=True), before):
        run = runs_by_id.get(origin.run_id) if origin else None
        rows.append(
            (
                *(place + 1, each.metrics[metric]),
                pages.run_link(run.run_id) if run else None,
                outcome.state(run.outcome) if run else None,
                _pushed(run) if run else None,
                terminal.moment(each.made_at),
            )
        )
    return Table(f"Models by {metric}", columns, rows)


def _metrics_of(evaluated: Sequence[Evaluation], source: Source) -> list[str]:
    """The metrics of the settings first, then others in the order of their table."""
    known = {name for each in evaluated for name in each.metrics}
    evaluator = source.config.evaluator if source.config else None
    first = [name for name in (evaluator.metrics if evaluator else ()) if name in known]
    rest = [name for name in METRICS if name in known]
    return list(dict.fromkeys([*first, *rest, *sorted(known)]))


def _table(listed: Sequence[Run], source: Source) -> Table:
    evaluator = source.config.evaluator if source.config else None
    return several_runs.table(
        listed,
        evaluator.metrics if evaluator else (),
        name=lambda run: pages.run_link(run.run_id),
        pushed=_pushed,
        several=len({x.pipeline for x in source.index.runs(source.pipeline)}) > 1,
    )


def _pushed(run: Run) -> Cell:
    """The version that a run pushed, as a link to its lineage."""
    if not run.pushed:
        return ""
    href = pages.address("/lineage", {"model": run.run_id})
    return Link(several_runs.version(run), href)


def _page(query: Mapping[str, str], rows: int) -> tuple[int, int]:
    """The number of the page that is asked for, and of the last one."""
    last = max(1, math.ceil(rows / _ROWS))
    text = query.get("page", "1")
    number = int(text) if text.isdecimal() and len(text) < 9 else 1
    return min(max(1, number), last), last


def _runs(outcome: str, search: str) -> str:
    return pages.address("/runs", {"outcome": outcome, "search": search})
