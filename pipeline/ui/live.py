"""A run in progress: its nodes and the training's curves, from its event file."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from strategos.components import node_ids
from strategos.components.events import NewEvents
from strategos.components.wording import duration
from strategos.pipeline.report.document import (
    Block,
    Cell,
    Chart,
    Facts,
    Raw,
    Section,
    Table,
    header,
)
from strategos.pipeline.report.sections import outcome
from strategos.pipeline.report.sections.training import curve
from strategos.pipeline.view.live import NodeState, RunProgress

_CHARTS = 8
_MESSAGES = 5


class Following:
    """The event file of one run; each call reads the new events.

    Args:
      folder: The run's folder in the local state of the root; on another machine it
        does not exist, and nothing is known.
    """

    def __init__(self, folder: Path):
        self._events = NewEvents(folder / "events.jsonl")
        self._progress = RunProgress()
        self._epochs: dict[int, Mapping[str, float]] = {}
        self._messages: list[tuple[str, str, str]] = []

    def section(self) -> Section | None:
        """The state of the run; None if it has reported nothing."""
        for event in self._events.read():
            self._progress.apply(event)
            self._note(event)
        if not self._progress.run:
            return None
        now = time.time()
        spent = duration(max(0.0, now - self._progress.run["time"]))
        blocks: list[Block] = [Facts([("running for", spent)])]
        blocks.append(self._nodes(now))
        blocks += self._curves()
        if self._messages:
            columns = header("node | kind | message")
            rows = [(x, kind, Raw(text)) for x, kind, text in self._messages]
            blocks.append(Table("Notes and warnings", columns, rows))
        return Section("now", "In progress", blocks)

    def _note(self, event: Mapping[str, Any]) -> None:
        node = str(event.get("node") or "")
        if event["event"] == "epoch" and node == node_ids.TRAINER:
            self._epochs[int(event["epoch"])] = event["values"]
        elif event["event"] in ("note", "warning"):
            text = str(event.get("message", ""))
            self._messages.append((node, event["event"], text))
            del self._messages[:-_MESSAGES]

    def _nodes(self, now: float) -> Table:
        columns = header("node | state | time# | detail")
        rows = [
            (name, outcome.state(node.state), _spent(node, now), Raw(node.detail()))
            for name, node in self._progress.nodes.items()
        ]
        return Table("Nodes", columns, rows)

    def _curves(self) -> Iterator[Chart]:
        """The metrics by epoch, as far as epochs have ended."""
        names = dict.fromkeys(n for each in self._epochs.values() for n in each)
        epochs = [
            self._epochs.get(n, {}) for n in range(1, max(self._epochs, default=0) + 1)
        ]
        history = {name: [each.get(name) for each in epochs] for name in names}
        shown = dict.fromkeys(name.removeprefix("val_") for name in names)
        for name in list(shown)[:_CHARTS]:
            yield curve(name, history)


def _spent(node: NodeState, now: float) -> Cell:
    if node.state == "running" and node.started is not None:
        return duration(max(0.0, now - node.started))
    return None if node.seconds is None else duration(node.seconds)
