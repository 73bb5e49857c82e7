"""Measures what a larger batch costs and gains, by the scaling of the learning rate.

    .venv/bin/python benchmarks/batch_size.py [--optimizers adam sgd] [--seeds 1 2 3]

Trains the network of `benchmarks/trainings.py` on one device with batches of 64 to 2048
rows, for the same number of epochs, with `scale_learning_rate` none, linear and sqrt;
the learning rate belongs to a batch of 64 (`base_batch_size`). Prints the seconds of
all epochs, the least of the row's trainings because other work on the machine only adds
time; and the accuracy on the evaluation rows, the mean of the seeds and the range.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

from trainings import Bench

from strategos.components.trainer.spec import Settings

BASE = 64
BATCHES = (64, 128, 256, 512, 1024, 2048)
SCALES = ("none", "linear", "sqrt")
# A batch of 64 rows trains with three times these rates, too.
RATES = {"adam": 1e-3, "sgd": 3e-2}

MODULE = """
import tensorflow as tf
from model import build_model as build_with_adam

def build_model(context):
    model = build_with_adam(context)
    if context.hyperparameters["optimizer"] == "sgd":
        rate = tf.keras.optimizers.schedules.CosineDecay(
            context.hyperparameters["learning_rate"],
            context.epochs * context.steps_per_epoch,
        )
        optimizer = tf.keras.optimizers.SGD(rate, momentum=0.9)
        loss = "sparse_categorical_crossentropy"
        model.compile(optimizer, loss, metrics=["accuracy"])
    return model
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--optimizers", nargs="+", default=list(RATES), choices=RATES)
    parser.add_argument("--rate", type=float, help="learning rate of a batch of 64")
    parser.add_argument("--warm-up", type=int, default=0, help="epochs of warm-up")
    parser.add_argument("--batches", type=int, nargs="+", default=list(BATCHES))
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rows", type=int, default=6_000)
    parser.add_argument("--epochs", type=int, default=5)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="batch-size-") as folder:
        bench = Bench(Path(folder), given.rows, given.epochs)
        (bench.workload / "chosen.py").write_text(MODULE)
        for optimizer in given.optimizers:
            rate = given.rate or RATES[optimizer]
            print(f"{optimizer}, {rate:g} for a batch of {BASE}, {given.epochs} epochs")
            print(f"{'batch':>5}  {'seconds':>7}  ", *(f"{x:>22}" for x in SCALES))
            values = {"optimizer": optimizer, "learning_rate": rate}
            for batch in given.batches:
                steps = given.warm_up * -(-given.rows // batch)
                print(_row(bench, batch, values, steps, given.seeds), flush=True)
    return 0


def _row(
    bench: Bench, batch: int, values: dict[str, Any], warm_up: int, seeds: list[int]
) -> str:
    """Time and accuracy of a batch size, as a line.

    Args:
      bench: The data.
      batch: Rows of a batch.
      values: Hyperparameters: optimizer and learning rate.
      warm_up: Steps in which the learning rate rises.
      seeds: A training for each.
    """
    seconds, accuracies = [], defaultdict(list)
    for seed, scale in itertools.product(seeds, SCALES[: 1 if batch == BASE else None]):
        run = bench.train(
            module="chosen",
            distribution={"strategy": "one_device"},
            batch_size=batch,
            seed=seed,
            settings=Settings(
                scale_learning_rate=scale, base_batch_size=BASE, warm_up_steps=warm_up
            ),
            hyperparameters=values,
        )
        seconds.append(bench.rows * bench.epochs / run.speed)
        accuracies[scale].append(run.facts["history"]["val_accuracy"][-1])
    cells = [
        f"{statistics.mean(found):.4f} ({min(found):.4f}-{max(found):.4f})"
        for found in accuracies.values()
    ]
    return f"{batch:5}  {min(seconds):7.1f}  " + "  ".join(cells)


if __name__ == "__main__":
    sys.exit(main())
