"""Sections on where a run comes from: lineage, settings, environment."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from strategos.components import node_ids
from strategos.components.wording import counted, duration
from strategos.pipeline.history.lineage import LineageStep
from strategos.pipeline.history.runs import Run
from strategos.pipeline.report.document import (
    Block,
    Cell,
    Column,
    Facts,
    Paragraph,
    Section,
    Table,
)
from strategos.pipeline.report.record import Record
from strategos.pipeline.view import lineage as lineage_view

_FILES = 100  # data files that are listed
# Facts about the node, not settings of it.
_NOT_SETTINGS = {"stack", "fingerprint", "schema_fingerprint", "preprocessing_fn"}
_LONGEST = 500  # characters of a value


def lineage(record: Record) -> Section | None:
    """What the model was made from; None if no node has made anything."""
    if record.lineage is None:
        return None
    traced = record.lineage
    what = "model" if record.run.trainer or traced.version else "last artifact"
    blocks: list[Block] = [Facts([(what, traced.model)])]
    columns = [
        *(Column("step", "step"), Column("made", "made by"), Column("took", "took")),
        *(Column("inputs", "inputs"), Column("facts", "facts")),
    ]
    names = {step.execution: step.node for step in traced.steps}
    rows = [_step(step, names, record.run) for step in traced.steps]
    blocks.append(Table("From the data to the model", columns, rows))
    files = record.facts(node_ids.EXAMPLE_GEN).get("files") or []
    if files:
        title = f"{counted(len(files), 'data file')}"
        listed = [(path,) for path in files[:_FILES]]
        left_out = max(0, len(files) - _FILES)
        blocks.append(
            Table(title, [Column("file", "file")], listed, left_out, len(listed) > 12)
        )
    return Section("lineage", "Lineage", blocks)


def _step(step: LineageStep, names: Mapping[int, str], run: Run) -> Sequence[Cell]:
    facts = "; ".join(
        f"{label}: {text}" for label, text in lineage_view.described(step)
    )
    made = "this run" if step.run_id == run.run_id else f"run {step.run_id}"
    inputs = ", ".join(names[each] for each in step.inputs if each in names)
    return step.node, made, duration(step.seconds), inputs, facts


def settings(record: Record) -> Section | None:
    """The settings of each node, as recorded with its execution."""
    rows: list[Sequence[Cell]] = []
    for step in record.steps:
        for key, value in step.parameters.items():
            if key not in _NOT_SETTINGS:
                rows += [(step.node, *pair) for pair in _flat(key, value)]
    if not rows:
        return None
    columns = [
        *(Column("node", "node"), Column("setting", "setting")),
        Column("value", "value"),
    ]
    blocks: list[Block] = []
    if record.run.config:
        blocks.append(Facts([("file", record.run.config)]))
    text = "Values with which the nodes ran, defaults included."
    blocks += [Paragraph(text), Table("Settings by node", columns, rows, folded=True)]
    return Section("settings", "Settings", blocks)


def _flat(key: str, value: Any) -> Iterator[tuple[str, str]]:
    """The values of a setting by dotted key, without keys that are not set."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _flat(f"{key}.{name}", inner)
    elif value not in (None, "", [], {}):
        text = value if isinstance(value, str) else json.dumps(value)
        yield key, text if len(text) <= _LONGEST else f"{text[:_LONGEST]} …"


def environment(record: Record) -> Section:
    """The machine, and the versions of packages."""
    run = record.run
    rows: list[tuple[str, Cell]] = [
        ("host", run.host),
        ("runner", run.runner),
    ]
    stack = record.facts(node_ids.EXAMPLE_GEN).get("stack") or ""
    rows += [
        (name, version)
        for name, _, version in (part.rpartition(" ") for part in stack.split(", "))
        if name
    ]
    title = "Environment"
    known = [(label, value) for label, value in rows if value not in (None, "")]
    text = "Versions are those with which the examples were made."
    blocks: list[Block] = [Facts(known)]
    return Section(
        "environment", title, [*blocks, Paragraph(text)] if stack else blocks
    )
