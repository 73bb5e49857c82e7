"""Trainings that several benchmarks measure, on data that they prepare once.

The network is that of the digits example, the images have MNIST's size: scikit-learn's
digits, enlarged and noisy, so that nothing has to be downloaded.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from strategos.components import events
from strategos.components.trainer.launchers import launch
from strategos.components.trainer.operation import Operation
from strategos.components.trainer.spec import Settings, WorkerSpec

DIGITS = Path(__file__).parents[1] / "examples" / "digits"
BATCH = 128
NETWORK = {"network": "cnn", "learning_rate": 1e-3}
NEVER = Operation(checkpoint_every="24h")
"""A training without checkpoints."""

_POLL_SECONDS = 0.05

# A callback that records processes and times of steps. `context.is_chief` is true in
# the process that counts the steps of all.
_NOTED = """
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

    def note(self, what, value):
        with self.notes.open("a") as file:
            file.write(json.dumps([what, value]) + "\\n")

    def on_train_begin(self, logs=None):
        self.note("task", os.getpid())
        if self.is_chief:
            self.note("cluster", json.loads(os.environ.get("TF_CONFIG", "{}")))

    def on_train_batch_end(self, batch, logs=None):
        if self.is_chief:
            self.note("step", time.time())

    def on_train_end(self, logs=None):
        if self.is_chief:
            self.note("end", time.time())

def callbacks(context):
    return [Noted(context)]
"""


@dataclasses.dataclass(frozen=True)
class Trained:
    """A training that has ended.

    Attributes:
      facts: As in `trainer.json`.
      started: When it was launched, in seconds since 1970.
      seconds: From the launch to the exported model.
      reported: The events of the run.
    """

    facts: Mapping[str, Any]
    started: float
    seconds: float
    reported: list[dict[str, Any]]

    @property
    def speed(self) -> float:
        """Examples a second, without the first step and evaluation."""
        return self.facts["examples_per_second"]


class Bench:
    """Prepares the data once, and runs trainings on them.

    Args:
      folder: Folder for all files.
      rows: Number of training images; a sixth as many are evaluated.
      epochs: Passes over the training images, by default.

    Attributes:
      folder: Folder for all files.
      rows: Number of training images.
      epochs: Passes over the training images, by default.
      workload: Folder of the modules that a training may import.
    """

    def __init__(self, folder: Path, rows: int, epochs: int):
        self.folder, self.epochs, self.rows = folder, epochs, rows
        self.workload = folder / "digits"
        ignored = shutil.ignore_patterns("runs", "data", "serving", "__pycache__")
        shutil.copytree(DIGITS, self.workload, ignore=ignored)
        (self.workload / "noted.py").write_text(_NOTED)
        self.images = {"train": _images(rows, 1), "eval": _images(rows // 6, 2)}
        _save_npz(folder / "mnist.npz", self.images)
        self._transform()

    def train(
        self,
        operation: Operation = NEVER,
        *,
        notes: Path | None = None,
        hyperparameters: Mapping[str, Any] | None = None,
        **changes: Any,
    ) -> Trained:
        """Trains once.

        Args:
          operation: Settings of the training's operation.
          notes: File for what the callback of the module `noted` records, see `noted`.
            By default, no callback looks at steps.
          hyperparameters: Values beside those of `NETWORK`, or in their place.
          **changes: Fields of the training's `WorkerSpec`.
        """
        values = {**NETWORK, **(hyperparameters or {})}
        if notes:
            values["notes"], changes = str(notes), {"module": "noted", **changes}
        with tempfile.TemporaryDirectory(dir=self.folder) as folder:
            reported = Path(folder, "events")
            spec = dataclasses.replace(
                self._spec(folder), hyperparameters=values, **changes
            )
            events.open_sink(str(reported))
            started = time.time()
            with quiet():
                facts = launch(spec, operation)
            seconds = time.time() - started
            lines = reported.read_text().splitlines()
            return Trained(facts, started, seconds, [json.loads(x) for x in lines])

    def _transform(self) -> None:
        options = ("--overlay", "mnist.yaml", "--to", "Transform")
        program = (sys.executable, "-m", "strategos.pipeline.cli")
        subprocess.run(
            [*program, "run", "pipeline.yaml", *options, "--set", "run.root=runs"],
            cwd=self.workload,
            env={
                **os.environ,
                "MNIST": str(self.folder / "mnist.npz"),
                "XDG_STATE_HOME": str(self.folder / "state"),
            },
            check=True,
            stdout=subprocess.DEVNULL,
        )

    def _spec(self, folder: str) -> WorkerSpec:
        """A training with its outputs in `folder`."""
        root = self.workload / "runs" / "digits"

        def files(pattern: str) -> tuple[str, ...]:
            return tuple(sorted(map(str, root.glob(pattern))))

        examples = "Transform/transformed_examples/*/Split-{}/*"
        return WorkerSpec(
            folder=str(self.workload),
            module="model",
            label="label",
            train_files=files(examples.format("train")),
            eval_files=files(examples.format("eval")),
            transform_graph=files("Transform/transform_graph/*")[0],
            schema_file=files("*SchemaGen/schema/*/schema.pbtxt")[0],
            model_dir=f"{folder}/model",
            log_dir=f"{folder}/log",
            checkpoint_dir=f"{folder}/checkpoints",
            batch_size=BATCH,
            epochs=self.epochs,
            seed=1,
            settings=Settings(),
        )


def noted(notes: Path | None, what: str) -> list[Any]:
    """The values of one kind that the tasks of a training have noted, in their order.

    Args:
      notes: The file; may be missing.
      what: `task` (id of a process), `cluster` (TF_CONFIG as a dict), `step` (time of
        the end of each step) or `end` (time).
    """
    if notes is None or not notes.exists():
        return []
    whole, _, _ = notes.read_text().rpartition("\n")  # the last line may be in writing
    lines = map(json.loads, whole.splitlines())
    return [value for kind, value in lines if kind == what]


@contextlib.contextmanager
def attended(
    notes: Path, work: Callable[[list[int], threading.Event], None]
) -> Iterator[None]:
    """Does something to the workers of the training that runs in the block.

    Args:
      notes: What the training notes.
      work: Called in a thread after the first step with the ids of the processes that
        compute gradients, and an event that is set at the end of the training.
    """
    ended = threading.Event()

    def run() -> None:
        while not ended.wait(_POLL_SECONDS):
            if noted(notes, "step"):
                work(_workers(notes), ended)
                return

    def watch() -> None:
        while not ended.wait(_POLL_SECONDS):
            if noted(notes, "end"):
                ended.set()

    threads = [threading.Thread(target=each, daemon=True) for each in (run, watch)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        for thread in threads:
            thread.join()


def pin(process: int, core: int) -> None:
    """Lets all threads of a process run on one core only."""
    for thread in os.listdir(f"/proc/{process}/task"):
        with contextlib.suppress(ProcessLookupError):  # it has just ended
            os.sched_setaffinity(int(thread), {core})


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


def _workers(notes: Path) -> list[int]:
    """Ids of the processes that compute gradients, the first worker's first."""
    cluster = noted(notes, "cluster")[0].get("cluster")
    if not cluster:
        return noted(notes, "task")[:1]
    coordinated = "ps" in cluster
    addresses = [
        *(() if coordinated else cluster.get("chief", ())),
        *cluster.get("worker", ()),
    ]
    listening = {
        connection.laddr.port: connection.pid
        for connection in psutil.net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN
    }
    return [listening[int(address.rpartition(":")[2])] for address in addresses]


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
