"""Measures ticks of `strategos schedule start` that find no new data.

    python benchmarks/ticks.py examples/digits --ticks 1000

Copies the workload, trains it once, and lets the clock tick. Prints the CPU seconds of
a tick and the memory of the clock's process after 10, 100, 1000 … ticks, and in the end
the files that have changed.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import history


def files(folder: Path) -> dict[str, str]:
    """The content of each file of a folder, as a hash."""
    found = (path for path in folder.rglob("*") if path.is_file())
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in found
    }


def cpu_seconds_of_ended_children(pid: int) -> float:
    """User and system seconds of the ended children of a process, and of theirs."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[13]) + int(words[14])) / os.sysconf("SC_CLK_TCK")


def resident_megabytes(pid: int) -> float:
    """The resident memory of a process."""
    (line,) = (
        line
        for line in Path(f"/proc/{pid}/status").read_text().splitlines()
        if line.startswith("VmRSS:")
    )
    return int(line.split()[1]) / 1024


def marks(last: int) -> Iterator[int]:
    """10, 100, 1000 … up to `last`, and `last`."""
    mark = 10
    while mark < last:
        yield mark
        mark *= 10
    yield last


def tick(yaml: Path, log: Path, ticks: int) -> None:
    """Lets a clock check `ticks` times, and prints CPU seconds and memory."""
    strategos = str(Path(sys.executable).with_name("strategos"))
    words = [strategos, "schedule", "start", str(yaml), "--every", "1s"]
    with log.open("w") as file:
        clock = subprocess.Popen(words, stdout=file, stderr=file)
    try:
        for mark in marks(ticks):
            while log.read_text().count("next check at") < mark:
                assert clock.poll() is None, log.read_text()
                time.sleep(0.2)
            done = log.read_text().count("next check at")
            each = cpu_seconds_of_ended_children(clock.pid) / done
            memory = resident_megabytes(clock.pid)
            print(
                f"{done:6,} ticks  {each:.2f} CPU s each  {memory:.1f} MB", flush=True
            )
    finally:
        clock.terminate()
        clock.wait()
    assert log.read_text().count("Not due: ") >= ticks, log.read_text()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("workload", type=Path, help="folder with a pipeline.yaml")
    parser.add_argument("--ticks", type=int, default=1000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_STATE_HOME"] = f"{folder}/state"
        log = Path(folder, "log")
        yaml = history.copy(arguments.workload, Path(folder))
        history.measure(
            [str(Path(sys.executable).with_name("strategos")), "run", str(yaml)]
        )
        before = files(Path(folder))
        tick(yaml, log, arguments.ticks)
        after = files(Path(folder))
        changed = [name for name in after if before.get(name) != after[name]]
        print("changed:", *sorted({*changed, *before.keys() - after} - {log.name}))


if __name__ == "__main__":
    main()
