"""Compares whole runs: Strategos, TFX's own components, a plain script, the floor.

    python benchmarks/whole_run --rows 30000 300000 --times 3
    python benchmarks/whole_run --rows 10000000 --sides strategos-1 flink --times 1
    python benchmarks/whole_run --page

Each side reads the same CSV files (rows of examples/flights, drawn with replacement)
and ends with a model, its metrics by slice, and a SavedModel; the floor only reads and
takes the steps; `flink` starts a cluster on this machine, with two slots, for large
numbers of rows. All sides run in turn, in processes of their own, `--times` times.
Each run adds a line of JSON to `--results`, so that parts measured apart add up;
remove the file to begin anew. `--page` writes docs/benchmarks.md and its plot from it.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import measure
import numpy as np
import page
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from strategos.components import processes

HERE = Path(__file__).parent
REPOSITORY = HERE.parents[1]
FLIGHTS = REPOSITORY / "examples" / "flights"
RESULTS = REPOSITORY / ".cache" / "whole_run.jsonl"
FILES = 12


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[30_000, 300_000])
    parser.add_argument("--times", type=int, default=3)
    usual = [side for side in SIDES if side != "flink"]
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=usual)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--page", action="store_true", help="write the page, no runs")
    arguments = parser.parse_args()
    if not arguments.page:
        for rows in arguments.rows:
            compare(rows, arguments.times, arguments.sides, arguments.results)
    found = page.read(arguments.results)
    if arguments.page:
        page.write(found, REPOSITORY / "docs")
    else:
        print(page.tables(found))
    return 0


def compare(rows: int, times: int, sides: list[str], results: Path) -> None:
    """Runs the sides in turn and adds their costs to `results`."""
    processes.adopt_orphans()  # so that the seconds of all processes count
    results.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        data = write_rows(Path(folder, "data"), rows)
        for _ in range(times):
            for side in sides:  # in turn: the machine's load may change
                found = run(side, data, Path(folder, side))
                with results.open("a") as file:
                    file.write(json.dumps({"rows": rows, "side": side, **found}) + "\n")


def write_rows(folder: Path, rows: int) -> Path:
    """Writes that many rows of the example in twelve CSV files of equal size."""
    sys.path.insert(0, str(FLIGHTS))
    from data import join_weather, label, read_flights, read_weather

    table = join_weather(label(read_flights()), read_weather())
    # TFX infers FLOAT, which the schema demands, only from a fraction.
    fractions = pc.multiply(pc.cast(table["wind_dir"], pa.float64()), 0.99)
    at = table.column_names.index("wind_dir")
    table = table.set_column(at, "wind_dir", fractions)
    drawn = np.random.default_rng(1).integers(0, table.num_rows, rows)
    for number, part in enumerate(np.array_split(np.sort(drawn), FILES), 1):
        span = folder / f"span-{number:02}"
        span.mkdir(parents=True)
        with (span / "flights.csv").open("wb") as file:
            # TFX does not take the quotes from the names that Arrow would write.
            file.write(",".join(table.column_names).encode() + b"\n")
            options = csv.WriteOptions(include_header=False)
            csv.write_csv(table.take(pa.array(part)), file, options)
    return folder


def of_strategos(
    data: Path,
    folder: Path,
    workers: int,
    runner: str = "direct",
    one_core: bool = False,
) -> list[str]:
    example = folder / "examples" / "flights"
    ignored = shutil.ignore_patterns("data", "runs", "serving", "__pycache__")
    shutil.copytree(FLIGHTS, example, ignore=ignored)
    shutil.copytree(REPOSITORY / "schemas", folder / "schemas")
    (example / "data").symlink_to(data)
    os.environ["XDG_STATE_HOME"] = str(folder / "state")
    return [
        *(("taskset", "--cpu-list", "0") if one_core else ()),
        *(sys.executable, "-m", "strategos.pipeline.cli", "run"),
        *(str(example / "pipeline.yaml"), "--set", f"run.root={folder / 'root'}"),
        *("--set", f"run.engine.workers={workers}"),
        *("--set", f"run.engine.runner={runner}"),
    ]


def of_stock(data: Path, folder: Path) -> list[str]:
    # CsvExampleGen reads one folder of files with the same header.
    flat = folder / "data"
    flat.mkdir()
    for number, path in enumerate(sorted(data.glob("*/*.csv"))):
        (flat / f"flights-{number:02}.csv").symlink_to(path)
    script = str(HERE / "stock_tfx.py")
    return [sys.executable, "-W", "ignore", script, str(flat), str(folder / "root")]


def of_script(data: Path, folder: Path) -> list[str]:
    script = HERE / "plain_script.py"
    return [sys.executable, str(script), f"{data}/*/*.csv", str(folder / "out")]


def of_floor(data: Path, folder: Path) -> list[str]:
    return [sys.executable, str(HERE / "floor.py"), f"{data}/*/*.csv"]


SIDES: dict[str, Callable[[Path, Path], list[str]]] = {
    "strategos": functools.partial(of_strategos, workers=2),
    "strategos-1": functools.partial(of_strategos, workers=1),
    "strategos-core": functools.partial(of_strategos, workers=1, one_core=True),
    "flink": functools.partial(of_strategos, workers=2, runner="flink"),
    "stock": of_stock,
    "script": of_script,
    "floor": of_floor,
}


def run(side: str, data: Path, folder: Path) -> dict[str, Any]:
    """Runs a side in an empty folder, which is removed.

    Returns:
      Cost of the side, and of each node, as JSON-able values.

    Raises:
      SystemExit: The side failed.
    """
    folder.mkdir()
    try:
        cost, samples = measure.run(SIDES[side](data, folder), folder / "log")
    except measure.Failed as failed:
        raise SystemExit(f"{side} failed:\n{failed}") from None
    nodes = measure.by_node(folder / "root", samples)
    shutil.rmtree(folder)
    named = {name: dataclasses.asdict(each) for name, each in nodes.items()}
    return {**dataclasses.asdict(cost), "nodes": named}


if __name__ == "__main__":
    raise SystemExit(main())
