"""What XLA compiles of an optimizer, where there is a GPU; here on the CPU."""

from __future__ import annotations

import textwrap

import pytest

pytestmark = pytest.mark.long

TRAIN = """
    import json, os, sys, tempfile
    dump = tempfile.mkdtemp()
    os.environ["XLA_FLAGS"] = f"--xla_dump_to={dump} --xla_dump_hlo_as_text"
    import numpy as np
    import tensorflow as tf
    from strategos.components.trainer.compat import optimizers

    ROWS = 200
    draw = np.random.default_rng(1)
    batches = [(draw.integers(0, most, [32, 1]), draw.random([32, 1]))
               for most in (3, 25, 200)]

    def train(kind, ours):
        tf.keras.utils.set_random_seed(1)
        model = tf.keras.Sequential([
            tf.keras.Input([1], dtype=tf.int64), tf.keras.layers.Embedding(ROWS, 4),
            tf.keras.layers.Flatten(), tf.keras.layers.Dense(1)])
        optimizer = getattr(tf.keras.optimizers, kind)(0.01)
        optimizer.jit_compile = True  # as where a GPU is found
        model.compile(optimizer, "mse")
        if ours:
            optimizers.compile_dense_updates_only(model)
        before, counts = len(os.listdir(dump)), []
        for batch in batches:
            model.train_on_batch(*batch)
            counts.append(len(os.listdir(dump)) - before)
        return counts, np.concatenate([x.ravel() for x in model.get_weights()])

    found = {}
    for kind in ("Adam", "SGD"):
        stock, expected = train(kind, False)
        counts, weights = train(kind, True)
        off = float(np.max(np.abs(weights - expected)))
        found[kind] = {"stock": stock, "ours": counts, "off": off}
    print(json.dumps(found), flush=True)
    os._exit(0)
"""


def test_tables_are_updated_without_compiling_for_each_number_of_rows(script):
    for found in script(textwrap.dedent(TRAIN)).answer().values():
        assert found["stock"][-1] > found["stock"][0]  # tf-keras alone compiles anew
        assert found["ours"][-1] == found["ours"][0] > 0  # the dense layers, once
        assert found["off"] < 1e-6
