"""Measures which network eight workers need to be seven times as fast as one.

    .venv/bin/python benchmarks/scaling.py [--svg docs/distribution/scaling.svg]

A dense network of 100 million parameters, whose gradients take 400 MB, under SGD. A
worker is one core of this machine, with one thread for computing:

- the step of one worker alone, and of two that exchange gradients;
- the exchange alone: the all-reduce of `strategos check-cluster`, of the same size;
- both again while the network between the two is limited to some Gbit/s in each
  direction (`tc` on the loopback of a network namespace; needs root).

From these follows the step of R workers: computing; then 2 (R - 1) / R times the
gradients through each worker's link, without overlap; and as many times what the
processes themselves need for an exchange (the exchange alone without a limit). The
limited steps of two workers are compared with it. The plot has the speed-up of eight
workers, each on a host of its own that computes as fast as a core here. Other work on
the machine only adds time, so the least of several tries counts.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import math
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from trainings import NEVER, Bench, attended, noted, pin
from whole_run import plot

ALONE = {"strategy": "one_device"}
PAIR = {"strategy": "multi_worker_mirrored", "workers": 2}
WORKERS, WANTED = 8, 7.0
WIDTHS = [6880, 6880, 6880]  # on 784 pixels: 100 million parameters
GBIT = 1e9 / 8  # bytes a second
PLOTTED = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)  # Gbit/s
ISOLATED = "SCALING_ISOLATED"

MODULE = """
import time
import tensorflow as tf
from noted import Noted

class Timed(Noted):
    began = 0.0

    def on_train_batch_begin(self, batch, logs=None):
        self.began = time.perf_counter()

    def on_train_batch_end(self, batch, logs=None):
        if self.is_chief:
            self.note("seconds", time.perf_counter() - self.began)
        super().on_train_batch_end(batch, logs)

def callbacks(context):
    return [Timed(context)]

def build_model(context):
    inputs = context.inputs()
    hidden = tf.keras.layers.Flatten()(inputs["image"])
    for width in context.hyperparameters["widths"]:
        hidden = tf.keras.layers.Dense(width, activation="relu")(hidden)
    digits = tf.keras.layers.Dense(10, activation="softmax")(hidden)
    model = tf.keras.Model(inputs, digits)
    model.compile(tf.keras.optimizers.SGD(1e-3), "sparse_categorical_crossentropy")
    return model
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--batch", type=int, default=64, help="rows of each worker")
    parser.add_argument("--widths", type=int, nargs="+", default=WIDTHS)
    parser.add_argument("--steps", type=int, default=8, help="of each training")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--limits", type=float, nargs="*", default=[1, 2, 4])
    parser.add_argument("--svg", type=Path, help="where the plot is written")
    arguments = parser.parse_args()
    _isolate()
    with tempfile.TemporaryDirectory(prefix="scaling-") as folder:
        case = Case.prepared(Path(folder), arguments)
        size, rows = case.bytes, case.batch
        print(f"{size / 4:,.0f} parameters; gradients of {size / 1e6:,.0f} MB a step")
        alone, large, pair, exchange = case.compared(arguments.repeats)
        print(f"one worker, {rows} rows: {alone:.2f} s a step")
        print(f"one worker, {rows * WORKERS} rows: {large:.2f} s a step")
        print(f"two workers, {rows} rows each: {pair:.2f} s a step")
        print(f"exchange alone: {exchange:.2f} s, {size / exchange / GBIT:.1f} Gbit/s")
        model = Model(size, {rows: alone, rows * WORKERS: large}, exchange)
        case.limited(arguments.limits, arguments.repeats, model)
    print(*model.needs(), sep="\n")
    if arguments.svg:
        arguments.svg.write_text(plot.draw([model.panel()]))
    return 0


@dataclasses.dataclass(frozen=True)
class Model:
    """The step of several workers, from that of one.

    Attributes:
      size: Bytes of the gradients.
      computing: Seconds of a step of one worker, by its rows.
      processes: Seconds of an exchange of two workers without a limit of the network.
    """

    size: float
    computing: Mapping[int, float]
    processes: float

    def exchange(self, workers: int, bandwidth: float, processes: float) -> float:
        """Seconds of an exchange.

        Args:
          workers: Their number.
          bandwidth: In bytes a second in each direction.
          processes: Seconds that two workers need without the network.
        """
        sent = 2 * (workers - 1) / workers
        return sent * (self.size / bandwidth + processes)

    def speed_up(self, rows: int, bandwidth: float, processes: float) -> float:
        """Rows a second of eight workers, as a multiple of one's with such batches.

        Args:
          rows: Of each worker.
          bandwidth: In bytes a second in each direction.
          processes: Seconds that two workers need for an exchange without the network.
        """
        one = self.computing[rows]
        return WORKERS * one / (one + self.exchange(WORKERS, bandwidth, processes))

    def bandwidth(self, rows: int) -> float:
        """Bytes a second for the wanted speed-up, if processes needed no time."""
        exchange = self.computing[rows] * (WORKERS / WANTED - 1)
        return 2 * (WORKERS - 1) / WORKERS * self.size / exchange

    def needs(self) -> Iterator[str]:
        """What eight workers need and reach, as sentences."""
        for rows in self.computing:
            most = self.speed_up(rows, math.inf, self.processes)
            yield (
                f"{rows} rows each: {WANTED:g} times as fast from "
                f"{self.bandwidth(rows) / GBIT:.0f} Gbit/s if only the network takes "
                f"time; with what the processes need, at most {most:.1f} times"
            )
        part, whole = self.computing.values()
        yield (
            f"with the whole batch in one worker's step: at most {whole / part:.1f} "
            "times as fast"
        )

    def panel(self) -> plot.Panel:
        """The speed-up by bandwidth."""
        curves = {
            f"{rows} rows each, {name}": [
                (x, self.speed_up(rows, x * GBIT, processes)) for x in PLOTTED
            ]
            for name, processes in (
                ("network alone", 0.0),
                ("exchange as measured here", self.processes),
            )
            for rows in self.computing
        }
        curves[f"{WANTED:g} times"] = [(PLOTTED[0], WANTED), (PLOTTED[-1], WANTED)]
        return plot.Panel(f"Speed-up of {WORKERS} workers by Gbit/s", curves)


