"""Times the pages of `strategos ui` on a root with thousands of runs.

    python benchmarks/ui.py examples/digits --runs 10000

Makes the root as benchmarks/history.py does. Prints the seconds that reading the whole
history takes, and those of each page, of the quickest and the slowest of five calls.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import history

from strategos.pipeline.history import roots

_CALLS = 5


def pages(run_id: str, runs: int) -> list[str]:
    """The addresses to time.

    Args:
      run_id: The id of the newest run.
      runs: Number of runs.
    """
    last = -(-runs // 25)
    return [
        *("/runs", f"/runs?page={last // 2}", f"/runs?page={last}"),
        *("/runs?outcome=blessed", f"/runs/{run_id}", f"/runs/{run_id}/now"),
        *(f"/runs/{run_id}/report.html", f"/lineage?model={run_id}", "/models"),
        *("/leaderboard", f"/leaderboard?page={last}", "/schedule", "/spans"),
        "/runs/none",
    ]


def time_pages(yaml: Path, runs: int) -> None:
    """Prints the times of the pages of a root.

    Args:
      yaml: The pipeline.
      runs: Number of its runs.
    """
    from werkzeug.test import Client

    from strategos.pipeline.ui.app import App
    from strategos.pipeline.ui.guard import Guard
    from strategos.pipeline.ui.source import Source

    source = Source(roots.place(str(yaml), None))
    began = time.monotonic()
    with source.reading():
        newest = source.index.runs()[0].run_id
    print(f"{'the whole history':44} {time.monotonic() - began:6.2f} s", flush=True)
    client = Client(App(source, Guard("127.0.0.1", 8420, None)))
    for path in pages(newest, runs):
        taken = []
        for _ in range(_CALLS):
            began = time.monotonic()
            client.get(path, base_url="http://localhost:8420")
            taken.append(time.monotonic() - began)
        print(f"{path:44} {min(taken):6.3f} s to {max(taken):6.3f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("workload", help="folder with a pipeline.yaml")
    parser.add_argument("--runs", type=int, default=10_000)
    arguments = parser.parse_args()
    strategos = str(Path(sys.executable).with_name("strategos"))
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_STATE_HOME"] = f"{folder}/state"
        yaml = history.copy(Path(arguments.workload), Path(folder))
        subprocess.run([strategos, "run", yaml], check=True, stdout=subprocess.DEVNULL)
        history.repeat(yaml.parent / "runs" / "metadata.sqlite", arguments.runs)
        time_pages(yaml, arguments.runs)


if __name__ == "__main__":
    main()
