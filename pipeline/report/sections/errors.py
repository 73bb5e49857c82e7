"""Answers that are numbers: predictions beside labels, and errors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from strategos.pipeline.report import charts
from strategos.pipeline.report.document import (
    Block,
    Cell,
    Chart,
    Column,
    Raw,
    Table,
    header,
)

NAMES = {"candidate": "model", "baseline": "in production"}
_PREDICTION = "mean prediction"
_FEW = 10
"""With fewer rows, a mean may tell the value of a single row."""


def blocks(models: Mapping[str, Any]) -> list[Block]:
    """Tables and charts.

    Args:
      models: Points of each model, of `answers.json`.
    """
    if not models["candidate"]["groups"]:
        return []
    shown = [(name, models[key]) for key, name in NAMES.items() if key in models]
    drawn = [_squares(*each) for each in shown if each[1]["squares"]["squares"]]
    title = "Quantiles of the error (prediction minus label)"
    return [_quantiles(shown, title), _labels(shown), _errors(shown), *drawn]


def of_rows(models: Mapping[str, Any]) -> list[Block]:
    """The errors of reconstructed rows, of which a threshold for anomalies is chosen.

    Args:
      models: Points of each model, of `answers.json`.
    """
    shown = [(name, models[key]) for key, name in NAMES.items() if key in models]
    if not models["candidate"]["quantiles"]:
        return []
    return [_quantiles(shown, "Quantiles of `reconstruction_error` of a row")]


def _quantiles(shown: list[tuple[str, Any]], title: str) -> Table:
    shares = [share for share, *_ in shown[0][1]["quantiles"]]
    columns = [Column("of", "of")]
    columns += [Column(f"q{x:g}", f"{100 * x:g} %", True) for x in shares]
    rows = [[name, *map(_quantile, own["quantiles"])] for name, own in shown]
    return Table(title, columns, rows)


def _quantile(point: Sequence[float]) -> Cell:
    """An error; earlier versions recorded without its number of rows."""
    _, error, *rows = point
    return error if rows and rows[0] >= _FEW else Raw(error)


def _labels(shown: list[tuple[str, Any]]) -> Chart:
    columns = header(f"of | x#: {_PREDICTION} | y#: mean label | rows#")
    rows = [
        (name, group["predicted"], group["observed"], whole(group["rows"]))
        for name, group in _groups(shown)
    ]
    spec = charts.beside_diagonal(
        "x",
        titles=(_PREDICTION, "mean label"),
        ends=(min(row[1] for row in rows), max(row[1] for row in rows)),
    )
    table = Table("Labels by prediction", columns, rows)
    return Chart(
        *("labels", spec, table),
        "Groups of about equally many rows by prediction; on the dashed line, "
        "predictions are right on average.",
        of_few_rows=_few(shown),
    )


def _errors(shown: list[tuple[str, Any]]) -> Chart:
    columns = header(
        f"of | x#: {_PREDICTION} | y#: mean error | deviation# | "
        "low#: less deviation | high#: plus deviation"
    )
    rows: list[list[Cell]] = []
    for name, group in _groups(shown):
        error, deviation = group["error"], group["deviation"]
        ends = error - deviation, error + deviation
        rows.append([name, group["predicted"], error, deviation, *ends])
    spec = charts.band("x", "y", ("low", "high"), titles=(_PREDICTION, "error"))
    return Chart(
        *("errors", spec, Table("Errors by prediction", columns, rows)),
        "Prediction minus label: the mean of each group, and one standard deviation "
        "around the mean.",
        of_few_rows=_few(shown),
    )


def _groups(shown: list[tuple[str, Any]]) -> Iterator[tuple[str, Mapping[str, float]]]:
    for name, own in shown:
        yield from ((name, group) for group in own["groups"])


def _few(shown: list[tuple[str, Any]]) -> bool:
    return any(group["rows"] < _FEW for _, group in _groups(shown))


def _squares(name: str, own: Mapping[str, Any]) -> Chart:
    width, squares = own["squares"]["width"], own["squares"]["squares"]
    outside = own["squares"]["outside"]
    total = outside + sum(count for _, _, count in squares)
    columns = header("x#: prediction from | x2#: to | y#: label from | y2#: to | rows#")
    rows: list[list[Cell]] = [
        [x, x + width, y, y + width, whole(count)] for x, y, count in squares
    ]
    title = "Predictions and labels"
    if name != NAMES["candidate"]:
        title += f", {name}"
    columns_of = [{each[axis] for each in squares} for axis in (0, 1)]
    ends = max(map(min, columns_of)), min(map(max, columns_of)) + width
    spec = charts.density(
        ("x", "x2"), ("y", "y2"), "rows", titles=("prediction", "label"), ends=ends
    )
    share = 100 * outside / total
    return Chart(
        "pairs-" + name.replace(" ", "-"),
        spec,
        Table(title, columns, rows),
        f"The stronger a square, the more rows; on the dashed line both are equal. "
        f"{share:.2g} % of the rows are far out and not drawn.",
        of_few_rows=True,
    )


def whole(count: float) -> float | int:
    """A sum of weights; a number of rows as a whole number."""
    return int(count) if float(count).is_integer() else count
