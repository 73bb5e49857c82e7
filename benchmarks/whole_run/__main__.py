"""Compares whole runs: Strategos, TFX's own components, and a plain script.

    python benchmarks/whole_run --rows 30000 300000 --times 3

Each side reads the same CSV files (rows of examples/flights, drawn with replacement)
and ends with a model, its metrics by slice, and a SavedModel. All sides run in turn, in
processes of their own, `--times` times. Prints medians: CPU seconds (user and system,
all processes of the side), wall seconds, and the peak of the memory of all its
processes together (proportional set size); then the wall seconds of each node.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import resource
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from strategos.components import processes

HERE = Path(__file__).parent
REPOSITORY = HERE.parents[1]
FLIGHTS = REPOSITORY / "examples" / "flights"
FILES = 12


@dataclass
class Cost:
    """What one run took: seconds, and bytes at the peak."""

    cpu: float
    wall: float
    memory: int
    nodes: dict[str, float] = field(default_factory=dict)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[30_000, 300_000])
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=list(SIDES))
    arguments = parser.parse_args()
    processes.adopt_orphans()  # so that the seconds of all processes count
    for rows in arguments.rows:
        with tempfile.TemporaryDirectory() as folder:
            data = write_rows(Path(folder, "data"), rows)
            costs: dict[str, list[Cost]] = {side: [] for side in arguments.sides}
            for _ in range(arguments.times):
                for side in arguments.sides:  # in turn: the machine's load may change
                    costs[side].append(run(side, data, Path(folder, side)))
        report(rows, costs)
    return 0


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


def of_strategos(data: Path, folder: Path) -> list[str]:
    example = folder / "examples" / "flights"
    ignored = shutil.ignore_patterns("data", "runs", "serving", "__pycache__")
    shutil.copytree(FLIGHTS, example, ignore=ignored)
    shutil.copytree(REPOSITORY / "schemas", folder / "schemas")
    (example / "data").symlink_to(data)
    os.environ["XDG_STATE_HOME"] = str(folder / "state")
    return [
        *(sys.executable, "-m", "strategos.pipeline.cli", "run"),
        *(str(example / "pipeline.yaml"), "--set", f"run.root={folder / 'root'}"),
    ]


def of_stock(data: Path, folder: Path) -> list[str]:
    # CsvExampleGen reads one folder, whose files have the same header.
    flat = folder / "data"
    flat.mkdir()
    for number, path in enumerate(sorted(data.glob("*/*.csv"))):
        (flat / f"flights-{number:02}.csv").symlink_to(path)
    script = HERE / "stock_tfx.py"
    return [
        sys.executable,
        "-W",
        "ignore",
        str(script),
        str(flat),
        str(folder / "root"),
    ]


def of_script(data: Path, folder: Path) -> list[str]:
    script = HERE / "plain_script.py"
    return [sys.executable, str(script), f"{data}/*/*.csv", str(folder / "out")]


SIDES: dict[str, Callable[[Path, Path], list[str]]] = {
    "strategos": of_strategos,
    "stock": of_stock,
    "script": of_script,
}


def run(side: str, data: Path, folder: Path) -> Cost:
    """Runs a side in an empty folder, which is removed.

    Raises:
      SystemExit: It failed.
    """
    folder.mkdir()
    command = SIDES[side](data, folder)
    log = folder / "log"
    before, started = _cpu(), time.monotonic()
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        with _watched(process.pid) as peak:
            code = process.wait()
            with contextlib.suppress(ChildProcessError):
                while True:  # what it has left behind
                    os.wait()
    wall = time.monotonic() - started
    if code:
        raise SystemExit(f"{side} failed:\n{log.read_text()[-3000:]}")
    cost = Cost(_cpu() - before, wall, peak[0], node_seconds(folder / "root"))
    shutil.rmtree(folder)
    return cost


def _cpu() -> float:
    """CPU seconds of all processes that have ended below this one."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


@contextlib.contextmanager
def _watched(pid: int) -> Iterator[list[int]]:
    """Samples the memory of a process and of all below it; the peak in bytes."""
    peak, over = [0], threading.Event()

    def watch() -> None:
        while not over.wait(0.2):
            peak[0] = max(peak[0], sum(map(_memory, _family(pid))))

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield peak
    finally:
        over.set()
        thread.join()


def _family(pid: int) -> Iterator[int]:
    yield pid
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in path.read_text().split():
                yield from _family(int(child))


def _memory(pid: int) -> int:
    """Proportional set size: shared pages count once over all processes."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return 0


def node_seconds(root: Path) -> dict[str, float]:
    """Wall seconds of each node, from ML Metadata; {} without one."""
    database = next(root.glob("**/metadata.sqlite"), None)
    if database is None:
        return {}
    with contextlib.closing(sqlite3.connect(database)) as connection:
        rows = connection.execute(
            "SELECT Type.name, last_update_time_since_epoch - create_time_since_epoch "
            "FROM Execution JOIN Type ON Execution.type_id = Type.id"
        )
        return {name.rpartition(".")[2]: took / 1e3 for name, took in rows}


def report(rows: int, costs: dict[str, list[Cost]]) -> None:
    print(f"\n{rows:,} rows, medians of {len(next(iter(costs.values())))}")
    print(f"{'':12}{'CPU s':>9}{'wall s':>9}{'peak MB':>9}")
    middle = statistics.median
    for side, found in costs.items():
        cpu, wall = (middle(getattr(c, n) for c in found) for n in ("cpu", "wall"))
        memory = middle(each.memory for each in found) / 1e6
        print(f"{side:12}{cpu:9.1f}{wall:9.1f}{memory:9.0f}")
    for side, found in costs.items():
        nodes = ", ".join(
            f"{name} {middle(each.nodes[name] for each in found):.1f}"
            for name in found[0].nodes
        )
        if nodes:
            print(f"{side}, wall seconds by node: {nodes}")


if __name__ == "__main__":
    raise SystemExit(main())
