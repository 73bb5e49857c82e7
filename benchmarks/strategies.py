"""Measures training speed by strategy, the cost of checkpoints, and recovery.

    .venv/bin/python benchmarks/strategies.py [--rows 20000] [--only speed]

All parts train the digits example's network on images of MNIST's size (scikit-learn's
digits, enlarged and noisy, so that nothing has to be downloaded), in one run on one
machine:

- `speed`: examples/s, without the first step and evaluation, and the time from the
  start of the process to an accuracy of 0.97 on the evaluation split; compared with a
  plain Keras script in a separate process, with the same network and batch size, and
  the data as NumPy arrays in memory.
- `checkpoints`: examples/s with a checkpoint every second and with none. The cost of
  one every 30 s is a thirtieth of the difference, too little to measure directly.
- `recovery`: a worker of a gang of two is killed with -9; the time to the gang's next
  step, compared with the time of a cold gang to its first step.

The exit code is 1 if a target is missed: one device at least 0.95 of the plain script,
checkpoints under 2 %, recovery at most 15 s longer than a cold start.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from trainings import BATCH, NETWORK, Bench, Trained, noted

from strategos.components.trainer.operation import Operation

ACCURACY = 0.97
_SECONDS = 20  # of a training whose checkpoints are timed
STRATEGIES = {
    "one_device": {"strategy": "one_device"},
    "mirrored x2": {"strategy": "mirrored", "devices": 2},
    "central_storage x2": {"strategy": "central_storage", "devices": 2},
    "multi_worker x2": {"strategy": "multi_worker_mirrored", "workers": 2},
    "parameter_server x2": {"strategy": "parameter_server", "workers": 2},
}

# A worker kills itself once, after 30 steps.
KILLED = """
import os, signal, time
from noted import Noted, build_model

class Killed(Noted):
    def __init__(self, context):
        super().__init__(context)
        self.steps = 0

    def on_train_batch_end(self, batch, logs=None):
        super().on_train_batch_end(batch, logs)
        self.steps += 1
        if self.steps == 30 and not self.is_chief:
            if "killed" not in self.notes.read_text():
                self.note("killed", time.time())
                os.kill(os.getpid(), signal.SIGKILL)

def callbacks(context):
    return [Killed(context)]
"""

PLAIN = """
import json, sys, time, types
started = time.time()
import numpy as np
import tensorflow as tf
from model import build_model

folder, epochs, batch, hyperparameters = sys.argv[1:]
arrays = {name: np.load(f"{folder}/{name}.npy") for name in
          ("x_train", "y_train", "x_eval", "y_eval")}
