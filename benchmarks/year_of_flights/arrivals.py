"""The spans of the year, and the bad ones among them."""

from __future__ import annotations

import dataclasses
import datetime
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from strategos.components.files import commit

_MONTHS = range(1, 13)
_LAST_WEEK = 51  # from zero; it has the eighth day, too


@dataclasses.dataclass(frozen=True)
class Cut:
    """How the year is cut into periods; each period arrives as a span.

    Attributes:
      period: Word for a period, e.g. "month".
      names: Names of the periods, from 1.
      first: The first period with a run: as many as `data.spans` asks for.
      bad: The periods after which bad spans arrive.
      settings: Settings of the pipeline, beside its YAML.
      scratch: Settings of the pipeline that trains from scratch, beside these.
    """

    period: str
    names: Sequence[str]
    first: int
    bad: Sequence[int]
    settings: Sequence[str]
    scratch: Sequence[str]

    def spans(self, flights: Path, folder: Path) -> dict[int, pa.Table]:
        """Makes the data of examples/flights in `folder`; returns them by period."""
        sys.path.insert(0, str(flights))
        import data

        data.prepare(str(folder))
        months = {
            month: csv.read_csv(folder / f"data/span-{month:02d}/flights.csv")
            for month in _MONTHS
        }
        return months if self.period == "month" else _weeks(list(months.values()))


def _weeks(months: Sequence[pa.Table]) -> dict[int, pa.Table]:
    table = pa.concat_tables(months)
    before = [
        datetime.date(2013, month, 1).timetuple().tm_yday - 1 for month in _MONTHS
    ]
    day = pc.add(
        pc.take(pa.array(before), pc.subtract(table["month"], 1)), table["day"]
    )
    week = pc.min_element_wise(pc.divide(pc.subtract(day, 1), 7), _LAST_WEEK)
    return {
        number + 1: table.filter(pc.equal(week, number))
        for number in range(_LAST_WEEK + 1)
    }


def arrive(table: pa.Table, workload: Path, span: int) -> None:
    """Writes a span into the data of a workload, as a whole."""
    target = workload / "data" / f"span-{span:03d}"
    with commit.aside(target) as folder:
        folder.mkdir(parents=True)
        csv.write_csv(table, folder / "flights.csv")


def _set(table: pa.Table, name: str, values: pa.ChunkedArray) -> pa.Table:
    return table.set_column(table.column_names.index(name), name, values)


def _renamed(table: pa.Table) -> pa.Table:
    names = ["miles" if name == "distance" else name for name in table.column_names]
    return table.rename_columns(names)


def _kilometres(table: pa.Table) -> pa.Table:
    values = pc.round(pc.multiply(table["distance"], 1.609))
    return _set(table, "distance", pc.cast(values, pa.int64()))


def _half(table: pa.Table) -> pa.Table:
    return table.take(pa.array(range(0, table.num_rows, 2)))


def _silent(table: pa.Table) -> pa.Table:
    return _set(table, "wind_speed", pa.nulls(table.num_rows, pa.float64()))


def _flipped(table: pa.Table) -> pa.Table:
    return _set(table, "late", pc.subtract(1, table["late"]))


BAD: tuple[tuple[str, Callable[[pa.Table], pa.Table]], ...] = (
    ("column renamed", _renamed),
    ("miles to kilometres", _kilometres),
    ("half of the rows", _half),
    ("column without values", _silent),
    ("labels flipped", _flipped),
)
"""What arrives after the periods `Cut.bad`, made from the rows of the next one."""

_SCRATCH = ("trainer.warm_start=null", "data.spans=all")
# Changes of the weather from week to week are no fault of the data: the share of
# flights without a gust of wind rises by up to 0.28.
_WEATHER = ("wind_speed=1", "visib=1")
CUTS = {
    "month": Cut(
        period="month",
        names=[datetime.date(2013, month, 1).strftime("%b") for month in _MONTHS],
        first=2,
        bad=(4, 5, 6, 7, 8),
        settings=(),
        scratch=_SCRATCH,
    ),
    "week": Cut(
        period="week",
        names=[f"week {number + 1}" for number in range(_LAST_WEEK + 1)],
        first=5,
        bad=(16, 20, 24, 28, 32),
        settings=(
            "data.spans=latest 5",
            "gates.missing=0.35",
            "evaluator.bounds.auc={at_least: 0.55, may_drop: 0.04}",  # of 6,000 rows
            *(f"gates.drift.features.{bound}" for bound in _WEATHER),
        ),
        scratch=(*_SCRATCH, "schedule.new_spans=4"),
    ),
}
