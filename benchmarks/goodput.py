"""Measures goodput: the share of the time that goes into steps that count.

    .venv/bin/python benchmarks/goodput.py [--workers 2 3] [--minutes 10] [--period 60]

Trains the network of `benchmarks/trainings.py` in gangs of local workers. Every 60 s
a task chosen at random, the chief among them, is killed with -9; the gang starts again
from the last checkpoint. Goodput is the time of the same steps undisturbed and without
checkpoints, divided by their time here: restarts, steps that are trained twice and
checkpoints lower it. Times are from the first step to the last; those of an undisturbed
step are measured on a third of the epochs. `checkpoint.every: auto` is compared with
`30 seconds`.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from trainings import Bench, noted

from strategos.components.trainer.operation import Operation

NEVER = "24h"
RESTARTS = 100  # in a row without progress, where kills come faster than checkpoints
INTERVALS = {"auto": "auto", "30 seconds": "30s"}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--workers", type=int, nargs="+", default=[2, 3])
    parser.add_argument("--minutes", type=float, default=10, help="of a training")
    parser.add_argument("--period", type=float, default=60, help="seconds to a kill")
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1, help="of the choice of tasks")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="goodput-") as folder:
        bench = Bench(Path(folder), arguments.rows, epochs=2)
        print("workers  checkpoint.every  kills  restarts  seconds  goodput")
        for workers in arguments.workers:
            probe = train(bench, workers, NEVER, epochs=2)
            epochs = max(2, round(arguments.minutes * 60 / probe.seconds * 2))
            third = max(1, epochs // 3)
            undisturbed = train(bench, workers, NEVER, third).seconds * epochs / third
            for name, every in INTERVALS.items():
                with killer(arguments.period, random.Random(arguments.seed)) as kills:
                    run = train(bench, workers, every, epochs, kills)
                goodput = undisturbed / run.seconds
                print(
                    f"{workers:7}  {name:16}  {kills.number:5}  {run.restarts:8}  "
                    f"{run.seconds:7.0f}  {goodput:7.3f}"
                )
    return 0


@dataclasses.dataclass(frozen=True)
class Run:
    """A training: its restarts, and the seconds from first to last step."""

    restarts: int
    seconds: float


class Kills:
    """Kills a random task of a training, whose tasks note their ids in a file.

    Attributes:
      notes: The file; None between two trainings.
      number: Tasks that were killed.
    """

    def __init__(self, choice: random.Random):
        self._choice = choice
        self.notes: Path | None = None
        self.number = 0

    def kill(self) -> None:
        """Kills one of the tasks that train now."""
        tasks = [
            pid for pid in noted(self.notes, "task") if os.path.exists(f"/proc/{pid}")
        ]
        if tasks and not noted(self.notes, "end"):
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(self._choice.choice(tasks)), signal.SIGKILL)
                self.number += 1


@contextlib.contextmanager
def killer(period: float, choice: random.Random) -> Iterator[Kills]:
    """Kills a task every `period` seconds inside of the `with` block."""
    kills, ended = Kills(choice), threading.Event()

    def run() -> None:
        while not ended.wait(period):
            kills.kill()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield kills
    finally:
        ended.set()
        thread.join()


def train(
    bench: Bench, workers: int, every: str, epochs: int, kills: Kills | None = None
) -> Run:
    """Trains a gang once.

    Args:
      bench: The data.
      workers: Local workers.
      every: `checkpoint.every`.
      epochs: Passes over the rows.
      kills: Told which tasks there are.
    """
    with tempfile.TemporaryDirectory() as folder:
        notes = Path(folder, "notes")
        if kills:
            kills.notes = notes
        run = bench.train(
            Operation(checkpoint_every=every, max_restarts=RESTARTS),
            notes=notes,
            distribution={"strategy": "multi_worker_mirrored", "workers": workers},
            epochs=epochs,
        )
        steps, (*_, end) = noted(notes, "step"), noted(notes, "end")
        return Run(run.facts["restarts"], end - steps[0])


if __name__ == "__main__":
    started = time.time()
    code = main()
    print(f"whole benchmark: {(time.time() - started) / 60:.0f} min")
    sys.exit(code)
