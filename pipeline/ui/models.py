"""The page of pushed models: which one is live, and where each came from."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from strategos.components.wording import counted
from strategos.pipeline.history import models as history
from strategos.pipeline.history.models import Version
from strategos.pipeline.history.store import Store, newest_pushed, properties
from strategos.pipeline.report.document import (
    Block,
    Cell,
    Column,
    Link,
    Paragraph,
    Section,
    State,
    Table,
    header,
)
from strategos.pipeline.report.sections import outcome
from strategos.pipeline.ui import pages
from strategos.pipeline.ui.pages import Page
from strategos.pipeline.ui.source import Source
from strategos.pipeline.view import models as view
from strategos.pipeline.view import terminal

_METRICS = 4  # columns
_ROWS = 100
_REJECTED = 25  # runs


def models(source: Source, store: Store) -> Page:
    """The versions in the target of pushes, and the runs with a rejected model.

    Args:
      source: The history.
      store: Its open ML Metadata.
    """
    target, canary = _targets(source, store)
    sections = []
    if target is None:
        blocks: list[Block] = [Paragraph("No model was pushed.")]
        sections.append(Section("pushed", "Pushed versions", blocks))
    else:
        listed = history.versions(store, target)
        waiting = history.canary(store, target, canary)
        blocks = list(_pushed([*([waiting] if waiting else []), *listed], target))
        sections.append(Section("pushed", "Pushed versions", blocks))
    rejected = [
        each
        for word in ("not blessed", "stopped")
        for each in source.index.runs(source.pipeline, word)
    ]
    rejected.sort(key=lambda each: -each.started)
    if rejected:
        columns = header("run | outcome | started")
        rows = [
            (
                pages.run_link(each.run_id),
                outcome.state(each.outcome),
                terminal.moment(each.started),
            )
            for each in rejected[:_REJECTED]
        ]
        left_out = max(0, len(rejected) - _REJECTED)
        table = Table("Runs whose model was not pushed", columns, rows, left_out)
        sections.append(Section("rejected", "Rejected by a gate", [table]))
    return pages.simple("/models", "Models", target or source.root, *sections)


def _targets(source: Source, store: Store) -> tuple[str | None, str | None]:
    """`pusher.to` and `pusher.canary`; without a YAML, the folder of the last push."""
    if source.config:
        pusher = source.config.pusher
        return (pusher.to, pusher.canary) if pusher else (None, None)
    with store.readable():
        newest = next(newest_pushed(store), None)
    if newest is None:
        return None, None
    return os.path.dirname(properties(newest)["pushed_destination"]), None


def _pushed(listed: Sequence[Version], target: str) -> Iterator[Block]:
    live = next((each for each in listed if each.live), None)
    if not listed:
        yield Paragraph(f"No version is in {target}.")
        return
    if live is None:
        text = f"No version in {target} is complete: none is served."
        yield Paragraph(text, "warn")
    else:
        text = f"Version {live.version} is live, of {counted(len(listed), 'version')}."
        yield Paragraph(text, "good")
    names = list(dict.fromkeys(name for each in listed for name in each.metrics))
    columns = [
        *header("version | state | pushed | spans"),
        *(Column(name, name, True) for name in names[:_METRICS]),
        *header("run | origin"),
    ]
    rows = [tuple(_row(each, names[:_METRICS])) for each in listed[:_ROWS]]
    left_out = max(0, len(listed) - _ROWS)
    yield Table("Versions, the newest first", columns, rows, left_out)


def _row(version: Version, names: Sequence[str]) -> Iterator[Cell]:
    # ML Metadata may not know a version that another root has pushed.
    known = str(version.artifact) if version.artifact else ""
    address = pages.address("/lineage", {"model": known})
    yield Link(str(version.version), address) if known else str(version.version)
    yield _state(version)
    yield None if version.pushed_at is None else terminal.moment(version.pushed_at)
    yield view.spans(version)
    for name in names:
        yield version.metrics.get(name)
    yield pages.run_link(version.run_id) if known and version.run_id else version.run_id
    if version.rollback_of:
        yield f"rolled back to {version.rollback_of}"
    elif version.promoted_from:
        yield view.promotion(version)
    else:
        yield "" if known else "not in this root's ML Metadata"


def _state(version: Version) -> Cell:
    if version.slot:
        return State(version.slot, "warn")
    return State("live", "good") if version.live else ""
