"""Measures what a checkpoint costs: the time that steps lose, and memory.

    .venv/bin/python benchmarks/checkpoint.py [--parameters 10] [--steps 20]

Trains a network with Adam, and saves once, after the first of some steps: not at all,
by `tf.train.Checkpoint.write`, which returns once the files are written, and as the
trainer does, whose files a thread writes while the steps go on. `call` is the time in
the call that saves, `lost` the time of all steps beyond that without a checkpoint; it
includes what the thread takes from the steps, and the wait for the file. `peak` is the
largest resident memory beyond that before the first step. Times are the smallest of the
rounds, memory is the largest; a round measures each way once.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")

import tensorflow as tf

from strategos.components.trainer.loop.checkpoint.checkpoints import Checkpoints


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--parameters", type=float, default=10, help="millions")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", help="for the checkpoints; default: temporary")
    arguments = parser.parse_args()
    model, step = _training(arguments.parameters)
    for _ in range(3):  # traced, and all variables exist
        step()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        ways = _ways(model, Path(folder))
        found = [
            {name: _measured(step, arguments.steps, way) for name, way in ways.items()}
            for _ in range(arguments.rounds)
        ]
    best = {name: _best([each[name] for each in found]) for name in ways}
    print("checkpoint             call    lost     peak")
    for name, cost in best.items():
        lost = cost.seconds - best["none"].seconds
        print(f"{name:19} {cost.call:5.3f} s {lost:5.2f} s {cost.peak:5,.0f} MB")
    return 0


@dataclasses.dataclass(frozen=True)
class Cost:
    """Seconds of all steps and of the call that saves; megabytes of memory."""

    seconds: float
    call: float
    peak: float


Way = tuple[Callable[[], object], Callable[[], object]]


def _measured(step: Callable[[], object], steps: int, way: Way) -> Cost:
    save, finish = way
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before = _megabytes("VmRSS")
    begun = time.monotonic()
    step()
    called = time.monotonic()
    save()
    call = time.monotonic() - called
    for _ in range(steps - 1):
        step()
    finish()
    return Cost(time.monotonic() - begun, call, _megabytes("VmHWM") - before)


def _best(costs: list[Cost]) -> Cost:
    seconds, calls, peaks = zip(*map(dataclasses.astuple, costs), strict=True)
    return Cost(min(seconds), min(calls), max(peaks))


def _training(millions: float) -> tuple[tf.keras.Model, Callable[[], object]]:
    """A model with so many parameters, and a function that does a step."""
    width = int((millions * 1e6 / 4) ** 0.5)
    layers = [tf.keras.layers.Dense(width, "relu") for _ in range(4)]
    model = tf.keras.Sequential([tf.keras.Input((width,)), *layers])
    model.compile(tf.keras.optimizers.Adam(1e-4), "mse")
    rows = tf.random.normal((64, width), seed=1)
    batches = iter(tf.data.Dataset.from_tensors((rows, rows)).repeat())
    train = model.make_train_function()
    return model, lambda: train(batches)["loss"].numpy()


def _ways(model: tf.keras.Model, folder: Path) -> dict[str, Way]:
    """For each way, functions that save and that wait for the files."""
    whole = tf.train.Checkpoint(part=model)
    store = Checkpoints(str(folder), keep=1, is_chief=True)
    nothing = lambda: None  # noqa: E731
    return {
        "none": (nothing, nothing),
        "tf.train.Checkpoint": (lambda: whole.write(f"{folder}/model"), nothing),
        "trainer": (lambda: store.save(1, {"model": model}, {}, {}), store.finish),
    }


def _megabytes(name: str) -> float:
    """A line of this process's `/proc/self/status`."""
    lines = Path("/proc/self/status").read_text().splitlines()
    (line,) = (x for x in lines if x.startswith(f"{name}:"))
    return int(line.split()[1]) * 1024 / 1e6


if __name__ == "__main__":
    sys.exit(main())
