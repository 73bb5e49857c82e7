"""Sections on where a run comes from: lineage, settings, environment."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from strategos.components import node_ids
from strategos.components.wording import counted, duration
from strategos.pipeline.history.lineage import LineageStep
from strategos.pipeline.history.runs import Run
from strategos.pipeline.made_from.record import MadeFrom
from strategos.pipeline.report.document import (
    Block,
    Cell,
    Column,
    Facts,
    Paragraph,
    Raw,
    Section,
    Table,
    header,
)
from strategos.pipeline.report.record import Record
from strategos.pipeline.view import lineage as lineage_view

_FILES = 100  # data files that are listed
# Facts about the node, not settings of it.
_NOT_SETTINGS = {"stack", "fingerprint", "schema_fingerprint", "preprocessing_fn"}
_LONGEST = 500  # characters of a value


def lineage(record: Record) -> Section | None:
    """The lineage of the model; None if no node has made anything."""
    if record.lineage is None:
        return None
    traced = record.lineage
    what = "model" if record.run.trainer or traced.version else "last artifact"
    blocks: list[Block] = [Facts([(what, traced.model)])]
    columns = header("step | made: made by | took | inputs | facts")
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
    # A verdict may quote values of slices, and nodes of the user's anything.
    ours = step.node in node_ids.ALL and step.node != node_ids.EVALUATOR
    about: Cell = facts if ours or not facts else Raw(facts, "facts")
    return step.node, made, duration(step.seconds), inputs, about


def settings(record: Record) -> Section | None:
    """The effective settings; without a record of them, those of each node."""
    blocks: list[Block] = []
    if record.run.config:
        blocks.append(Facts([("file", record.run.config)]))
    if record.made_from:
        table = _effective(record.made_from)
        text = "The effective settings of the run, defaults included."
        return Section("settings", "Settings", [*blocks, Paragraph(text), table])
    rows: list[Sequence[Cell]] = []
    for step in record.steps:
        for key, value in step.parameters.items():
            if key not in _NOT_SETTINGS:
                rows += [(step.node, *pair) for pair in _flat(key, value)]
    if not rows:
        return None
    columns = header("node | setting | value")
    text = "Values with which the nodes ran, defaults included."
    blocks += [Paragraph(text), Table("Settings by node", columns, rows, folded=True)]
    return Section("settings", "Settings", blocks)


def _effective(made: MadeFrom) -> Table:
    columns = header("setting | value")
    rows: list[Sequence[Cell]] = [
        pair for key, value in made.settings.items() for pair in _flat(key, value)
    ]
    if made.origins:  # absent in older records
        columns.append(Column("from", "from"))
        rows = [(*row, made.origins.get(str(row[0]), "default")) for row in rows]
        # What somebody chose comes first.
        rows.sort(key=lambda row: row[-1] == "default")
    return Table("Effective settings", columns, rows, folded=True)


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
    run, title = record.run, "Environment"
    facts: list[tuple[str, Cell]] = [("host", run.host), ("runner", run.runner)]
    columns = header("package | version")
    if record.made_from:
        stack = record.made_from.stack
        for name in ("python", "machine", "environment"):
            facts += list(stack.get(name, {}).items())
        versions = list(stack.get("packages", {}).items())
    else:
        parts = (record.facts(node_ids.EXAMPLE_GEN).get("stack") or "").split(", ")
        pairs = (part.rpartition(" ") for part in parts)
        versions = [(name, version) for name, _, version in pairs if name]
    known = [(label, value) for label, value in facts if value not in (None, "")]
    blocks: list[Block] = [Facts(known)] if known else []
    if versions:
        many = len(versions) > 20
        blocks.append(Table("Versions", columns, versions, folded=many))
    if not blocks:
        blocks.append(Paragraph("Nothing is recorded."))
    return Section("environment", title, blocks)
