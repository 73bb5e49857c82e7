"""Distributions of features: train beside eval, and beside the run before."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Mapping, Sequence

from strategos.pipeline.report import charts, distributions
from strategos.pipeline.report.distributions import Feature
from strategos.pipeline.report.document import (
    Block,
    Cell,
    Chart,
    Column,
    Paragraph,
    Raw,
    Table,
    header,
)

_DRAWN = 12
_VALUES = 8  # of a text feature
_WHOLE = 0.9999  # of the values; the rest is rounding
_ROWS = 300
TRAIN, EVAL, BEFORE = "train", "eval", "run before"


@dataclasses.dataclass(frozen=True)
class Distances:
    """A feature of split train, and how far other data sets are from it.

    Attributes:
      feature: The name.
      anomalous: Whether it does not match the schema.
      missing: The share of the rows without a value.
      of: The distance by data set; None if they cannot be compared.
    """

    feature: str
    anomalous: bool
    missing: float
    of: Mapping[str, float | None]

    @property
    def notable(self) -> tuple[bool, float, float]:
        """The larger, the more notable."""
        values = [x for x in self.of.values() if x is not None]
        return self.anomalous, max(values, default=0.0), self.missing


def blocks(
    sets: Mapping[str, Mapping[str, Feature]],
    rows: int,
    anomalous: Collection[str],
    before: str,
) -> Iterator[Block]:
    """Charts of the most notable features, and distances of all.

    Args:
      sets: By data set (`TRAIN`, `EVAL`, `BEFORE`), its features by name.
      rows: Rows of split train.
      anomalous: Names of features that do not match the schema.
      before: The run with the data set `BEFORE`; "" for none.
    """
    others = [name for name in sets if name != TRAIN]
    if TRAIN not in sets or not others:
        return
    distances = [
        _distances(name, sets, others, rows, name in anomalous) for name in sets[TRAIN]
    ]
    distances.sort(key=lambda each: each.notable, reverse=True)
    drawn: list[Chart] = []
    for each in distances:
        if chart := _chart(each.feature, sets, len(drawn)):
            drawn.append(chart)
        if len(drawn) == _DRAWN:
            break
    if drawn:
        yield Paragraph(_about(len(drawn), len(distances), before))
        yield from drawn
    yield _table(distances, others)


def _about(drawn: int, features: int, before: str) -> str:
    text = (
        f"Distributions of {drawn} of {features:,} features: those with anomalies "
        "first, then by distance, then by missing values."
    )
    if not before:
        return f"{text} No earlier run of this pipeline has statistics of other data."
    return f"{text} The run before is {before}; no gate judges the distance from it."


def _distances(
    name: str,
    sets: Mapping[str, Mapping[str, Feature]],
    others: Sequence[str],
    rows: int,
    anomalous: bool,
) -> Distances:
    own = sets[TRAIN][name]
    by_set = {}
    for other in others:
        theirs = sets[other].get(name)
        by_set[other] = distributions.distance(own, theirs) if theirs else None
    kind = own.WhichOneof("stats")
    there = getattr(own, kind).common_stats.num_non_missing if kind else 0
    return Distances(name, anomalous, 1 - there / max(rows, 1), by_set)


def _table(distances: Sequence[Distances], others: Sequence[str]) -> Table:
    columns = [
        Column("feature", "feature"),
        *(Column(name, f"from {name}", True) for name in others),
    ]
    listed: list[list[Cell]] = [
        [each.feature, *(each.of[name] for name in others)]
        for each in distances[:_ROWS]
    ]
    title = "Distances of split train, 0 to 1"
    left_out = max(0, len(distances) - _ROWS)
    return Table(title, columns, listed, left_out, folded=True)


def _chart(
    name: str, sets: Mapping[str, Mapping[str, Feature]], number: int
) -> Chart | None:
    """The chart of a feature; None without numbers and without values that repeat."""
    shown = {of: each[name] for of, each in sets.items() if name in each}
    if distributions.has_numbers(shown[TRAIN]):
        kept = {x: y for x, y in shown.items() if distributions.has_numbers(y)}
        return _numbers(name, kept, number)
    text = shown[TRAIN].string_stats
    if text.top_values and text.top_values[0].frequency > 1:
        kept = {x: y for x, y in shown.items() if y.string_stats.top_values}
        return _values(name, kept, number)
    return None


def _numbers(name: str, shown: Mapping[str, Feature], number: int) -> Chart:
    borders = distributions.borders(list(shown.values()))
    columns = header("of | x#: from | x2#: to | y#: share")
    rows: list[list[Cell]] = []
    for of, feature in shown.items():
        shares = distributions.shares(feature, borders)
        bins = zip(borders, borders[1:], shares, strict=False)
        rows += [[of, low, high, share] for low, high, share in bins]
    caption = "Share of the values in each bin."
    if sum(distributions.shares(shown[TRAIN], borders)) < _WHOLE:
        caption += " The outermost tenths reach farther and are drawn in part."
    return Chart(
        f"feature-{number}",
        charts.histograms(("x", "x2"), "y", titles=(name, "share")),
        Table(name, columns, rows),
        caption,
        of_few_rows=True,
    )


def _values(name: str, shown: Mapping[str, Feature], number: int) -> Chart:
    by_value = distributions.frequent(list(shown.values()), _VALUES)
    columns = header("value | of | share#")
    rows = [
        [Raw(value, "value"), of, share]
        for value, shares in by_value.items()
        for of, share in zip(shown, shares, strict=True)
    ]
    spec = charts.grouped_bars("value", "share", len(by_value), title="share")
    caption = "Share of the most frequent values."
    return Chart(f"feature-{number}", spec, Table(name, columns, rows), caption)
