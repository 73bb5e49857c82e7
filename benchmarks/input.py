"""Compares the Trainer's input with NumPy arrays in memory and with the model's step.

    python benchmarks/input.py --rows 50000

Prints examples/s of each feed alone, of training steps on one batch in memory, and of
`fit` with its share of time spent waiting, each with its ratio to NumPy and to the
steps. A feed that is faster than the steps is not a bottleneck. Each figure is the best
of three rounds; a round measures every feed once.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")

import numpy as np
import tensorflow as tf

from strategos.components.trainer.data import dataset
from strategos.components.trainer.data.input_wait import InputWait
from strategos.components.trainer.data.split import Split

FILES = 8
ROUNDS = 3
NUMPY = "NumPy, shuffle, batch"
STEPS = "training steps"
Arrays = dict[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Data:
    """Rows as arrays, including the label `y`, and a model for them."""

    name: str
    arrays: Arrays
    model: tf.keras.Model

    @property
    def rows(self) -> int:
        return len(self.arrays["y"])

    @property
    def spec(self) -> dict[str, Any]:
        return {
            name: tf.io.FixedLenFeature(array.shape[1:], array.dtype)
            for name, array in self.arrays.items()
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--seconds", type=float, default=4.0, help="per figure")
    arguments = parser.parse_args()
    for data in (digits(arguments.rows), flights(arguments.rows)):
        with tempfile.TemporaryDirectory() as folder:
            write(data, Path(folder))
            measure(data, folder, arguments.batch, arguments.seconds)


def measure(data: Data, folder: str, batch: int, seconds: float) -> None:
    """Prints all figures for `data`.

    Args:
      data: The rows, and the model.
      folder: Folder with the rows as TFRecord files.
      batch: Rows per batch.
      seconds: Time per figure.
    """
    files = sorted(str(file) for file in Path(folder).iterdir())
    began = time.perf_counter()
    split = dataset.read(files, data.spec, "y")
    reading = time.perf_counter() - began
    limit = sum(array.nbytes for array in data.arrays.values()) // 10
    streamed = dataset.read(files, data.spec, "y", limit)
    assert split.columns is not None
    assert streamed.columns is None
    print(
        f"\n{data.name}: {data.rows:,} rows, batch {batch}; read into memory in "
        f"{reading:.1f} s ({data.rows / reading:,.0f} rows/s)"
    )
    rates: dict[str, float] = {}
    waits: dict[str, float | None] = {}
    for _ in range(ROUNDS):
        for name, value in one_round(data, split, streamed, batch, seconds / ROUNDS):
            speed, waited = value if isinstance(value, tuple) else (value, None)
            if speed > rates.get(name, 0.0):
                rates[name] = speed
                waits[name] = waited
    report(rates, waits)


def one_round(
    data: Data,
    split: Split,
    streamed: Split,
    batch: int,
    seconds: float,
) -> Iterator[tuple[str, Any]]:
    """Yields name and examples/s of each measurement; for `fit` also the wait share."""
    yield NUMPY, rate(from_numpy(data, batch), seconds)
    for how, fed in (("in memory", split), ("streamed", streamed)):
        options = {"seed": 1, "epochs": None}
        yield how, rate(fed.shuffled(batch, **options), seconds)
        half = fed.shuffled(batch, **options, replicas=2, share=range(1))
        yield f"{how}, 1 of 2 workers", rate(half, seconds) * 2
    steps = step_rate(data, split, batch, seconds)
    yield STEPS, steps
    for how, fed in (("in memory", split), ("streamed", streamed)):
        yield f"fit, {how}", fit_rate(data, fed, batch, seconds, steps)


def report(rates: dict[str, float], waits: dict[str, float | None]) -> None:
    """Prints the best round of each measurement, and its ratios."""
    print(f"{'':26}{'examples/s':>12}{'x NumPy':>10}{'x steps':>10}{'waited':>10}")
    for name, value in rates.items():
        numpy, steps = value / rates[NUMPY], value / rates[STEPS]
        waited = "" if waits[name] is None else f"{waits[name]:.1%}"
        print(f"{name:26}{value:12,.0f}{numpy:10.2f}{steps:10.2f}{waited:>10}")


def rate(batches: tf.data.Dataset, seconds: float) -> float:
    """Examples per second of a feed, counted by TensorFlow without other work."""

    @tf.function
    def take(iterator: Any, steps: tf.Tensor) -> tf.Tensor:
        rows = tf.constant(0)
        for _ in tf.range(steps):
            _, label = next(iterator)
            rows += tf.shape(label)[0]
        return rows

    iterator = iter(batches)
    take(iterator, tf.constant(10))
    rows, began = 0, time.perf_counter()
    while time.perf_counter() - began < seconds:
        rows += int(take(iterator, tf.constant(50)))
    return rows / (time.perf_counter() - began)


def step_rate(data: Data, split: Split, batch: int, seconds: float) -> float:
    """Examples per second of `fit` on one batch in memory."""
    one = tf.data.Dataset.from_tensors(split.sample(batch)).repeat()
    data.model.fit(one, steps_per_epoch=5, verbose=0)
    steps, spent = 20, 0.0
    while spent < seconds / 2:
        steps *= 2
        began = time.perf_counter()
        data.model.fit(one, steps_per_epoch=steps, verbose=0)
        spent = time.perf_counter() - began
    return steps * batch / spent


def fit_rate(
    data: Data, split: Split, batch: int, seconds: float, expected: float
) -> tuple[float, float]:
    """Examples per second of `fit` on a feed, and the share of time spent waiting."""
    wait = InputWait()
    meter = Meter(wait)
    data.model.fit(
        split.shuffled(batch, seed=1, epochs=None, wait=wait),
        steps_per_epoch=max(20, int(expected * seconds / batch)),
        callbacks=[meter],
        verbose=0,
    )
    return meter.steps * batch / meter.seconds, wait.share() or 0.0


class Meter(tf.keras.callbacks.Callback):
    """Measures all steps but the first, as the Trainer does."""

    def __init__(self, wait: InputWait):
        super().__init__()
        self._wait = wait
        self._began = 0.0
        self.steps = -1
        self.seconds = 0.0

    def on_train_begin(self, logs: Any = None) -> None:
        self._wait.restart()

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self._wait.begin()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self._wait.end()
        self.steps += 1
        if not self.steps:
            self._began = time.perf_counter()
        self.seconds = time.perf_counter() - self._began


def from_numpy(data: Data, batch: int) -> tf.data.Dataset:
    """The input pipeline that most scripts build from arrays."""
    features = {name: array for name, array in data.arrays.items() if name != "y"}
    rows = tf.data.Dataset.from_tensor_slices((features, data.arrays["y"]))
    return rows.shuffle(data.rows).repeat().batch(batch).prefetch(2)


def digits(rows: int) -> Data:
    """Images of 8 x 8 pixels, and a small convolutional network."""
    draw = np.random.default_rng(1)
    arrays = {
        "image": draw.random((rows, 8, 8, 1), np.float32),
        "y": draw.integers(0, 10, (rows, 1)),
    }
    inputs = {"image": tf.keras.Input((8, 8, 1), name="image")}
    hidden = tf.keras.layers.Conv2D(16, 3, activation="relu")(inputs["image"])
    hidden = tf.keras.layers.Conv2D(32, 3, activation="relu")(hidden)
    hidden = tf.keras.layers.Flatten()(hidden)
    model = tf.keras.Model(inputs, tf.keras.layers.Dense(10)(hidden))
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss)
    return Data("digits", arrays, model)


def flights(rows: int) -> Data:
    """Eight categories and eight numbers, and a perceptron with embeddings."""
    draw = np.random.default_rng(1)
    arrays, inputs, parts = {}, {}, []
    for i in range(8):
        arrays[f"category{i}"] = draw.integers(0, 100, (rows, 1))
        arrays[f"number{i}"] = draw.random((rows, 1), np.float32)
        category = tf.keras.Input((1,), name=f"category{i}", dtype=tf.int64)
        number = tf.keras.Input((1,), name=f"number{i}")
        inputs |= {f"category{i}": category, f"number{i}": number}
        embedding = tf.keras.layers.Embedding(100, 8)(category)
        parts += [tf.keras.layers.Flatten()(embedding), number]
    arrays["y"] = draw.integers(0, 2, (rows, 1))
    hidden = tf.keras.layers.Concatenate()(parts)
    hidden = tf.keras.layers.Dense(64, activation="relu")(hidden)
    model = tf.keras.Model(inputs, tf.keras.layers.Dense(1, "sigmoid")(hidden))
    model.compile("adam", tf.keras.losses.BinaryCrossentropy())
    return Data("flights", arrays, model)


def write(data: Data, folder: Path) -> None:
    """Writes the rows as gzipped TFRecords, as Transform does."""
    options = tf.io.TFRecordOptions("GZIP", compression_level=1)
    for file in range(FILES):
        path = str(folder / f"data-{file}.gz")
        with tf.io.TFRecordWriter(path, options) as writer:
            for record in _records(data.arrays, range(file, data.rows, FILES)):
                writer.write(record)


def _records(arrays: Arrays, rows: range) -> Iterator[bytes]:
    for row in rows:
        example = tf.train.Example()
        for name, array in arrays.items():
            feature = example.features.feature[name]
            whole = array.dtype == np.int64
            values = feature.int64_list if whole else feature.float_list
            values.value.extend(array[row].ravel().tolist())
        yield example.SerializeToString()


if __name__ == "__main__":
    main()
