"""The table of `strategos models`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from strategos.components.wording import duration
from strategos.pipeline.view import terminal

if TYPE_CHECKING:
    from strategos.pipeline.history.models import Version

_METRICS = 3  # shown for each version


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
    names = list(dict.fromkeys(name for each in versions for name in each.metrics))
    names = sorted(names)[:_METRICS]
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for heading in ("version", "", "pushed", "spans", *names, "run"):
        table.add_column(heading, no_wrap=True)
    for each in versions:
        table.add_row(
            str(each.version),
            _state(each),
            _age(each.pushed_at),
            _spans(each),
            *(_number(each.metrics.get(name)) for name in names),
            _origin(each),
        )
    terminal.show(console, table)


def _state(version: Version) -> Text | str:
    if version.slot:
        return Text(version.slot, style="yellow")
    return Text("live", style="green") if version.live else ""


def _age(pushed_at: float | None) -> str:
    if pushed_at is None:
        return "?"
    return f"{duration(max(0.0, time.time() - pushed_at))} ago"


def _spans(version: Version) -> str:
    """`1..6`, or the first and the last with their number where some are missing."""
    numbers = [number for number, _ in version.spans]
    if len(numbers) < 2:
        return ", ".join(map(str, numbers))
    text = f"{numbers[0]}..{numbers[-1]}"
    whole = numbers[-1] - numbers[0] + 1 == len(numbers)
    return text if whole else f"{text} ({len(numbers)})"


def _number(value: float | None) -> str:
    return "" if value is None else terminal.number(value)


def _origin(version: Version) -> str:
    if version.rollback_of:
        return f"rolled back to {version.rollback_of}"
    if version.promoted_from:
        return f"{version.run_id or '?'} (canary {version.promoted_from})"
    if not version.artifact:
        return f"{version.run_id or ''} (not in this root's ML Metadata)".strip()
    return version.run_id or "?"
