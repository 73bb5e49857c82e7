"""Replays the flights of 2013 month by month: `strategos retrain` keeps a model fresh.

    python benchmarks/year_of_flights --folder DIR
    python benchmarks/year_of_flights --page

Each month arrives as a span, and `strategos retrain --if-due` decides. Bad spans arrive
in between. In the end, the model that was live after each month is scored on the next
one, which it has not seen; beside it the first model, and one that a second pipeline
trains from scratch on all months so far. Results are lines of JSON in `--results`;
`--page` writes docs/year_of_flights.md and its plot from them.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import arrivals
import page
import pyarrow as pa

HERE = Path(__file__).parent
REPOSITORY = HERE.parents[1]
RESULTS = REPOSITORY / ".cache" / "year_of_flights.jsonl"
SCRATCH = ("--set", "trainer.warm_start=null", "--set", "data.spans=all")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--folder", type=Path, help="new folder; temporary by default")
    parser.add_argument("--every", type=int, default=1, help="use every n-th flight")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--page", action="store_true", help="write the page, no runs")
    arguments = parser.parse_args()
    if not arguments.page:
        with tempfile.TemporaryDirectory() as folder:
            found = replay(arguments.folder or Path(folder), arguments.every)
        arguments.results.parent.mkdir(parents=True, exist_ok=True)
        arguments.results.write_text("".join(json.dumps(x) + "\n" for x in found))
    found = list(map(json.loads, arguments.results.read_text().splitlines()))
    if arguments.page:
        page.write(found, REPOSITORY / "docs")
    else:
        print(page.table(found))
    return 0


def replay(folder: Path, every: int) -> list[dict[str, Any]]:
    """Replays the year in `folder` with two pipelines; returns a line per arrival."""
    folder.mkdir(parents=True, exist_ok=True)
    months = arrivals.months(REPOSITORY / "examples" / "flights", folder)
    some = {
        month: table.take(pa.array(range(0, table.num_rows, every)))
        for month, table in months.items()
    }
    with concurrent.futures.ThreadPoolExecutor() as threads:
        warm = threads.submit(_year, folder / "warm", some, arrivals.BAD)
        scratch = threads.submit(_year, folder / "scratch", some, {}, *SCRATCH)
        lines, others = warm.result(), scratch.result()
    _score(folder, lines, others)
    return [{**line, "every": every} for line in lines]


def _year(
    folder: Path, months: dict[int, pa.Table], bad: dict[int, Any], *settings: str
) -> list[dict[str, Any]]:
    """The arrivals of one pipeline and what came of each."""
    workload, found = _workload(folder), []
    for month, table in months.items():
        arrivals.arrive(table, workload, 10 * month)
        if month == 1:
            continue  # a second month is needed, to be held out
        found.append({"month": month, **_retrain(workload, *settings)})
        if month in bad:
            name, make = bad[month]
            arrivals.arrive(make(months[month + 1]), workload, 10 * month + 5)
            done = _retrain(workload, *settings)
            found.append({"month": month, "bad": name, **done})
            found[-1]["live_stays"] = done["model"] == found[-2]["model"]
        print(json.dumps(found[-1]), flush=True)
    return found


def _score(
    folder: Path, lines: list[dict[str, Any]], others: list[dict[str, Any]]
) -> None:
    """Adds the AUC on the next month to the lines of the months."""
    import scoring

    schema = REPOSITORY / "schemas" / "flights.pbtxt"
    scratch = {line["month"]: line["model"] for line in others}
    for line in lines:
        unseen = folder / f"data/span-{line['month'] + 1:02d}/flights.csv"
        if "bad" not in line and unseen.exists():
            models = (line["model"], lines[0]["model"], scratch[line["month"]])
            names = ("live", "first", "scratch")
            for name, model in zip(names, models, strict=True):
                line[name] = scoring.auc(Path(model), unseen, schema)


def _workload(folder: Path) -> Path:
    shutil.copytree(HERE / "workload", folder / "flights")
    shutil.copy(REPOSITORY / "schemas" / "flights.pbtxt", folder)
    return folder / "flights"


def _retrain(workload: Path, *settings: str) -> dict[str, Any]:
    """Calls `strategos retrain --if-due`; how it ended."""
    command = [sys.executable, "-m", "strategos.pipeline.cli", "retrain"]
    begun = time.monotonic()
    done = subprocess.run(
        [*command, "pipeline.yaml", "--if-due", *settings],
        cwd=workload,
        capture_output=True,
        text=True,
    )
    show = [*command[:-1], "runs", "show", "pipeline.yaml", "--json"]
    shown = subprocess.run(show, cwd=workload, capture_output=True, text=True)
    run = json.loads(shown.stdout)
    return {
        "exit": done.returncode,
        "seconds": round(time.monotonic() - begun, 1),
        "decision": done.stdout.partition("\n")[0],
        "model": _live(workload),
        "outcome": run["outcome"],
        "node": run["failed_node"],
        "cause": (run["cause"] or "").splitlines()[:4],
        "held_out": run["metrics"].get("auc"),
    }


def _live(workload: Path) -> str:
    """The newest pushed version."""
    versions = (workload / "serving" / "flights").iterdir()
    return str(max(versions, key=lambda path: int(path.name)))


if __name__ == "__main__":
    sys.exit(main())
