"""The pages of one run and of a model's lineage; the state of a run in progress."""

from __future__ import annotations

import dataclasses
import functools

from strategos.pipeline.history import lineage as lineages
from strategos.pipeline.history import runs as past_runs
from strategos.pipeline.history.store import Store
from strategos.pipeline.made_from import compared as comparing
from strategos.pipeline.made_from import record as kept_record
from strategos.pipeline.report import content, record, writing
from strategos.pipeline.report.document import (
    Block,
    Cell,
    Document,
    Facts,
    Link,
    Section,
    State,
)
from strategos.pipeline.report.record import Record
from strategos.pipeline.report.sections import comparison, outcome, provenance
from strategos.pipeline.ui import pages
from strategos.pipeline.ui.live import Following
from strategos.pipeline.ui.pages import Page
from strategos.pipeline.ui.source import Source
from strategos.pipeline.view import terminal


def run(source: Source, store: Store, run_id: str) -> Page:
    """A run: its report, and above that its state while it is going.

    Args:
      source: The history.
      store: Its open ML Metadata.
      run_id: The run's id.

    Raises:
      UserError: No such run exists.
    """
    read = record.read(store, source.index.find(run_id))
    about = content.document(read)
    address = pages.run_address(read.run.run_id)
    links: list[tuple[str, Cell]] = [
        ("as one file", Link("report.html", f"{address}/report.html"))
    ]
    if (before := _before(source, read.run)) and read.run.outcome != "running":
        query = {"before": before, "after": read.run.run_id}
        link = Link(f"run {before}", pages.address("/compare", query))
        links.append(("compare with", link))
    first, *rest = about.sections
    sections = [dataclasses.replace(first, blocks=[*first.blocks, Facts(links)]), *rest]
    live = ""
    if read.run.outcome == "running":
        state = following(source.root, read.run.run_id).section()
        sections = [each for each in sections if each.id not in ("graph", "training")]
        if state:
            sections, live = [state, *sections], f"{address}/now"
    about = dataclasses.replace(about, sections=sections)
    return Page(about, "/runs", live=live)


def compared(source: Source, store: Store, before: str, after: str) -> Page:
    """The page of the changes between two runs, and of their effects.

    Args:
      source: The history.
      store: Its open ML Metadata.
      before: The id of the first run.
      after: The id of the second run.

    Raises:
      UserError: No such run exists, or the runs cannot be compared.
    """
    ids = map(source.index.find, (before, after))
    first, second = (past_runs.run(store, run_id) for run_id in ids)
    kept = functools.partial(kept_record.read, source.root)
    result = comparing.compare(first, second, kept)
    runs: list[tuple[str, Cell]] = [
        (name, pages.run_link(each.run_id))
        for name, each in (("other run", first), ("this run", second))
    ]
    sections = comparison.compared(result)
    top = Section("runs", "Runs", [Facts(runs)])
    return pages.simple(
        "/runs", "Two runs compared", f"Pipeline {second.pipeline}", top, *sections
    )


def _before(source: Source, run: past_runs.Run) -> str:
    """The id of the last run of a pipeline that ended before a run; "" if none did."""
    earlier = (
        each.run_id
        for each in source.index.runs(run.pipeline)
        if each.started < run.started and each.outcome != "running"
    )
    return next(earlier, "")


def now(source: Source, store: Store, run_id: str) -> Section | None:
    """The state of a run in progress; None once the run has ended.

    Args:
      source: The history.
      store: Its open ML Metadata.
      run_id: The run's id.
    """
    entries = source.index.runs(outcome="running")
    if run_id not in (each.run_id for each in entries):
        return None
    return following(source.root, run_id).section()


@functools.lru_cache(maxsize=16)
def following(root: str, run_id: str) -> Following:
    """The event file of a run, which stays open from one page to the next.

    Args:
      root: The pipeline root.
      run_id: The run's id.
    """
    return Following(writing.place(root, run_id).parent)


def lineage(store: Store, model: str) -> Page:
    """The page of a model's lineage.

    Args:
      store: Its open ML Metadata.
      model: A run's id, a pushed version, or another name of `strategos lineage`.

    Raises:
      UserError: No model has that name.
    """
    traced = lineages.lineage(store, model)
    made_by = past_runs.run(store, traced.run_id)
    read = Record(made_by, traced.steps, traced)
    facts: list[Block] = [
        Facts(
            [
                ("version", traced.version or "not pushed"),
                ("run", pages.run_link(traced.run_id)),
                ("outcome of the run", outcome.state(made_by.outcome)),
                ("made", terminal.moment(traced.made_at)),
                *((name, value) for name, value in made_by.metrics.items()),
            ]
        )
    ]
    section = provenance.lineage(read)
    sections = [Section("model", "Model", facts), *([section] if section else [])]
    title = f"Lineage of {traced.version or traced.run_id}"
    about = Document(title, traced.model, State(""), sections)
    return Page(about, "/models")
