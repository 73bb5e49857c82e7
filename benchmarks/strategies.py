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
import contextlib
import dataclasses
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from strategos.components import events
from strategos.components.trainer.launchers import launch
from strategos.components.trainer.operation import Operation
from strategos.components.trainer.spec import Settings, WorkerSpec

DIGITS = Path(__file__).parents[1] / "examples" / "digits"
BATCH = 128
ACCURACY = 0.97
NETWORK = {"network": "cnn", "learning_rate": 1e-3}
STRATEGIES = {
    "one_device": {"strategy": "one_device"},
    "mirrored x2": {"strategy": "mirrored", "devices": 2},
    "central_storage x2": {"strategy": "central_storage", "devices": 2},
    "multi_worker x2": {"strategy": "multi_worker_mirrored", "workers": 2},
    "parameter_server x2": {"strategy": "parameter_server", "workers": 2},
}

# The digits example's model, and a callback that records the time of its process's
# first step, and kills a worker once.
MODULE = """
import json, os, signal, time
from pathlib import Path
import tensorflow as tf
from model import build_model

class Noted(tf.keras.callbacks.Callback):
    def __init__(self, context):
        super().__init__()
        self._supports_tf_logs = True
        self.notes = Path(context.hyperparameters["notes"])
        self.kills = context.hyperparameters.get("kill_worker", False)
        self.is_chief = context.is_chief
        self.steps = 0
        # An iterator is not JSON-able, so a resume does not restore it.
        self.is_first = iter([True])

    def note(self, what):
        with self.notes.open("a") as file:
            file.write(json.dumps([what, time.time()]) + "\\n")

    def on_train_batch_end(self, batch, logs=None):
        self.steps += 1
        if next(self.is_first, False) and self.is_chief:
            self.note("first step")
        if self.steps == 30 and self.kills and not self.is_chief:
            if "killed" not in self.notes.read_text():
                self.note("killed")
                os.kill(os.getpid(), signal.SIGKILL)

def callbacks(context):
    return [Noted(context)] if context.hyperparameters.get("kill_worker") else []
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
    found: dict[str, list[Any]] = {"plain Keras": []}
    for _ in range(repeats):
        found["plain Keras"].append(bench.plain())
        found.setdefault("one_device", []).append(bench.train("one_device"))
    for name in list(STRATEGIES)[1:]:
        found[name] = [bench.train(name)]
    plain = statistics.median(run["speed"] for run in found["plain Keras"])
    print(f"{'':20}  examples/s  of plain  s to {ACCURACY:g}  whole process, s")
    for name, runs in found.items():
        rate = statistics.median(run["speed"] for run in runs)
        wall = statistics.median(run["wall"] for run in runs)
        reached = runs[0]["reached"]
        to = f"{reached:9.1f}" if reached else f"{'never':>9}"
        print(f"{name:20}  {rate:10,.0f}  {rate / plain:8.2f}  {to}  {wall:16.1f}")
        if name == "one_device" and rate < 0.95 * plain:
            yield f"one_device at {rate / plain:.2f} of the plain script, not 0.95"


def checkpoints(bench: Bench, repeats: int) -> Iterator[str]:
    """Compares a checkpoint every second with none, in turn; yields missed targets."""
    epochs = bench.epochs_of(seconds=20)
    rates: dict[str, list[float]] = {"1s": [], "24h": []}
    for _ in range(repeats):
        for every, found in rates.items():
            operation = Operation(checkpoint_every=every)
            found.append(bench.train("one_device", operation, epochs=epochs)["speed"])
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
    cold, again = [], []
    for _ in range(repeats):
        started = time.time()
        notes = bench.train("multi_worker x2", kill_worker=True)["notes"]
        first, killed, second = (moment for _, moment in notes)
        cold.append(first - started)
        again.append(second - killed)
    start, resumed = statistics.median(cold), statistics.median(again)
    print(f"cold gang of two: {start:.1f} s to its first step")
    print(f"a worker killed: {resumed:.1f} s to the next step")
    if resumed > start + 15:
        yield f"recovery took {resumed - start:.1f} s longer than a cold start, not 15"


class Bench:
    """Prepares the data once, and runs trainings on them.

    Args:
      folder: Folder for all files.
      rows: Number of training images; a sixth as many are evaluated.
      epochs: Passes over the training images.
    """

    def __init__(self, folder: Path, rows: int, epochs: int):
        self._folder, self._epochs, self._rows = folder, epochs, rows
        self._speed = 0.0
        self.workload = folder / "digits"
        ignored = shutil.ignore_patterns("runs", "data", "serving", "__pycache__")
        shutil.copytree(DIGITS, self.workload, ignore=ignored)
        (self.workload / "bench.py").write_text(MODULE)
        images = {"train": _images(rows, 1), "eval": _images(rows // 6, 2)}
        _save_npz(folder / "mnist.npz", images)
        for split, (x, y) in images.items():
            np.save(folder / f"x_{split}.npy", x[..., None].astype(np.float32) / 255)
            np.save(folder / f"y_{split}.npy", y)
        self._transform()

    def plain(self) -> dict[str, Any]:
        """Runs the plain script; returns its `speed`, `reached` and `wall`."""
        arguments = [str(self._folder), str(self._epochs), str(BATCH)]
        done = subprocess.run(
            [sys.executable, "-c", PLAIN, *arguments, json.dumps(NETWORK)],
            cwd=self.workload,
            env={**os.environ, "TF_USE_LEGACY_KERAS": "1", "TF_CPP_MIN_LOG_LEVEL": "3"},
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise SystemExit(done.stderr)
        return json.loads(done.stdout)

    def train(
        self,
        name: str,
        operation: Operation | None = None,
        *,
        epochs: int | None = None,
        kill_worker: bool = False,
    ) -> dict[str, Any]:
        """Trains once.

        Args:
          name: Key of `STRATEGIES`.
          operation: Settings of the training's operation. Default: no checkpoints.
          epochs: Passes over the rows. Default: as in the constructor.
          kill_worker: Whether a worker is killed once.

        Returns:
          `speed` (examples/s), `wall` (seconds), `reached` (seconds to the accuracy, or
          None) and `notes` (events and times of the callback).
        """
        with tempfile.TemporaryDirectory(dir=self._folder) as folder:
            notes, reported = Path(folder, "notes"), Path(folder, "events")
            spec = dataclasses.replace(
                self.spec(folder),
                distribution=STRATEGIES[name],
                epochs=epochs or self._epochs,
                hyperparameters={
                    **NETWORK,
                    "notes": str(notes),
                    "kill_worker": kill_worker,
                },
            )
            every = Operation(checkpoint_every="10 steps" if kill_worker else "24h")
            events.open_sink(str(reported))
            started = time.time()
            with quiet():
                facts = launch(spec, operation or every)
            wall = time.time() - started
            if name == "one_device":
                self._speed = facts["examples_per_second"]
            return {
                "speed": facts["examples_per_second"],
                "wall": wall,
                "reached": _reached(reported, started),
                "notes": [json.loads(x) for x in notes.read_text().splitlines()]
                if notes.exists()
                else [],
            }

    def epochs_of(self, seconds: float) -> int:
        """Number of epochs that take about `seconds` on one device."""
        if not self._speed:
            self.train("one_device")
        return max(1, round(seconds * self._speed / self._rows))

    def _transform(self) -> None:
        options = ("--overlay", "mnist.yaml", "--to", "Transform")
        program = (sys.executable, "-m", "strategos.pipeline.cli")
        subprocess.run(
            [*program, "run", "pipeline.yaml", *options, "--set", "run.root=runs"],
            cwd=self.workload,
            env={
                **os.environ,
                "MNIST": str(self._folder / "mnist.npz"),
                "XDG_STATE_HOME": str(self._folder / "state"),
            },
            check=True,
            stdout=subprocess.DEVNULL,
        )

    def spec(self, folder: str) -> WorkerSpec:
        """A training with its outputs in `folder`."""
        root = self.workload / "runs" / "digits"

        def files(pattern: str) -> tuple[str, ...]:
            return tuple(sorted(map(str, root.glob(pattern))))

        examples = "Transform/transformed_examples/*/Split-{}/*"
        return WorkerSpec(
            folder=str(self.workload),
            module="bench",
            label="label",
            train_files=files(examples.format("train")),
            eval_files=files(examples.format("eval")),
            transform_graph=files("Transform/transform_graph/*")[0],
            schema_file=files("*SchemaGen/schema/*/schema.pbtxt")[0],
            model_dir=f"{folder}/model",
            log_dir=f"{folder}/log",
            checkpoint_dir=f"{folder}/checkpoints",
            batch_size=BATCH,
            epochs=self._epochs,
            seed=1,
            settings=Settings(),
        )


def _reached(reported: Path, started: float) -> float | None:
    """Seconds until the first epoch that ended with `ACCURACY`; None if none did."""
    for line in reported.read_text().splitlines():
        event = json.loads(line)
        words = event.get("message", "").split()
        if "val_accuracy" not in words:
            continue
        if float(words[words.index("val_accuracy") + 1]) >= ACCURACY:
            return event["time"] - started
    return None


def _images(rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Images uint8 [rows, 28, 28] and labels int64 [rows]."""
    from sklearn.datasets import load_digits

    digits, random = load_digits(), np.random.default_rng(seed)
    chosen = random.integers(0, len(digits.images), rows)
    large = np.kron(digits.images[chosen], np.ones((3, 3))) * (255 / 16)
    noisy = np.pad(large, ((0, 0), (2, 2), (2, 2))) + random.normal(
        0, 24, (rows, 28, 28)
    )
    return noisy.clip(0, 255).astype(np.uint8), digits.target[chosen].astype(np.int64)


def _save_npz(path: Path, images: dict[str, Any]) -> None:
    names = {"train": "train", "eval": "test"}
    arrays = {}
    for split, (x, y) in images.items():
        arrays[f"x_{names[split]}"], arrays[f"y_{names[split]}"] = x, y
    np.savez(path, **arrays)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Discards standard error, where the workers log."""
    kept = os.dup(2)
    with open(os.devnull, "w") as nothing:
        os.dup2(nothing.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(kept, 2)
            os.close(kept)


if __name__ == "__main__":
    sys.exit(main())
