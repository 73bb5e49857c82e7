"""The spans of the year, and the bad ones among them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

MONTHS = range(1, 13)


def months(flights: Path, folder: Path) -> dict[int, pa.Table]:
    """Makes the data of examples/flights in `folder`; returns them by month.

    Args:
      flights: The folder `examples/flights`.
      folder: An existing folder.
    """
    sys.path.insert(0, str(flights))
    import data

    if not (folder / "data").exists():
        data.prepare(str(folder))
    return {
        month: csv.read_csv(folder / f"data/span-{month:02d}/flights.csv")
        for month in MONTHS
    }


def arrive(table: pa.Table, workload: Path, span: int) -> None:
    """Writes a span into the data of a workload, as a whole."""
    target = workload / "data" / f"span-{span:03d}"
    partial = target.with_name(f".{target.name}")
    partial.mkdir(parents=True)
    csv.write_csv(table, partial / "flights.csv")
    partial.rename(target)


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


BAD: dict[int, tuple[str, Callable[[pa.Table], pa.Table]]] = {
    4: ("column renamed", _renamed),
    5: ("miles to kilometres", _kilometres),
    6: ("half of the rows", _half),
    7: ("column without values", _silent),
    8: ("labels flipped", _flipped),
}
"""By month: what arrives after it, made from the rows of the next month."""
