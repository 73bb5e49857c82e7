"""Measures what a training's loop costs beside Keras's own `fit`, in CPU time.

    .venv/bin/python benchmarks/step_loop.py [--rounds 5]

Two tf-keras models, of the sizes of the digits and the flights, train on the same
batches by `fit` and by the trainer's loop, one step at a time and 32 at a time. The
weights must come out equal to the last bit. A round measures each way once; the table
has medians.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")

import numpy as np
import tensorflow as tf
import tf_keras

from strategos.components.trainer.loop import fit
from strategos.components.trainer.loop.callbacks import Hooks
from strategos.components.trainer.loop.position import Position

_STEPS = 640


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    print("model    steps at once  fit       the loop  ratio")
    for name, make in (("digits", digits), ("flights", flights)):
        for at_once in (1, 32):
            found = [
                [trained(make, at_once, way) for way in (by_fit, by_loop)]
                for _ in range(rounds)
            ]
            for ours in (weights for pair in found for _, weights in pair):
                assert all(map(np.array_equal, ours, found[0][0][1]))
            seconds = [[seconds for seconds, _ in pair] for pair in found]
            theirs, own = map(statistics.median, zip(*seconds, strict=True))
            print(
                f"{name:8} {at_once:13}  {1e3 * theirs:5.3f} ms  {1e3 * own:5.3f} ms  "
                f"{own / theirs:5.3f}"
            )
    return 0


def digits() -> tuple[tf_keras.Model, tf.data.Dataset]:
    """A small convolutional network, and batches of 32."""
    model = tf_keras.Sequential(
        [
            tf_keras.layers.Conv2D(16, 3, activation="relu"),
            tf_keras.layers.MaxPool2D(),
            tf_keras.layers.Flatten(),
            tf_keras.layers.Dense(64, activation="relu"),
            tf_keras.layers.Dense(10),
        ]
    )
    loss = tf_keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss, metrics=["accuracy"])
    draw = np.random.default_rng(0)
    rows = draw.normal(size=(2048, 8, 8, 1)).astype(np.float32)
    return model, _batches(rows, draw.integers(0, 10, (2048, 1)), 32)


def flights() -> tuple[tf_keras.Model, tf.data.Dataset]:
    """A dense network with an AUC, and batches of 512."""
    model = tf_keras.Sequential(
        [
            tf_keras.layers.Dense(128, activation="relu"),
            tf_keras.layers.Dense(64, activation="relu"),
            tf_keras.layers.Dense(1, activation="sigmoid"),
        ]
    )
    model.compile("adam", "binary_crossentropy", metrics=["AUC"])
    draw = np.random.default_rng(0)
    rows = draw.normal(size=(65_536, 40)).astype(np.float32)
    return model, _batches(rows, draw.integers(0, 2, (65_536, 1)), 512)


def _batches(rows: np.ndarray, labels: np.ndarray, size: int) -> tf.data.Dataset:
    dataset = tf.data.Dataset.from_tensor_slices((rows, labels)).cache()
    return dataset.batch(size).repeat().prefetch(2)


def trained(
    make: Callable[[], tuple[tf_keras.Model, tf.data.Dataset]],
    at_once: int,
    way: Callable[[tf_keras.Model, tf.data.Dataset], None],
) -> tuple[float, list[np.ndarray]]:
    """CPU seconds of a step once all is traced, and the weights after two epochs."""
    tf_keras.utils.set_random_seed(1)
    model, batches = make()
    model.build((None, *batches.element_spec[0].shape[1:]))
    model.steps_per_execution = at_once
    way(model, batches)
    begun = time.process_time()
    way(model, batches)
    return (time.process_time() - begun) / _STEPS, model.get_weights()


def by_fit(model: tf_keras.Model, batches: tf.data.Dataset) -> None:
    """One epoch by Keras."""
    watched = [tf_keras.callbacks.Callback()]
    model.fit(batches, steps_per_epoch=_STEPS, callbacks=watched, verbose=0)


def by_loop(model: tf_keras.Model, batches: tf.data.Dataset) -> None:
    """One epoch by the trainer's loop; the context matters to Keras 3 alone."""
    context: Any = None
    position = Position(_STEPS, total=_STEPS)
    hooks = Hooks([tf_keras.callbacks.Callback()], model, position, 1)
    hooks.on_train_begin()
    fit.fit(
        context,
        model,
        position,
        end_epoch=1,
        feed=lambda step: batches,
        evaluation=batches,
        evaluation_steps=0,
        hooks=hooks,
    )
    hooks.on_train_end()


if __name__ == "__main__":
    sys.exit(main())
