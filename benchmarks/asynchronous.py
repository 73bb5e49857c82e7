"""Measures what a slow worker costs, synchronous and asynchronous.

    .venv/bin/python benchmarks/asynchronous.py [--share 0.25] [--repeats 3]

Two workers train the network of `benchmarks/trainings.py`, each on a core of its own.
One of them is then slowed: SIGSTOP and SIGCONT let it run for a quarter of the time, in
turns of 0.05 s. Steps a second of `multi_worker_mirrored` and of `parameter_server`, in
all four cases, one after another in turn; medians. Under `parameter_server` each
worker's step is a whole batch, under `multi_worker_mirrored` half of one. All rows are
trained on once, so that no evaluation falls between two steps.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import statistics
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from trainings import Bench, attended, noted, pin

STRATEGIES = ("multi_worker_mirrored", "parameter_server")
SETTLED = 2.0  # seconds after which steps count


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--share", type=float, default=0.25, help="of the slow worker")
    parser.add_argument("--period", type=float, default=0.05, help="seconds of a turn")
    parser.add_argument("--rows", type=int, default=40_000)
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    os.environ["TF_NUM_INTRAOP_THREADS"] = "1"
    speeds: dict[tuple[str, float], list[float]] = defaultdict(list)
    accuracy: dict[tuple[str, float], list[float]] = defaultdict(list)
    with tempfile.TemporaryDirectory(prefix="asynchronous-") as folder:
        bench = Bench(Path(folder), arguments.rows, epochs=1)
        for number in range(arguments.repeats):
            for strategy in STRATEGIES:
                for share in (1.0, arguments.share):
                    notes = Path(folder, f"notes-{number}-{strategy}-{share}")
                    slow = Slow(share, arguments.period)
                    speed, reached = train(bench, notes, strategy, slow)
                    print(f"{strategy}, {share:.0%}: {speed:.1f} steps/s", flush=True)
                    speeds[strategy, share].append(speed)
                    accuracy[strategy, share].append(reached)
    print(f"{'':22}  steps/s, one worker at {arguments.share:.0%}  ratio  val_accuracy")
    for strategy in STRATEGIES:
        cases = (strategy, 1.0), (strategy, arguments.share)
        full, slowed = (statistics.median(speeds[case]) for case in cases)
        before, after = (statistics.median(accuracy[case]) for case in cases)
        print(
            f"{strategy:22}  {full:7.1f}  {slowed:23.1f}  {slowed / full:5.2f}  "
            f"{before:.4f} {after:.4f}"
        )
    return 0


class Slow:
    """Slows the last worker of a training, each of whose workers gets a core.

    Args:
      share: Part of the time in which the worker runs.
      period: Seconds in which it stops and runs once.

    Attributes:
      began: When the workers were slowed, in seconds since 1970.
    """

    def __init__(self, share: float, period: float):
        self._share, self._period = share, period
        self.began = 0.0

    def __call__(self, workers: Sequence[int], ended: threading.Event) -> None:
        """Works until the end of the training, see `attended`."""
        for core, worker in enumerate(workers):
            pin(worker, core)
        self.began = time.time()
        if self._share == 1:
            return
        with contextlib.suppress(ProcessLookupError):  # the training has ended
            while not ended.is_set():
                os.kill(workers[-1], signal.SIGSTOP)
                ended.wait(self._period * (1 - self._share))
                os.kill(workers[-1], signal.SIGCONT)
                ended.wait(self._period * self._share)


def train(bench: Bench, notes: Path, strategy: str, slow: Slow) -> tuple[float, float]:
    """Trains once.

    Args:
      bench: The data.
      notes: File for what the training notes.
      strategy: Of two workers.
      slow: Slows one of them.

    Returns:
      Steps a second, and the accuracy on the evaluation rows after the epoch.
    """
    with attended(notes, slow):
        run = bench.train(
            notes=notes, distribution={"strategy": strategy, "workers": 2}
        )
    steps = [step for step in noted(notes, "step") if step > slow.began + SETTLED]
    speed = (len(steps) - 1) / (steps[-1] - steps[0])
    return speed, run.facts["history"]["val_accuracy"][-1]


if __name__ == "__main__":
    sys.exit(main())
