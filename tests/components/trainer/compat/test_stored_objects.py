"""A snapshot writes what `tf.train.Checkpoint.write` does, by key and value."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from strategos.components.trainer.compat import stored_objects

OPTIMIZERS = {
    f"{package.__name__}.{where}.{name}": (package, getattr(module, name))
    for package, where, module in (
        (keras, "optimizers", keras.optimizers),
        (tf_keras, "optimizers", tf_keras.optimizers),
        (tf_keras, "legacy", tf_keras.optimizers.legacy),
    )
    for name in ("Adam", "Adadelta", "Ftrl", "RMSprop", "SGD")
}


@pytest.fixture(
    params=[
        pytest.param(x, marks=() if x.endswith(".Adam") else pytest.mark.long)
        for x in OPTIMIZERS
    ]
)
def root(request):
    """A model after two steps, with other objects that have values beside it."""
    package, optimizer = OPTIMIZERS[request.param]
    package.utils.set_random_seed(3)
    layers = [package.layers.Dense(3, "relu"), package.layers.BatchNormalization()]
    model = package.Sequential([*layers, package.layers.Dense(1)])
    model.compile(optimizer(0.1), "mse", metrics=["mae"])
    rows = np.random.default_rng(1).normal(size=(8, 4)).astype("float32")
    for _ in range(2):
        model.train_on_batch(rows, rows[:, :1])
    table = tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, -1)
    table.insert(["ATL", "ORD"], [1, 2])
    return tf.train.Checkpoint(model=model, table=table)


def _content(path):
    reader = tf.train.load_checkpoint(path)
    return {x: reader.get_tensor(x) for x in reader.get_variable_to_shape_map()}


def test_files_are_those_of_tensorflow(root, tmp_path):
    stored_objects.snapshot(root).write(str(tmp_path / "found"))
    root.write(str(tmp_path / "expected"))
    found = _content(str(tmp_path / "found"))
    expected = _content(str(tmp_path / "expected"))
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        np.testing.assert_array_equal(found[key], value, key)


def test_objects_have_the_keys_that_a_file_gives_them(root, tmp_path):
    taken = stored_objects.snapshot(root)
    taken.write(str(tmp_path / "files"))
    found = {id(x): key for x, key in taken.held}
    stored = stored_objects.held(str(tmp_path / "files"), root)
    assert found == {id(x): key for x, key in stored}
