"""Measures goodput: the share of the time that goes into steps that count.

    .venv/bin/python benchmarks/goodput.py [--workers 2 3] [--minutes 10] [--period 60]

Trains the network of `benchmarks/strategies.py` in gangs of local workers. Every 60 s
a task chosen at random, the chief among them, is killed with -9; the gang starts again
from the last checkpoint. Goodput is the time of the same training undisturbed and
without checkpoints, divided by its time here: restarts, steps that are trained twice
and checkpoints lower it. Times are from the first step to the last. `checkpoint.every:
auto` is compared with `30 seconds`.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import strategies
from strategies import Bench

from strategos.components.trainer.launchers import launch
from strategos.components.trainer.operation import Operation

NEVER = "24h"
RESTARTS = 100  # in a row without progress, where kills come faster than checkpoints
INTERVALS = {"auto": "auto", "30 seconds": "30s"}

# The digits example's model, and a callback that records processes and times of steps.
MODULE = """
import json, os, time
from pathlib import Path
import tensorflow as tf
from model import build_model

class Noted(tf.keras.callbacks.Callback):
    def __init__(self, context):
        super().__init__()
        self._supports_tf_logs = True
        self.notes = Path(context.hyperparameters["notes"])
        self.is_chief = context.is_chief
        # An iterator is not JSON-able, so a resume does not restore it.
        self.is_first = iter([True])

    def note(self, what, value):
        with self.notes.open("a") as file:
            file.write(json.dumps([what, value]) + "\\n")

    def on_train_begin(self, logs=None):
        self.note("task", os.getpid())

    def on_train_batch_end(self, batch, logs=None):
        if self.is_chief and next(self.is_first, False):
            self.note("first step", time.time())

    def on_train_end(self, logs=None):
        if self.is_chief:
            self.note("end", time.time())

def callbacks(context):
    return [Noted(context)]
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--workers", type=int, nargs="+", default=[2, 3])
    parser.add_argument("--minutes", type=float, default=10, help="undisturbed")
    parser.add_argument("--period", type=float, default=60, help="seconds to a kill")
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1, help="of the choice of tasks")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="goodput-") as folder:
        bench = Bench(Path(folder), arguments.rows, epochs=2)
        (bench.workload / "noted.py").write_text(MODULE)
        print("workers  checkpoint.every  kills  restarts  seconds  goodput")
        for workers in arguments.workers:
            probe = train(bench, workers, NEVER, epochs=2)
            epochs = max(2, round(arguments.minutes * 60 / probe.seconds * 2))
            undisturbed = train(bench, workers, NEVER, epochs)
            for name, every in INTERVALS.items():
                with killer(arguments.period, random.Random(arguments.seed)) as kills:
                    run = train(bench, workers, every, epochs, kills)
                goodput = undisturbed.seconds / run.seconds
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
        spec = dataclasses.replace(
            bench.spec(folder),
            module="noted",
            distribution={"strategy": "multi_worker_mirrored", "workers": workers},
            epochs=epochs,
            hyperparameters={**strategies.NETWORK, "notes": str(notes)},
        )
        with strategies.quiet():
            operation = Operation(checkpoint_every=every, max_restarts=RESTARTS)
            facts = launch(spec, operation)
        begin, end = noted(notes, "first step")[0], noted(notes, "end")[-1]
        return Run(facts["restarts"], end - begin)


def noted(notes: Path | None, what: str) -> list[float]:
    """The values of one kind that the tasks have noted, in their order."""
    if notes is None or not notes.exists():
        return []
    lines = map(json.loads, notes.read_text().splitlines())
    return [value for kind, value in lines if kind == what]


if __name__ == "__main__":
    started = time.time()
    code = main()
    print(f"whole benchmark: {(time.time() - started) / 60:.0f} min")
    sys.exit(code)
