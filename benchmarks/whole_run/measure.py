"""Measures a process and all below it: CPU, wall time, memory, also by node."""

from __future__ import annotations

import contextlib
import dataclasses
import glob
import json
import os
import sqlite3
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

_TICK = os.sysconf("SC_CLK_TCK")
_LOOK_SECONDS = 0.1
# Of the time: to read the memory of a gigabyte takes a core 30 ms, and stops its page
# faults.
_MEMORY_SHARE = 0.03

OUTPUT = "Transform's output"
"""Name of the part of Transform that follows its analysis."""


@dataclasses.dataclass(frozen=True)
class Sample:
    """A moment: seconds since the epoch, CPU seconds so far, bytes in use."""

    time: float
    cpu: float
    memory: int


@dataclasses.dataclass(frozen=True)
class Cost:
    """Cost of a run or a node.

    Attributes:
      cpu: User and system seconds of all processes.
      wall: Seconds.
      memory: Bytes of all processes together at the peak (proportional set size).
    """

    cpu: float
    wall: float
    memory: int


class Failed(Exception):
    """The command ended with an error."""


def run(command: Sequence[str], log: Path) -> tuple[Cost, list[Sample]]:
    """Runs a command to its end, and to the end of its orphaned processes.

    Args:
      command: The command. This process must adopt orphans.
      log: File that gets the command's output.

    Raises:
      Failed: The command did not exit with 0.
    """
    before, started = _ended_cpu(), time.time()
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        with _watched(process.pid, before) as samples:
            code = process.wait()
            with contextlib.suppress(ChildProcessError):
                while True:
                    os.wait()
    if code:
        raise Failed(log.read_text()[-3000:])
    ended = Sample(time.time(), _ended_cpu() - before, 0)
    peak = max((each.memory for each in samples), default=0)
    return Cost(ended.cpu, ended.time - started, peak), [*samples, ended]


def by_node(root: Path, samples: Sequence[Sample]) -> dict[str, Cost]:
    """The cost of each node that ML Metadata under `root` knows; {} without one.

    `OUTPUT` is a part of Transform, if the events of the run name its beginning.
    """
    database = next(root.glob("**/metadata.sqlite"), None)
    if database is None:
        return {}
    with contextlib.closing(sqlite3.connect(database)) as connection:
        rows = connection.execute(
            "SELECT Type.name, create_time_since_epoch, last_update_time_since_epoch "
            "FROM Execution JOIN Type ON Execution.type_id = Type.id"
        ).fetchall()
    spans = {
        name.rpartition(".")[2]: (begun / 1e3, done / 1e3) for name, begun, done in rows
    }
    for begun in _output_begun(root):
        spans[OUTPUT] = begun, spans["Transform"][1]
    return {name: _between(samples, *span) for name, span in spans.items()}


def _output_begun(root: Path) -> Iterator[float]:
    """When the analysis of Transform was over, in seconds since the epoch."""
    for file in root.glob("**/events.jsonl"):
        for event in map(json.loads, file.read_text().splitlines()):
            if event.get("message") == "transforming":
                yield event["time"]


def _between(samples: Sequence[Sample], begun: float, done: float) -> Cost:
    later = [each for each in samples if each.time >= begun]
    within = [each for each in later if each.time <= done] or later[:1]
    memory = max((each.memory for each in within), default=0)
    return Cost(_cpu_at(samples, done) - _cpu_at(samples, begun), done - begun, memory)


def _cpu_at(samples: Sequence[Sample], moment: float) -> float:
    """CPU seconds until a moment, between samples in proportion."""
    earlier = Sample(samples[0].time - _LOOK_SECONDS, 0.0, 0)
    for later in samples:
        if later.time >= moment:
            share = (moment - earlier.time) / (later.time - earlier.time)
            return earlier.cpu + max(0.0, share) * (later.cpu - earlier.cpu)
        earlier = later
    return earlier.cpu


@contextlib.contextmanager
def _watched(pid: int, before: float) -> Iterator[list[Sample]]:
    """Samples a process and all below it.

    Args:
      pid: The process.
      before: CPU seconds of processes that had ended before it began.
    """
    samples: list[Sample] = []
    over = threading.Event()

    def watch() -> None:
        memory, due = 0, 0.0
        while not over.wait(_LOOK_SECONDS):
            family = list(_family(pid))
            # A process that ends meanwhile counts twice, or not at all.
            cpu = sum(map(_cpu, family)) + _ended_cpu() - before
            last = samples[-1].cpu if samples else 0.0
            now = time.perf_counter()
            if now >= due:
                memory = sum(map(_memory, family))
                took = time.perf_counter() - now
                due = now + took / _MEMORY_SHARE
            samples.append(Sample(time.time(), max(cpu, last), memory))

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield samples
    finally:
        over.set()
        thread.join()


def _family(pid: int) -> Iterator[int]:
    yield pid
    for path in glob.glob(f"/proc/{pid}/task/*/children"):
        with contextlib.suppress(OSError):
            for child in Path(path).read_text().split():
                yield from _family(int(child))


def _ended_cpu() -> float:
    """CPU seconds of all processes that have ended below this one."""
    usage = os.times()
    return usage.children_user + usage.children_system


def _cpu(pid: int) -> float:
    """CPU seconds of a process and of those below it that have ended."""
    with contextlib.suppress(OSError):
        stat = Path(f"/proc/{pid}/stat").read_bytes()
        return sum(map(int, stat.rpartition(b")")[2].split()[11:15])) / _TICK
    return 0.0


def _memory(pid: int) -> int:
    """Proportional set size: shared pages count once over all processes."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return 0
