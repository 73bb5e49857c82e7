"""Prints the comparison of two runs: the changes, and their effects."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from strategos.components.files import filesystems
from strategos.components.wording import counted, duration, first
from strategos.pipeline.history.runs import NodeRun
from strategos.pipeline.made_from.compared import (
    Change,
    Comparison,
    FileChange,
    MetricChange,
    NodeChange,
    shown,
)
from strategos.pipeline.view import results, terminal
from strategos.pipeline.view.report import headline, paragraph

_LINES = 40  # of the diff of a file
_ROWS = 10  # of a list
_WIDTH = 60  # characters of a value
_STYLES = {"+": "green", "-": "red", "@": "cyan"}


def show(compared: Comparison, console: Console | None = None) -> None:
    """Prints a comparison.

    Args:
      compared: The comparison.
      console: Where to print; standard output by default.
    """
    console = console or terminal.console()
    for name, run in (("A ", compared.before), ("B ", compared.after)):
        console.print(Text.assemble((name, "bold"), headline(run, console)))
    console.print()
    if compared.unknown:
        paragraph(console, "unknown", f"the causes: {compared.unknown}")
    elif not any((compared.settings, compared.code, compared.data, compared.stack)):
        paragraph(console, "changed", "nothing: the same settings, code, data, stack")
    changes(console, "settings", compared.settings)
    _files(console, "data", compared.data)
    changes(console, "stack", compared.stack)
    _files(console, "code", compared.code)
    for each in compared.code:
        diff(console, each.diff)
    worst = compared.slices[:_ROWS]
    for table in (
        metrics(compared.metrics, "metrics"),
        metrics(worst, f"slices, largest of {counted(len(compared.slices), 'change')}"),
        _times(compared.nodes),
    ):
        if table.row_count:
            console.print()
            terminal.show(console, table, indent=2)


def changes(console: Console, label: str, listed: Sequence[Change]) -> None:
    """Prints values that differ; nothing if there are none.

    Args:
      console: Where to print.
      label: A word for all of them, e.g. `stack`.
      listed: The values.
    """
    lines = [
        f"{x.name}: {shown(x.before, _WIDTH)} → {shown(x.after, _WIDTH)}"
        for x in listed
    ]
    if lines:
        paragraph(console, label, "\n".join(first(lines, _ROWS)))


def metrics(listed: Sequence[MetricChange], heading: str) -> Table:
    """A table of metrics in A and B, with their change.

    Args:
      listed: The metrics.
      heading: Of the first column.
    """
    is_known = any(each.is_beyond is not None for each in listed)
    table = results.grid(heading, "A", "B", "change", *([""] if is_known else ()))
    for each in listed:
        place = "" if each.slice == "overall" else f"  {each.slice}"
        table.add_row(
            f"{each.name}{place}",
            _with_margin(each.before, each.before_margin),
            _with_margin(each.after, each.after_margin),
            results.change(each.name, each.before, each.after),
            *([results.beyond(each.is_beyond, each.margin)] if is_known else ()),
        )
    return table


def _with_margin(value: float | None, margin: float | None) -> str:
    text = terminal.number(value)
    return text if margin is None else f"{text} ± {terminal.number(margin)}"


def _files(console: Console, label: str, listed: Sequence[FileChange]) -> None:
    lines = [f"{filesystems.short(x.path)} {x.state}" for x in listed]
    if lines:
        paragraph(console, label, "\n".join(first(lines, _ROWS)))


def diff(console: Console, lines: Sequence[str]) -> None:
    """Prints the lines of a unified diff, the first 40.

    Args:
      console: Where to print.
      lines: The lines, maybe none.
    """
    if lines:
        console.print()
    for line in first(lines, _LINES):
        console.print(Text(f"  {line}", _STYLES.get(line[:1], "")), soft_wrap=True)


def _times(nodes: Sequence[NodeChange]) -> Table:
    table = results.grid("nodes", "A", "B")
    for each in nodes:
        table.add_row(each.name, *_spent(each.before, each.after))
    return table


def _spent(*nodes: NodeRun | None) -> Iterator[str]:
    for node in nodes:
        if node is None:
            yield "-"
        else:
            is_done = node.state == "complete"
            yield duration(node.seconds) if is_done else node.state
