"""Replays the flights of 2013 span by span: `strategos retrain` keeps a model fresh.

    python benchmarks/year_of_flights [--by week] --folder DIR
    python benchmarks/year_of_flights [--by week] --page

Each month arrives as a span, and `strategos retrain --if-due` decides. Bad spans arrive
in between. In the end, the model that was live after each month is scored on the next
one, which it has not seen; beside it the first model, and one that a second pipeline
trains from scratch on all months so far. Results are lines of JSON in `--results`;
`--page` writes a page of docs and its plot from them. Weeks take an hour.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import dataclasses
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import arrivals
import page
import pyarrow as pa

HERE = Path(__file__).parent
REPOSITORY = HERE.parents[1]
FLIGHTS = REPOSITORY / "examples" / "flights"
RESULTS = REPOSITORY / ".cache"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--by", choices=arrivals.CUTS, default="month")
    parser.add_argument("--folder", type=Path, help="new folder; temporary by default")
    parser.add_argument("--every", type=int, default=1, help="use every n-th flight")
    parser.add_argument("--results", type=Path, help="a file; in .cache by default")
    parser.add_argument("--page", action="store_true", help="write the page, no runs")
    arguments = parser.parse_args()
    cut = arrivals.CUTS[arguments.by]
    results = arguments.results or RESULTS / f"year_of_flights_by_{cut.period}.jsonl"
    if not arguments.page:
        with tempfile.TemporaryDirectory() as folder:
            found = replay(cut, arguments.folder or Path(folder), arguments.every)
        results.parent.mkdir(parents=True, exist_ok=True)
        results.write_text("".join(json.dumps(x) + "\n" for x in found))
    found = list(map(json.loads, results.read_text().splitlines()))
    if arguments.page:
        page.write(cut, found, REPOSITORY / "docs")
    else:
        print(page.table(cut, found))
    return 0


def replay(cut: arrivals.Cut, folder: Path, every: int) -> list[dict[str, Any]]:
    """Replays the year in `folder` with two pipelines; returns a line per arrival."""
    folder.mkdir(parents=True, exist_ok=True)
    spans = {
        period: table.take(pa.array(range(0, table.num_rows, every)))
        for period, table in cut.spans(FLIGHTS, folder).items()
    }
    bad = dict(zip(cut.bad, arrivals.BAD, strict=True))
    with concurrent.futures.ThreadPoolExecutor() as threads:
        scratch = dataclasses.replace(cut, settings=(*cut.settings, *cut.scratch))
        warm = threads.submit(_year, folder / "warm", cut, spans, bad)
        others = threads.submit(_year, folder / "scratch", scratch, spans, {})
        lines = warm.result()
        _score(folder, lines, others.result())
    return [{**line, "every": every} for line in lines]


def _year(
    folder: Path, cut: arrivals.Cut, spans: dict[int, pa.Table], bad: dict[int, Any]
) -> list[dict[str, Any]]:
    """The arrivals of one pipeline, and the outcome of each."""
    workload, found = _workload(folder), []
    for period, table in spans.items():
        arrivals.arrive(table, workload, 10 * period)
        if period < cut.first:
            continue
        found.append({"period": period, **_retrain(workload, cut.settings)})
        if period in bad:
            name, make = bad[period]
            arrivals.arrive(make(spans[period + 1]), workload, 10 * period + 5)
            done = _retrain(workload, cut.settings)
            found.append({"period": period, "bad": name, **done})
            found[-1]["live_stays"] = done["model"] == found[-2]["model"]
        print(json.dumps(found[-1]), flush=True)
    return found


def _score(
    folder: Path, lines: list[dict[str, Any]], others: list[dict[str, Any]]
) -> None:
    """Adds the AUC on the next period to the lines of the periods."""
    import scoring

    schema = REPOSITORY / "schemas" / "flights.pbtxt"
    scratch = {line["period"]: line["model"] for line in others}
    for line in lines:
        span = f"span-{10 * (line['period'] + 1):03d}"
        unseen = folder / "warm" / "flights" / "data" / span / "flights.csv"
        if "bad" not in line and unseen.exists():
            models = (line["model"], lines[0]["model"], scratch[line["period"]])
            scores = scoring.auc(models, unseen, schema)
            line |= dict(zip(page.MODELS, scores, strict=True))


def _workload(folder: Path) -> Path:
    shutil.copytree(HERE / "workload", folder / "flights")
    shutil.copy(REPOSITORY / "schemas" / "flights.pbtxt", folder)
    return folder / "flights"


def _retrain(workload: Path, settings: Sequence[str]) -> dict[str, Any]:
    """Calls `strategos retrain --if-due`; how it ended."""
    command = [sys.executable, "-m", "strategos.pipeline.cli", "retrain"]
    sets = [word for setting in settings for word in ("--set", setting)]
    begun = time.monotonic()
    done = subprocess.run(
        [*command, "pipeline.yaml", "--if-due", *sets],
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
    versions = (workload / "serving" / "flights").glob("[0-9]*")
    return str(max(versions, key=lambda path: int(path.name)))


if __name__ == "__main__":
    sys.exit(main())
