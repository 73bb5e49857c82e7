"""The least that any training of this network does: reads CSV files, takes steps.

    python floor.py 'data/*/*.csv' --epochs 4

Imports pyarrow and TensorFlow, reads the files, and takes the steps of plain_script.py
on one batch in memory: no features, evaluation or export. Part of whole_run.
"""

from __future__ import annotations

import argparse

import numpy as np
import plain_script
import tensorflow as tf


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("pattern")
    parser.add_argument("--epochs", type=int, default=4)
    arguments = parser.parse_args()
    rows = plain_script.read(arguments.pattern).num_rows
    steps = arguments.epochs * -(-int(rows * 0.8) // plain_script.BATCH)
    model = plain_script.build(destinations=104, steps=steps)
    batch = {
        each.name: np.zeros((plain_script.BATCH, *each.shape[1:]), each.dtype)
        for each in model.inputs
    }
    label = np.zeros((plain_script.BATCH, 1), np.float32)
    repeated = tf.data.Dataset.from_tensors((batch, label)).repeat()
    model.fit(repeated, steps_per_epoch=steps, verbose=0)


if __name__ == "__main__":
    main()
