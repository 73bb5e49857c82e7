"""The year as a table and as a plot."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

_MODELS = {
    "live": ("live model, warm start on each new month", "#1a6fb5"),
    "first": ("model of January, never retrained", "#c0392b"),
    "scratch": ("trained from scratch on all months so far", "#888888"),
}
_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _TOP = 640, 320, 50, 50, 20
_NAMES = [
    "Jan",
    "Feb",
    "Mar",
    "Apr",
    "May",
    "Jun",
    "Jul",
    "Aug",
    "Sep",
    "Oct",
    "Nov",
    "Dec",
]

Line = Mapping[str, Any]


def table(found: Sequence[Line]) -> str:
    """The arrivals as a table in Markdown."""
    rows = [
        "| arrival | outcome | AUC on the next month: live | first | from scratch |",
        "|---|---|---|---|---|",
    ]
    for line in found:
        name = _NAMES[line["month"] - 1]
        if "bad" in line:
            stays = "the live model stays" if line["live_stays"] else "**replaced**"
            outcome = f"{line['outcome']} (exit {line['exit']}): {_why(line)}; {stays}"
            rows.append(f"| bad: {line['bad']} | {outcome} | | | |")
            continue
        scores = [f"{line[model]:.4f}" if model in line else "" for model in _MODELS]
        outcome = f"{line['outcome']}{_reason(line)}"
        rows.append(f"| {name} | {outcome} | {' | '.join(scores)} |")
    return "\n".join(rows) + "\n"


def _reason(line: Line) -> str:
    return "" if line["exit"] == 0 else f" (exit {line['exit']}): {_why(line)}"


def _why(line: Line) -> str:
    shown = (part.strip() for part in line["cause"][1:3])
    without_folders = re.sub(r"\S*/", "", next(shown, "").replace("|", ""))
    return without_folders.partition(". ")[0].removesuffix(".")


def write(found: Sequence[Line], docs: Path) -> None:
    """Writes the page and its plot.

    Args:
      found: The lines of the results.
      docs: The folder `docs`.
    """
    (docs / "year_of_flights.svg").write_text("\n".join(_plot(found)) + "\n")
    every = found[0]["every"]
    part = "all of them" if every == 1 else f"one in {every}"
    (docs / "year_of_flights.md").write_text(
        _PAGE.format(table=table(found), every=every, part=part)
    )


def _plot(found: Sequence[Line]) -> Iterator[str]:
    good = [line for line in found if "live" in line]
    values = [line[model] for line in good for model in _MODELS]
    low, high = min(values) - 0.01, max(values) + 0.01

    def x(month: int) -> float:
        return _LEFT + (month - 1.5) * (_WIDTH - _LEFT) / 10

    def y(value: float) -> float:
        return (
            _HEIGHT
            - _BOTTOM
            - (value - low) / (high - low) * (_HEIGHT - _BOTTOM - _TOP)
        )

    height = _HEIGHT + 20 * len(_MODELS)
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" '
        'font-family="sans-serif" font-size="12">'
    )
    yield f'<rect width="{_WIDTH}" height="{height}" fill="white"/>'
    for tick in range(round(low * 50), round(high * 50) + 1):
        if low <= tick / 50 <= high:
            yield f'<path d="M{_LEFT} {y(tick / 50):.1f}H{_WIDTH}" stroke="#dddddd"/>'
            yield f'<text x="10" y="{y(tick / 50) + 4:.1f}">{tick / 50:.2f}</text>'
    for line in good:
        name = _NAMES[line["month"]]
        yield f'<text x="{x(line["month"]) - 10:.0f}" y="{_HEIGHT - 30}">{name}</text>'
    for number, (model, (name, color)) in enumerate(_MODELS.items()):
        points = [f"{x(line['month']):.1f},{y(line[model]):.1f}" for line in good]
        yield f'<polyline points="{" ".join(points)}" fill="none" stroke="{color}"/>'
        top = _HEIGHT + 20 * number
        yield f'<rect x="{_LEFT}" y="{top - 9}" width="20" height="8" fill="{color}"/>'
        yield f'<text x="{_LEFT + 28}" y="{top}">{name}</text>'
    yield "</svg>"


_PAGE = """\
# A year of flights

`python benchmarks/year_of_flights --every {every}` replays the flights of 2013
({part}). Each month arrives as a span, and `strategos retrain --if-due` decides. A run
trains on the month before, from the weights of the model in production, judges the
candidate and the model in production on the month that has arrived, and pushes. In
between, bad spans arrive, made from the rows of the next month. The AUC is
scikit-learn's, on all flights of the next month, unseen by the model: `live` is
the model in production, `first` that of January, `from scratch` that of a pipeline with
`data.spans: all` and no warm start.

![AUC on the next month](year_of_flights.svg)

{table}"""
