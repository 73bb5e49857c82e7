"""The table of `strategos models`."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from strategos.components.wording import duration
from strategos.pipeline.view import terminal

if TYPE_CHECKING:
    from strategos.pipeline.history.models import Version

_ORIGIN_WIDTH = 28  # Room for a run's id, which is folded if it is narrower.


def show(
    versions: Sequence[Version], folder: str, console: Console | None = None
) -> None:
    """Prints the versions, one a line, in the given order.

    Args:
      versions: Newest first.
      folder: The folder that they are in.
      console: Where to print; standard output by default.
    """
    console = console or terminal.console()
    if not versions:
        console.print(f"no versions yet in {folder}", soft_wrap=True)
        return
    names = sorted({name for each in versions for name in each.metrics})
    columns: dict[str, Sequence[Text | str]] = {
        "version": [str(each.version) for each in versions],
        "": [_state(each) for each in versions],
        "pushed": [_age(each.pushed_at) for each in versions],
        "spans": [spans(each) for each in versions],
    }
    shown = _fitting(names, columns, console.width)
    for name in shown:
        columns[name] = [_number(each.metrics.get(name)) for each in versions]
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for heading in columns:
        table.add_column(heading, no_wrap=True)
    table.add_column("run", overflow="fold")
    for row in zip(*columns.values(), map(_origin, versions), strict=True):
        table.add_row(*row)
    terminal.show(console, table)
    if hidden := names[len(shown) :]:
        console.print(terminal.hidden(hidden, console), soft_wrap=True)
    if report := next((each.report for each in versions if each.report), ""):
        console.print(f"reports: {os.path.dirname(report)}", soft_wrap=True)


def _fitting(
    names: Sequence[str], columns: Mapping[str, Sequence[Text | str]], width: int
) -> Sequence[str]:
    """The first of `names` that fit beside `columns` and the run."""
    room = width - _ORIGIN_WIDTH
    room -= sum(max(map(len, (name, *cells))) + 2 for name, cells in columns.items())
    widths = itertools.accumulate(
        max(len(name), terminal.NUMBER_WIDTH) + 2 for name in names
    )
    return names[: sum(end <= room for end in widths)]


def _state(version: Version) -> Text | str:
    if version.slot:
        return Text(version.slot, style="yellow")
    return Text("live", style="green") if version.live else ""


def _age(pushed_at: float | None) -> str:
    if pushed_at is None:
        return "?"
    return f"{duration(max(0.0, time.time() - pushed_at))} ago"


def spans(version: Version) -> str:
    """`1..6`, or the first and the last with their number where some are missing."""
    numbers = [number for number, _ in version.spans]
    if len(numbers) < 2:
        return ", ".join(map(str, numbers))
    text = f"{numbers[0]}..{numbers[-1]}"
    whole = numbers[-1] - numbers[0] + 1 == len(numbers)
    return text if whole else f"{text} ({len(numbers)})"


def _number(value: float | None) -> str:
    return "" if value is None else terminal.number(value)


def promotion(version: Version) -> str:
    """The promotion by which a version of `pusher.canary` became live."""
    if version.decided_by:
        return f"{version.promoted_from}, approved by {version.decided_by}"
    return f"canary {version.promoted_from}"


def _origin(version: Version) -> str:
    if version.rollback_of:
        return f"rolled back to {version.rollback_of}"
    if version.promoted_from:
        return f"{version.run_id or '?'} ({promotion(version)})"
    if not version.artifact:
        return f"{version.run_id or ''} (not in this root's ML Metadata)".strip()
    return version.run_id or "?"