@dataclasses.dataclass(frozen=True)
class Case:
    """The trainings of one model.

    Attributes:
      bench: The data.
      batch: Rows of each worker.
      steps: Steps of each training at least, of which the last half are measured.
      widths: Units of the dense layers.
      bytes: Size of the gradients.
    """

    bench: Bench
    batch: int
    steps: int
    widths: Sequence[int]
    bytes: float

    @classmethod
    def prepared(cls, folder: Path, given: argparse.Namespace) -> Case:
        """Prepares the rows of two steps of the largest batch."""
        bench = Bench(folder, given.batch * WORKERS * 2, epochs=1)
        (bench.workload / "wide.py").write_text(MODULE)
        sides = itertools.pairwise([28 * 28, *given.widths, 10])
        size = 4 * sum((before + 1) * after for before, after in sides)
        return cls(bench, given.batch, given.steps, given.widths, size)

    def compared(self, repeats: int) -> tuple[float, float, float, float]:
        """Seconds, measured in turn; the least of each.

        Returns:
          A step of one worker; of one with eight times the rows; of two workers; and
          an exchange.
        """
        found = []
        for _ in range(repeats):
            alone = self.step(ALONE, self.batch)
            large = self.step(ALONE, self.batch * WORKERS)
            pair, exchange = self.step(PAIR, self.batch * 2), self.exchange()
            found.append((alone, large, pair, exchange))
            print("  ".join(f"{seconds:.2f}" for seconds in found[-1]), flush=True)
        alone, large, pair, exchange = map(min, zip(*found, strict=True))
        return alone, large, pair, exchange

    def limited(self, limits: Sequence[float], repeats: int, model: Model) -> None:
        """Prints steps and exchanges of two workers by the limit in Gbit/s."""
        if not limits or not os.environ.get(ISOLATED):
            return
        print("Gbit/s  exchange, s  by the model  step, s  by the model")
        for limit in limits:
            _limit(limit)
            sent = model.exchange(2, limit * GBIT, model.processes)
            exchange = min(self.exchange() for _ in range(repeats))
            step = min(self.step(PAIR, self.batch * 2) for _ in range(repeats))
            print(
                f"{limit:6g}  {exchange:11.2f}  {sent:12.2f}  {step:7.2f}  "
                f"{model.computing[self.batch] + sent:12.2f}",
                flush=True,
            )

    def step(self, distribution: dict[str, object], rows: int) -> float:
        """The median seconds of a step, each worker on a core of its own.

        Args:
          distribution: The strategy.
          rows: Rows of a global batch.
        """
        notes = self.bench.folder / f"notes-{time.monotonic_ns()}"
        with attended(notes, _pinned):
            self.bench.train(
                notes=notes,
                module="wide",
                distribution=distribution,
                batch_size=rows,
                epochs=-(-self.steps * rows // self.bench.rows),
                hyperparameters={"widths": list(self.widths)},
            )
        times = noted(notes, "seconds")
        return statistics.median(times[len(times) // 2 :])

    def exchange(self) -> float:
        """Seconds of an all-reduce of the gradients by two workers."""
        operation = dataclasses.replace(NEVER, check_bytes=self.bytes)
        return self.bench.train(operation, distribution=PAIR).facts["all_reduce"]


def _pinned(workers: Sequence[int], ended: threading.Event) -> None:
    del ended
    for core, worker in enumerate(workers):
        pin(worker, core)


def _isolate() -> None:
    """Goes on in a network namespace of its own, if this process may make one."""
    os.environ["TF_NUM_INTRAOP_THREADS"] = "1"
    if os.environ.get(ISOLATED):
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        return
    space = ["unshare", "--net"]
    if subprocess.run([*space, "true"], stderr=subprocess.DEVNULL).returncode:
        print("no network can be limited here: that needs root", flush=True)
        return
    os.environ[ISOLATED] = "1"
    os.execvp(space[0], [*space, sys.executable, *sys.argv])


def _limit(rate: float) -> None:
    """Limits the loopback, which both directions share, to `rate` Gbit/s in each."""
    bucket = ["rate", f"{rate * 2:g}gbit", "burst", "1m", "latency", "100ms"]
    command = ["tc", "qdisc", "replace", "dev", "lo", "root", "tbf", *bucket]
    subprocess.run(command, check=True)


if __name__ == "__main__":
    sys.exit(main())
