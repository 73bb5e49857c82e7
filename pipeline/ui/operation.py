"""The pages on the operation of a pipeline: its schedule, and the spans of its data."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from strategos.components.data_files import span_checks
from strategos.components.data_files.spans import Span
from strategos.components.errors import UserError
from strategos.components.wording import counted, duration
from strategos.pipeline.config.operating import Schedule
from strategos.pipeline.history import attempts, decisions
from strategos.pipeline.history import runs as past_runs
from strategos.pipeline.history.attempts import RunAttempt
from strategos.pipeline.history.store import Store
from strategos.pipeline.report.document import (
    Block,
    Cell,
    Column,
    Facts,
    Paragraph,
    Raw,
    Section,
    State,
    Table,
    header,
)
from strategos.pipeline.ui import pages
from strategos.pipeline.ui.pages import Page
from strategos.pipeline.ui.source import Source
from strategos.pipeline.view import terminal

_DECISIONS = 50
_RUNS = 200  # newest runs with spans to read
_SPANS = 200  # rows
_CHECKED = 5  # newest runs with gates to read
_WITHOUT_YAML = (
    "Start `strategos ui` with the PIPELINE_YAML to see this: only the settings say it."
)


def schedule(source: Source) -> Page:
    """The page of due runs, and of the decisions of `strategos retrain`.

    Args:
      source: The history.
    """
    sections = [Section("due", "When a run is due", list(_due(source)))]
    listed = decisions.newest(source.root, source.pipeline, _DECISIONS)
    if listed:
        columns = header("at | result | reason | run")
        rows = [_decision(each) for each in listed]
        table = Table("Decisions of strategos retrain, the newest first", columns, rows)
        blocks: list[Block] = [table]
    else:
        text = "`strategos retrain` has not decided anything on this root."
        blocks = [Paragraph(text)]
    sections.append(Section("decisions", "Decisions", blocks))
    return pages.simple("/schedule", "Schedule", source.root, *sections)


def _due(source: Source) -> Iterator[Block]:
    if source.config is None:
        yield Paragraph(_WITHOUT_YAML)
        return
    settings = source.config.schedule or Schedule()
    now = time.time()
    facts: list[tuple[str, Cell]] = []
    if tick := settings.tick_after(now):
        wait = duration(tick - now)
        facts.append(("next time of cron", f"{terminal.moment(tick)}, in {wait}"))
    last = next(iter(decisions.newest(source.root, source.pipeline, 1)), None)
    if last:
        facts.append(("last check", terminal.moment(last["at"])))
        if last.get("next"):
            facts.append(("due by the clock", terminal.moment(last["next"])))
    values = settings.model_dump(exclude_none=True)
    facts += [
        (f"schedule.{name}", value if isinstance(value, str) else json.dumps(value))
        for name, value in values.items()
        if value not in ({}, [])
    ]
    if source.config.schedule is None:
        yield Paragraph("No `schedule` is set: these are the defaults.")
    yield Facts(facts)


def _decision(decision: Mapping[str, Any]) -> Sequence[Cell]:
    run_id = decision.get("run_id")
    due = State("due", "good") if decision["due"] else State("not due")
    return (
        time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(decision["at"])),
        due,
        Raw(str(decision["reason"]), "reason"),
        pages.run_link(run_id) if run_id else "",
    )


def spans(source: Source, store: Store) -> Page:
    """The spans of the data: the runs that read them, and the findings of the gates.

    Args:
      source: The history.
      store: Its open ML Metadata.
    """
    entries = source.index.runs(source.pipeline)[:_RUNS]
    read = attempts.by_id(store, [each.context for each in entries])
    by_number, problem = _found(source)
    rows = [
        row
        for number in sorted({*by_number, *_numbers(read)}, reverse=True)
        for row in [_span(number, by_number.get(number), read)]
    ]
    blocks: list[Block] = [Paragraph(problem, "warn")] if problem else []
    columns = header(
        "span# | version# | date | files# | state | first: first read by | "
        "last: last read by | runs#"
    )
    if rows:
        blocks.append(_without_empty(columns, rows))
    elif not problem:
        blocks.append(Paragraph("The data of this pipeline are not in spans."))
    shown = counted(len(entries), "run")
    sections = [Section("spans", f"Spans, and what the last {shown} read", blocks)]
    gates = list(_gates(store, read))
    sections.append(Section("gates", "Gates of the last runs", gates))
    return pages.simple("/spans", "Spans", source.root, *sections)


def _without_empty(columns: Sequence[Column], rows: Sequence[Sequence[Cell]]) -> Table:
    """The table of spans, without columns that have no value."""
    kept = [n for n in range(len(columns)) if any(row[n] is not None for row in rows)]
    shown = [[row[n] for n in kept] for row in rows[:_SPANS]]
    left_out = max(0, len(rows) - _SPANS)
    title = "Spans, the newest first"
    return Table(title, [columns[n] for n in kept], shown, left_out)


def _found(source: Source) -> tuple[dict[int, tuple[Span, bool]], str]:
    """Each span with whether it is complete, by number; and a problem, if any."""
    if source.config is None:
        return {}, _WITHOUT_YAML
    listing = source.config.data.listing()
    try:
        if listing.is_empty:
            return {}, f"No file matches {source.config.data.examples}."
        incomplete = {each.number: (each, False) for each in listing.incomplete}
        complete = listing.found if listing.any_complete else []
    except UserError as error:
        return {}, str(error)
    known = {each.number: (each, True) for each in complete} | incomplete
    return {number: each for number, each in known.items() if number}, ""


def _numbers(read: Sequence[RunAttempt]) -> Iterator[int]:
    for each in read:
        yield from (number for number, _ in each.spans or () if number)
        yield from each.at_fault


def _span(
    number: int, entry: tuple[Span, bool] | None, read: Sequence[RunAttempt]
) -> Sequence[Cell]:
    """A row of the table.

    Args:
      number: The span's number.
      entry: The span among the files, and whether it is complete.
      read: Runs, the newest first.
    """
    own = [x for x in read if number in {n for n, _ in x.spans or ()} | {*x.at_fault}]
    span = entry[0] if entry else None
    versions = (v for x in own for n, v in x.spans or () if n == number)
    return (
        number,
        span.version if span else next(versions, None),
        span.date if span else None,
        len(span.files) if span else None,
        _state_of(number, entry, own),
        pages.run_link(own[-1].run_id) if own else "",
        pages.run_link(own[0].run_id) if own else "",
        len(own),
    )


def _state_of(
    number: int, entry: tuple[Span, bool] | None, own: Sequence[RunAttempt]
) -> State:
    if entry and not entry[1]:
        return State("incomplete", "warn")
    for run in own:
        if number in run.at_fault:
            return State("at fault", "bad")
        if run.made:
            return State("accepted", "good")
    return State("read" if own else "new")


def _gates(store: Store, read: Sequence[RunAttempt]) -> Iterator[Block]:
    """The check nearest to its bound of each span and gate, of the last runs."""
    columns = header("run | span# | gate | result | check")
    rows: list[Sequence[Cell]] = []
    for each in read[:_CHECKED]:
        for check in span_checks.worst(past_runs.run(store, each.run_id).gates):
            ok = State("holds", "good") if check["ok"] else State("fails", "bad")
            text = Raw(span_checks.describe(check), "check")
            run = pages.run_link(each.run_id)
            rows.append((run, check["span"], check["gate"], ok, text))
    if rows:
        title = "The check nearest to its bound, of each new span and gate"
        yield Table(title, columns, rows)
    else:
        yield Paragraph("No gate has compared a new span in the last runs.")
