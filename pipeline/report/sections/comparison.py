"""Sections that compare the run with another one: changes, and their effects."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from strategos.components.evaluation.metrics import badness
from strategos.components.wording import counted, duration
from strategos.pipeline.history.runs import NodeRun
from strategos.pipeline.made_from.compared import (
    Change,
    Comparison,
    FileChange,
    MetricChange,
    shown,
)
from strategos.pipeline.report.document import (
    Block,
    Cell,
    Column,
    Diff,
    Facts,
    Paragraph,
    Raw,
    Section,
    State,
    Table,
    header,
)
from strategos.pipeline.report.sections import outcome
from strategos.pipeline.view import terminal

_ROWS = 200  # of a table
_LINES = 400  # of the difference of a file
_WIDTH = 500  # characters of a value
_FOLDED = 20  # rows from which a table is folded


def compared(comparison: Comparison) -> list[Section]:
    """The metrics and times beside those of another run, and the changes.

    Args:
      comparison: The other run as `before`, the run of the report as `after`.
    """
    other = comparison.before
    about = Facts(
        [
            ("other run", other.run_id),
            ("started", terminal.moment(other.started)),
            ("outcome", outcome.state(other.outcome)),
        ]
    )
    results: list[Block] = [about]
    if comparison.metrics:
        results.append(_metrics(comparison.metrics))
    if comparison.slices:
        results.append(_slices(comparison.slices))
    results.append(_times(comparison))
    title = f"Compared with run {other.run_id}"
    return [
        Section("compared", title, results),
        Section("changed", "Changed since that run", list(_causes(comparison))),
    ]


def _metrics(changes: Sequence[MetricChange]) -> Table:
    columns = [Column("metric", "metric"), *_beside()]
    rows = [(each.name, *_values(each), *_chances(each, changes)) for each in changes]
    return Table("Metrics of both runs", [*columns, *_margins(changes)], rows)


def _margins(changes: Sequence[MetricChange]) -> list[Column]:
    """The columns of `_chances`; [] if no change has a confidence interval."""
    if all(each.margin is None for each in changes):
        return []
    return header("margin#: ± of the change | chance: this change is")


def _chances(each: MetricChange, changes: Sequence[MetricChange]) -> Sequence[Cell]:
    return (each.margin, _chance(each)) if _margins(changes) else ()


def _chance(each: MetricChange) -> Cell:
    """Whether the change is beyond its confidence interval."""
    if each.is_beyond is None:
        return None
    return State("beyond") if each.is_beyond else State("within: maybe chance")


def _slices(changes: Sequence[MetricChange]) -> Table:
    columns = [*header("slice | metric"), *_beside(), *_margins(changes)]
    columns.append(Column("examples", "examples", True))
    rows = [
        (Raw(x.slice, "slice"), x.name, *_values(x), *_chances(x, changes), x.examples)
        for x in changes[:_ROWS]
    ]
    title = f"Slices: {counted(len(changes), 'change')}, the largest first"
    return Table(title, columns, rows, len(changes) - len(rows), len(rows) > _FOLDED)


def _beside() -> list[Column]:
    return header("before#: other run | after#: this run | change# | better")


def _values(each: MetricChange) -> Sequence[Cell]:
    if each.before is None or each.after is None:
        return each.before, each.after, None, None
    worse = badness(each.name, each.after) - badness(each.name, each.before)
    word = State("worse", "bad") if worse > 0 else State("better", "good")
    same = each.before == each.after
    state = State("same") if same else word if worse else None
    return each.before, each.after, each.after - each.before, state


def _times(comparison: Comparison) -> Table:
    columns = header("node | before: other run | after: this run")
    rows = [(x.name, _spent(x.before), _spent(x.after)) for x in comparison.nodes]
    return Table("Times of both runs", columns, rows, folded=True)


def _spent(node: NodeRun | None) -> str | None:
    if node is None:
        return None
    return duration(node.seconds) if node.state == "complete" else node.state


def _causes(comparison: Comparison) -> Iterator[Block]:
    if comparison.unknown:
        yield Paragraph(f"What changed is unknown: {comparison.unknown}", "warn")
        return
    if not any(
        (comparison.settings, comparison.code, comparison.data, comparison.stack)
    ):
        yield Paragraph("Nothing: the same settings, code, data and stack.")
    if comparison.settings:
        yield _changes("Settings that differ", "setting", comparison.settings)
    if comparison.data:
        yield _files("Data files that differ", comparison.data)
    if comparison.stack:
        yield _changes("Stack that differs", "entry", comparison.stack)
    if comparison.code:
        yield _files("Files of the code that differ", comparison.code)
    for each in comparison.code:
        if each.diff:
            lines = each.diff[:_LINES]
            yield Diff(each.path, lines, len(each.diff) - len(lines))


def _changes(title: str, what: str, changes: Sequence[Change]) -> Table:
    columns = [Column("name", what), *header("before: other run | after: this run")]
    rows = [(x.name, _shown(x.before), _shown(x.after)) for x in changes[:_ROWS]]
    return Table(title, columns, rows, len(changes) - len(rows), len(rows) > _FOLDED)


def _shown(value: object) -> str:
    return shown(value, _WIDTH)


def _files(title: str, changes: Sequence[FileChange]) -> Table:
    columns = header("file | state")
    rows = [(each.path, each.state) for each in changes[:_ROWS]]
    return Table(title, columns, rows, len(changes) - len(rows), len(rows) > _FOLDED)