rows, epochs, batch = len(arrays["x_train"]), int(epochs), int(batch)
tf.keras.utils.set_random_seed(1)
context = types.SimpleNamespace(
    hyperparameters=json.loads(hyperparameters), epochs=epochs,
    steps_per_epoch=-(-rows // batch), label_spec=types.SimpleNamespace(shape=[1]),
    inputs=lambda: {"image": tf.keras.Input(arrays["x_train"].shape[1:], name="image")})
model = build_model(context)

class Speed(tf.keras.callbacks.Callback):
    busy, steps, since, reached = 0.0, 0, None, None
    _supports_tf_logs = True
    def on_epoch_begin(self, epoch, logs=None):
        self.since = time.perf_counter() if self.steps else None
    def on_train_batch_end(self, batch, logs=None):
        now = time.perf_counter()
        if self.since:
            self.busy += now - self.since
        self.since, self.steps = now, self.steps + 1
    def on_epoch_end(self, epoch, logs=None):
        if self.reached is None and float(logs["val_accuracy"]) >= ACCURACY:
            self.reached = time.time() - started

speed = Speed()
model.fit(arrays["x_train"], arrays["y_train"], batch_size=batch, epochs=epochs,
          validation_data=(arrays["x_eval"], arrays["y_eval"]),
          callbacks=[speed], verbose=0)
rate = (speed.steps - 1) / speed.busy * rows / context.steps_per_epoch
print(json.dumps({"speed": rate, "reached": speed.reached,
                  "wall": time.time() - started}))
""".replace("ACCURACY", str(ACCURACY))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", choices=["speed", "checkpoints", "recovery"])
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="strategies-") as folder:
        bench = Bench(Path(folder), arguments.rows, arguments.epochs)
        missed = [
            target
            for part in (speed, checkpoints, recovery)
            if arguments.only in (None, part.__name__)
            for target in part(bench, arguments.repeats)
        ]
    for target in missed:
        print(f"missed: {target}")
    return int(bool(missed))


def speed(bench: Bench, repeats: int) -> Iterator[str]:
    """Compares plain script and strategies, by medians; yields missed targets."""
    _save_arrays(bench)
    found: dict[str, list[Measured]] = {"plain Keras": []}
    for _ in range(repeats):
        found["plain Keras"].append(_plain(bench))
        found.setdefault("one_device", []).append(_trained(bench, "one_device"))
    for name in list(STRATEGIES)[1:]:
        found[name] = [_trained(bench, name)]
    plain = statistics.median(run.speed for run in found["plain Keras"])
    print(f"{'':20}  examples/s  of plain  s to {ACCURACY:g}  whole process, s")
    for name, runs in found.items():
        rate = statistics.median(run.speed for run in runs)
        wall = statistics.median(run.wall for run in runs)
        reached = runs[0].reached
        to = f"{reached:9.1f}" if reached else f"{'never':>9}"
        print(f"{name:20}  {rate:10,.0f}  {rate / plain:8.2f}  {to}  {wall:16.1f}")
        if name == "one_device" and rate < 0.95 * plain:
            yield f"one_device at {rate / plain:.2f} of the plain script, not 0.95"


def checkpoints(bench: Bench, repeats: int) -> Iterator[str]:
    """Compares a checkpoint every second with none, in turn; yields missed targets."""
    device = STRATEGIES["one_device"]
    once = bench.train(distribution=device).speed
    epochs = max(1, round(_SECONDS * once / bench.rows))
    rates: dict[str, list[float]] = {"1s": [], "24h": []}
    for _ in range(repeats):
        for every, found in rates.items():
            operation = Operation(checkpoint_every=every)
            run = bench.train(operation, distribution=device, epochs=epochs)
            found.append(run.speed)
    with_them, without = (statistics.median(found) for found in rates.values())
    cost = 1 - with_them / without
    print(
        f"a checkpoint every second: {with_them:,.0f} examples/s; none: {without:,.0f}"
    )
    print(f"  {cost:.1%}, so one every 30 s costs {cost / 30:.2%}")
    if cost / 30 >= 0.02:
        yield f"checkpoints every 30 s cost {cost / 30:.1%}, not under 2 %"


def recovery(bench: Bench, repeats: int) -> Iterator[str]:
    """Kills a worker; yields the target if the gang takes too long to resume."""
    (bench.workload / "killed.py").write_text(KILLED)
    cold, again = [], []
    for number in range(repeats):
        notes = bench.folder / f"notes-{number}"
        gang = STRATEGIES["multi_worker x2"]
        often = Operation(checkpoint_every="10 steps")
        run = bench.train(often, notes=notes, module="killed", distribution=gang)
        steps, (killed,) = noted(notes, "step"), noted(notes, "killed")
        cold.append(steps[0] - run.started)
        again.append(next(step for step in steps if step > killed) - killed)
    start, resumed = statistics.median(cold), statistics.median(again)
    print(f"cold gang of two: {start:.1f} s to its first step")
    print(f"a worker killed: {resumed:.1f} s to the next step")
    if resumed > start + 15:
        yield f"recovery took {resumed - start:.1f} s longer than a cold start, not 15"


@dataclasses.dataclass(frozen=True)
class Measured:
    """A training.

    Attributes:
      speed: Examples a second.
      wall: Seconds of the whole process.
      reached: Seconds to the accuracy; None if it was not reached.
    """

    speed: float
    wall: float
    reached: float | None


def _plain(bench: Bench) -> Measured:
    """The plain script."""
    arguments = [str(bench.folder), str(bench.epochs), str(BATCH)]
    done = subprocess.run(
        [sys.executable, "-c", PLAIN, *arguments, json.dumps(NETWORK)],
        cwd=bench.workload,
        env={**os.environ, "TF_USE_LEGACY_KERAS": "1", "TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise SystemExit(done.stderr)
    return Measured(**json.loads(done.stdout))


def _save_arrays(bench: Bench) -> None:
    """Saves the images as the plain script reads them."""
    for split, (x, y) in bench.images.items():
        scaled = x[..., None].astype(np.float32) / 255
        np.save(bench.folder / f"x_{split}.npy", scaled)
        np.save(bench.folder / f"y_{split}.npy", y)


def _trained(bench: Bench, name: str) -> Measured:
    run = bench.train(distribution=STRATEGIES[name])
    return Measured(run.speed, run.seconds, _reached(run))


def _reached(run: Trained) -> float | None:
    """Seconds until the first epoch that ended with `ACCURACY`; None if none did."""
    for event in run.reported:
        words = event.get("message", "").split()
        if "val_accuracy" not in words:
            continue
        if float(words[words.index("val_accuracy") + 1]) >= ACCURACY:
            return event["time"] - run.started
    return None


if __name__ == "__main__":
    sys.exit(main())
