"""The year as a table and as a plot."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from arrivals import Cut

MODELS = {
    "live": ("live model, warm start on each new {period}", "#1a6fb5"),
    "first": ("first model, never retrained", "#c0392b"),
    "scratch": ("trained from scratch on all {period}s so far", "#888888"),
}
_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _TOP = 640, 320, 50, 50, 20
_TEXTS = 12  # at most, below the plot
Line = Mapping[str, Any]


def table(cut: Cut, found: Sequence[Line]) -> str:
    """The arrivals as a table in Markdown."""
    head = f"AUC on the next {cut.period}: live | first | from scratch"
    rows = [
        f"| arrival | outcome | {head} |",
        "|---|---|---|---|---|",
    ]
    for line in found:
        name = cut.names[line["period"] - 1]
        if "bad" in line:
            stays = "the live model stays" if line["live_stays"] else "**replaced**"
            outcome = f"{line['outcome']} (exit {line['exit']}): {_why(line)}; {stays}"
            rows.append(f"| bad: {line['bad']} | {outcome} | | | |")
            continue
        scores = [f"{line[model]:.4f}" if model in line else "" for model in MODELS]
        outcome = f"{line['outcome']}{_reason(line)}"
        rows.append(f"| {name} | {outcome} | {' | '.join(scores)} |")
    return "\n".join(rows) + "\n"


def _reason(line: Line) -> str:
    return "" if line["exit"] == 0 else f" (exit {line['exit']}): {_why(line)}"


def _why(line: Line) -> str:
    shown = (part.strip() for part in line["cause"][1:3])
    without_folders = re.sub(r"\S*/", "", next(shown, "").replace("|", ""))
    return without_folders.partition(". ")[0].removesuffix(".")


def write(cut: Cut, found: Sequence[Line], docs: Path) -> None:
    """Writes the page and its plot.

    Args:
      cut: Of the year.
      found: The lines of the results.
      docs: The folder `docs`.
    """
    name = "year_of_flights" if cut.period == "month" else "year_of_flights_by_week"
    (docs / f"{name}.svg").write_text("\n".join(_plot(cut, found)) + "\n")
    every = found[0]["every"]
    words = {
        "by": "" if cut.period == "month" else f" --by {cut.period}",
        "every": "" if every == 1 else f" --every {every}",
        "part": "all of them" if every == 1 else f"one in {every}",
        "settings": "".join(f", `{setting}`" for setting in cut.settings),
        "scratch": ", ".join(f"`{setting}`" for setting in cut.scratch),
    }
    (docs / f"{name}.md").write_text(
        _PAGE.format(table=table(cut, found), period=cut.period, name=name, **words)
    )


def _plot(cut: Cut, found: Sequence[Line]) -> Iterator[str]:
    good = [line for line in found if "live" in line]
    values = [line[model] for line in good for model in MODELS]
    low, high = min(values) - 0.01, max(values) + 0.01
    step = -(-len(good) // _TEXTS)

    first, last = good[0]["period"], good[-1]["period"]

    def x(period: int) -> float:
        return _LEFT + (period - first + 0.5) * (_WIDTH - _LEFT) / (last - first + 1)

    def y(value: float) -> float:
        return (
            _HEIGHT
            - _BOTTOM
            - (value - low) / (high - low) * (_HEIGHT - _BOTTOM - _TOP)
        )

    height = _HEIGHT + 20 * len(MODELS)
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" '
        'font-family="sans-serif" font-size="12">'
    )
    yield f'<rect width="{_WIDTH}" height="{height}" fill="white"/>'
    for tick in range(round(low * 50), round(high * 50) + 1):
        if low <= tick / 50 <= high:
            yield f'<path d="M{_LEFT} {y(tick / 50):.1f}H{_WIDTH}" stroke="#dddddd"/>'
            yield f'<text x="10" y="{y(tick / 50) + 4:.1f}">{tick / 50:.2f}</text>'
    for line in good[::step]:
        name, left = cut.names[line["period"]], x(line["period"]) - 10
        yield f'<text x="{left:.0f}" y="{_HEIGHT - 30}">{name}</text>'
    for number, (model, (name, color)) in enumerate(MODELS.items()):
        points = [f"{x(line['period']):.1f},{y(line[model]):.1f}" for line in good]
        yield f'<polyline points="{" ".join(points)}" fill="none" stroke="{color}"/>'
        top = _HEIGHT + 20 * number
        yield f'<rect x="{_LEFT}" y="{top - 9}" width="20" height="8" fill="{color}"/>'
        text = name.format(period=cut.period)
        yield f'<text x="{_LEFT + 28}" y="{top}">{text}</text>'
    yield "</svg>"


_PAGE = """\
# A year of flights, {period} by {period}

`python benchmarks/year_of_flights{by}{every}` replays the flights of 2013 ({part}).
Each {period} arrives as a span, and `strategos retrain --if-due` decides. A run
trains on the spans before it, from the weights of the model in production, judges the
candidate and the model in production on the {period} that has arrived, and pushes
(`benchmarks/year_of_flights/workload`{settings}). In between, bad spans arrive, made
from the rows of the next {period}. The AUC is scikit-learn's, on the flights of the
next {period}, unseen by the model: `live` is the model in production, `first` the first
one, `from scratch` that of a second pipeline with {scratch}.

![AUC on the next {period}]({name}.svg)

{table}"""
