"""Prints where the seconds of a whole run go, by node and by process.

    python benchmarks/timeline.py examples/flights --runs 3 [--change model.py]

Runs the pipeline of a folder in a copy, each time with a fresh root, or with `--change`
once more after a change of a module, and prints the fastest run: seconds to the first
node and of each node, then each process with its start, end, CPU seconds (user and
system) and peak memory. Processes are read from /proc 20 times a second, so that
shorter ones may be missing.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

_TICK = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_LOOK_SECONDS = 0.05


@dataclasses.dataclass
class Process:
    """A process of the run; times in seconds since the command started."""

    parent: int
    start: float
    end: float = 0.0
    cpu: float = 0.0
    peak: int = 0
    command: str = ""


@dataclasses.dataclass
class Run:
    """A measured run: its wall seconds, its processes by id and its events."""

    seconds: float
    processes: dict[int, Process]
    events: list[dict]
    started: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--change", help="name of the module to change")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(__file__).parents[1]
        shutil.copytree(root / "schemas", f"{scratch}/schemas")
        copy = Path(scratch, "examples", arguments.folder.name)
        shutil.copytree(
            arguments.folder, copy, ignore=shutil.ignore_patterns("runs", "serving")
        )
        if arguments.change:
            measure(copy, Path(scratch))
        runs = [
            measure(copy, Path(scratch), arguments.change)
            for _ in range(arguments.runs)
        ]
    best = min(runs, key=lambda run: run.seconds)
    print("wall seconds of all runs:", *(f"{run.seconds:.1f}" for run in runs))
    report(best)


def measure(folder: Path, scratch: Path, change: str | None = None) -> Run:
    """Runs the pipeline in `folder`, and watches its processes.

    With a fresh root; or with the last one, after a change of the file `change`.
    """
    if change:
        with (folder / change).open("a") as file:
            file.write(f"\n_CHANGED = {time.time()}\n")
    else:
        for name in ("runs", "serving"):
            shutil.rmtree(folder / name, ignore_errors=True)
    command = [Path(sys.executable).with_name("strategos"), "run"]
    started, booted = time.time(), time.clock_gettime(time.CLOCK_BOOTTIME)
    process = subprocess.Popen(
        [*command, folder / "pipeline.yaml"],
        env={**os.environ, "XDG_STATE_HOME": str(scratch / "state")},
        stdout=subprocess.DEVNULL,
    )
    found: dict[int, Process] = {}
    while process.poll() is None:
        look(process.pid, found, booted)
        time.sleep(_LOOK_SECONDS)
    seconds = time.time() - started
    if process.returncode:
        sys.exit(process.returncode)
    written = (folder / "runs").rglob("events.jsonl")
    events = max(written, key=lambda path: path.stat().st_mtime)
    lines = events.read_text().splitlines()
    return Run(seconds, found, list(map(json.loads, lines)), started)


def look(root: int, found: dict[int, Process], booted: float) -> None:
    """Adds times and memory of `root` and its descendants in /proc to `found`."""
    now = time.clock_gettime(time.CLOCK_BOOTTIME) - booted
    for path in sorted(Path("/proc").glob("[0-9]*"), key=lambda each: int(each.name)):
        with contextlib.suppress(OSError):  # the process ended
            fields = (path / "stat").read_bytes().rpartition(b")")[2].split()
            pid, parent = int(path.name), int(fields[1])
            if fields[0] == b"Z" or not (pid == root or parent in found):
                continue
            start = int(fields[19]) / _TICK - booted
            each = found.setdefault(pid, Process(parent, start))
            each.end, each.cpu = now, (int(fields[11]) + int(fields[12])) / _TICK
            each.peak = max(each.peak, int(fields[21]) * _PAGE)
            words = (path / "cmdline").read_text().split("\0")
            each.command = " ".join(Path(word).name for word in words)[-60:]


def report(run: Run) -> None:
    """Prints a run's nodes and processes."""
    nodes = [each for each in run.events if each["event"] == "node_finished"]
    first = next(each for each in run.events if each["event"] == "node_started")
    print(f"{first['time'] - run.started:7.1f} s  until the first node")
    for node in nodes:
        print(f"{node['seconds']:7.1f} s  {node['node']}")
    print(f"{run.seconds:7.1f} s  from command to prompt")
    print("\n  start     end   CPU s  peak MB  process")
    for pid, each in sorted(run.processes.items(), key=lambda item: item[1].start):
        times = f"{each.start:7.1f} {each.end:7.1f} {each.cpu:7.2f}"
        print(f"{times} {each.peak / 1e6:8.0f}  {pid} of {each.parent}: {each.command}")
    total = sum(each.cpu for each in run.processes.values())
    print(f"{total:23.2f}  CPU s of all processes")


if __name__ == "__main__":
    main()
