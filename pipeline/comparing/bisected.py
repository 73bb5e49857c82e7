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


def to_json(outcome: Bisected) -> dict[str, Any]:
    """JSON-able values."""
    ends = ("recorded", "again")
    return {
        "good": outcome.good.run_id,
        "bad": outcome.bad.run_id,
        "metric": outcome.metric,
        **{
            end: dict(zip(("good", "bad"), getattr(outcome, end), strict=True))
            for end in ends
        },
        "complete": outcome.is_complete,
        "causes": [
            {
                "changes": _described(each.changes),
                "value": each.value,
                "share": each.share,
            }
            for each in outcome.causes
        ],
        "suspects": _described(outcome.suspects),
        "others": _described(outcome.others),
        "rest": outcome.rest,
        "not_separable": [dataclasses.asdict(each) for each in outcome.stack],
        "runs": outcome.runs,
        "counts_from": outcome.share,
        "folder": outcome.folder,
    }


def _described(changes: Sequence[Change]) -> list[dict[str, Any]]:
    keys = ("kind", "name", "detail")
    return [
        {**{key: getattr(x, key) for key in keys}, "diff": list(x.diff)}
        for x in changes
    ]


def show(outcome: Bisected) -> None:
    """Prints the causes: a sentence, a table, and the code's differences."""
    console = terminal.console()
    for name, run in (("GOOD ", outcome.good), ("BAD  ", outcome.bad)):
        console.print(name, headline(run, console), sep="")
    console.print()
    for label, text in _sentences(outcome):
        paragraph(console, label, text)
    console.print()
    terminal.show(console, _table(outcome), indent=2)
    if outcome.stack:
        console.print()
        view.changes(console, "stack (not separable here)", outcome.stack)
    _diffs(console, outcome)


def _sentences(outcome: Bisected) -> Iterator[tuple[str, str]]:
    metric, (before, after) = outcome.metric, map(terminal.number, outcome.again)
    if outcome.causes:
        names = [_named(each.changes) for each in outcome.causes]
        text = f"{metric} got worse, from {before} to {after}, because of "
        many = f"{len(names)} causes: " if len(names) > 1 else ""
        yield "cause", f"{text}{many}{listed(names)}"
    elif not outcome.suspects:
        yield "no cause", _without_cause(outcome, before, after)
    if outcome.suspects:
        names = [f"`{each.name}`" for each in outcome.suspects]
        yield (
            "unfinished",
            f"all runs are used; {counted(len(names), 'change')} may contain "
            f"{'a further' if outcome.causes else 'the'} cause: "
            f"{abridged(names, _NAMED)}. Repeat the command to go on from here, or "
            "with a larger --runs.",
        )
    elif outcome.causes and outcome.others:
        number = counted(len(outcome.others), "other change")
        yield (
            "others",
            f"with nothing but the {number}, {metric} is "
            f"{terminal.number(outcome.rest)}",
        )
    if outcome.causes or outcome.suspects:
        yield (
            "counted",
            f"a change is a cause if {metric} gets worse by more than "
            f"{outcome.share:.0%} of the difference",
        )


def _without_cause(outcome: Bisected, before: str, after: str) -> str:
    text = (
        f"made again here, {outcome.metric} is {before} for GOOD and {after} for BAD: "
        "neither settings nor code nor data explain the difference of the recorded runs"
    )
    if outcome.stack:
        return f"{text}; the stack differs, which is not separable here"
    return f"{text}; chance, or the stack since then, does"


def _named(changes: Sequence[Change]) -> str:
    names = [f"`{each.name}` ({each.detail})" for each in changes]
    return f"{listed(names)}{' together' if len(names) > 1 else ''}"


def _table(outcome: Bisected) -> Any:
    table = results.grid("", f"{outcome.metric}", "of the difference", "recorded")
    for name, n in (("GOOD", 0), ("BAD", 1)):
        again, recorded = outcome.again[n], outcome.recorded[n]
        table.add_row(name, terminal.number(again), "", terminal.number(recorded))
    for cause in outcome.causes:
        figures = terminal.number(cause.value), f"{cause.share:.0%}"
        for number, each in enumerate(cause.changes):
            sign = "  with" if number else "GOOD with"
            table.add_row(f"{sign} {each.name}", *(() if number else figures))
    return table


def _diffs(console: Console, outcome: Bisected) -> None:
    for cause in outcome.causes:
        for each in cause.changes:
            view.diff(console, each.diff)
