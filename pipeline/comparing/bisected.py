"""The result of `strategos bisect`, as a sentence with a table, and as JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import Console

from strategos.components.wording import abridged, counted, listed
from strategos.pipeline.comparing import view
from strategos.pipeline.comparing.separable import Change
from strategos.pipeline.history.runs import Run
from strategos.pipeline.made_from import compared
from strategos.pipeline.view import results, terminal
from strategos.pipeline.view.report import headline, paragraph

_NAMED = 5  # changes in a sentence


@dataclasses.dataclass(frozen=True)
class Cause:
    """Changes that make the metric worse, and no longer without any one of them.

    Attributes:
      changes: The changes.
      value: The metric of the first run with only these.
      share: By how much it is worse, as a part of the difference of the two runs.
    """

    changes: tuple[Change, ...]
    value: float
    share: float


@dataclasses.dataclass(frozen=True)
class Bisected:
    """The causes of a metric that is worse in the second of two runs.

    Attributes:
      good: The first run.
      bad: The second run.
      metric: The metric.
      recorded: Its value in both runs.
      again: Its value in both, made again here.
      causes: In the order in which they were found.
      suspects: If runs ran out: changes that contain a further cause, or that were not
        tried yet.
      others: The changes that are no cause.
      rest: The metric of the first run with all of `others`; None if not tried.
      stack: Entries of the stack that differ, which cannot be separated here.
      runs: The number of runs that were made now, besides the two.
      share: The part of the difference from which a change counts.
      folder: The folder of the runs.
    """

    good: Run
    bad: Run
    metric: str
    recorded: tuple[float, float]
    again: tuple[float, float]
    causes: tuple[Cause, ...]
    suspects: tuple[Change, ...]
    others: tuple[Change, ...]
    rest: float | None
    stack: tuple[compared.Change, ...]
    runs: int
    share: float
    folder: str

    @property
    def is_complete(self) -> bool:
        """Whether all causes are found among settings, code and data."""
        return bool(self.causes) and not self.suspects


def to_json(found: Bisected) -> dict[str, Any]:
    """JSON-able values."""
    ends = ("recorded", "again")
    return {
        "good": found.good.run_id,
        "bad": found.bad.run_id,
        "metric": found.metric,
        **{
            end: dict(zip(("good", "bad"), getattr(found, end), strict=True))
            for end in ends
        },
        "complete": found.is_complete,
        "causes": [
            {
                "changes": _described(each.changes),
                "value": each.value,
                "share": each.share,
            }
            for each in found.causes
        ],
        "suspects": _described(found.suspects),
        "others": _described(found.others),
        "rest": found.rest,
        "not_separable": [dataclasses.asdict(each) for each in found.stack],
        "runs": found.runs,
        "counts_from": found.share,
        "folder": found.folder,
    }


def _described(changes: Sequence[Change]) -> list[dict[str, Any]]:
    keys = ("kind", "name", "detail")
    return [
        {**{key: getattr(x, key) for key in keys}, "diff": list(x.diff)}
        for x in changes
    ]


def show(found: Bisected) -> None:
    """Prints the causes: a sentence, a table, and the code's differences."""
    console = terminal.console()
    for name, run in (("GOOD ", found.good), ("BAD  ", found.bad)):
        console.print(name, headline(run, console), sep="")
    console.print()
    for label, text in _sentences(found):
        paragraph(console, label, text)
    console.print()
    terminal.show(console, _table(found), indent=2)
    if found.stack:
        console.print()
        view.changes(console, "stack (not separable here)", found.stack)
    _diffs(console, found)


def _sentences(found: Bisected) -> Iterator[tuple[str, str]]:
    metric, (before, after) = found.metric, map(terminal.number, found.again)
    if found.causes:
        names = [_named(each.changes) for each in found.causes]
        text = f"{metric} got worse, from {before} to {after}, because of "
        many = f"{len(names)} causes: " if len(names) > 1 else ""
        yield "cause", f"{text}{many}{listed(names)}"
    elif not found.suspects:
        yield "no cause", _without_cause(found, before, after)
    if found.suspects:
        names = [f"`{each.name}`" for each in found.suspects]
        yield (
            "unfinished",
            f"all runs are used; {counted(len(names), 'change')} may contain "
            f"{'a further' if found.causes else 'the'} cause: "
            f"{abridged(names, _NAMED)}. Repeat the command to go on from here, or "
            "with a larger --runs.",
        )
    elif found.causes and found.others:
        number = counted(len(found.others), "other change")
        yield (
            "others",
            f"with nothing but the {number}, {metric} is {terminal.number(found.rest)}",
        )
    if found.causes or found.suspects:
        yield (
            "counted",
            f"a change is a cause if {metric} gets worse by more than "
            f"{found.share:.0%} of the difference",
        )


def _without_cause(found: Bisected, before: str, after: str) -> str:
    text = (
        f"made again here, {found.metric} is {before} for GOOD and {after} for BAD: "
        "neither settings nor code nor data explain the difference of the recorded runs"
    )
    if found.stack:
        return f"{text}; the stack differs, which is not separable here"
    return f"{text}; chance, or the stack since then, does"


def _named(changes: Sequence[Change]) -> str:
    names = [f"`{each.name}` ({each.detail})" for each in changes]
    return f"{listed(names)}{' together' if len(names) > 1 else ''}"


def _table(found: Bisected) -> Any:
    table = results.grid("", f"{found.metric}", "of the difference", "recorded")
    for name, n in (("GOOD", 0), ("BAD", 1)):
        again, recorded = found.again[n], found.recorded[n]
        table.add_row(name, terminal.number(again), "", terminal.number(recorded))
    for cause in found.causes:
        figures = terminal.number(cause.value), f"{cause.share:.0%}"
        for number, each in enumerate(cause.changes):
            sign = "  with" if number else "GOOD with"
            table.add_row(f"{sign} {each.name}", *(() if number else figures))
    return table


def _diffs(console: Console, found: Bisected) -> None:
    for cause in found.causes:
        for each in cause.changes:
            view.diff(console, each.diff)
