"""Classes of a label keep their weights if the order of its vocabulary changes."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

from strategos.components.trainer.loop.state import saved_weights
from strategos.components.trainer.loop.warm_start import earlier_weights
from strategos.components.trainer.model.tables import record, relations
from strategos.components.transformed.feature_ids import FeatureIds

ROWS = {"x": tf.random.stateless_normal([6, 3], [1, 2])}
BEFORE, AFTER = [b"cat", b"dog", b"cow"], [b"dog", b"yak", b"cat", b"cow"]


def _ids(entries):
    numbers = np.arange(len(entries))
    others = np.zeros(0, np.int64)
    return {"y": FeatureIds(repr(entries), True, np.array(entries), numbers, others)}


def _softmax(package, classes):
    inputs = package.Input((3,), name="x")
    hidden = package.layers.Dense(8, "relu")(inputs)
    return package.Model(inputs, package.layers.Dense(classes, "softmax")(hidden))


def _logits(package, classes):
    inputs = package.Input((3,), name="x")
    return package.Model(inputs, package.layers.Dense(classes)(inputs) / 2.0)


def _sigmoid(package, classes):
    inputs = package.Input((3,), name="x")
    return package.Model(inputs, package.layers.Dense(1, "sigmoid")(inputs))


def _sorted(package, classes):
    """No column belongs to a class."""
    inputs = package.Input((3,), name="x")
    dense = package.layers.Dense(classes)(inputs)
    return package.Model(inputs, package.layers.Lambda(lambda x: x[:, ::-1])(dense))


def _start(tmp_path, package, make):
    path, models = str(tmp_path / "weights"), []
    for entries in (BEFORE, AFTER):
        model = make(package, len(entries))
        model.compile("sgd", "mse")
        ids = _ids(entries)
        tables = relations.find(model, ROWS, ids, "y")
        models.append(model)
        if entries is BEFORE:
            numbers = np.random.default_rng(1)
            model.set_weights([numbers.normal(size=w.shape) for w in model.weights])
            saved_weights.write(model, path)
            record.write(tables, path)
    fresh = [np.array(x) for x in models[1].get_weights()]
    earlier_weights.read(models[1], path, tables=tables)
    return (*models, fresh)


@pytest.mark.parametrize("package", [tf.keras, keras])
def test_classes_keep_their_logits(tmp_path, package):
    old, new, _ = _start(tmp_path, package, _logits)
    before, after = (np.array(model(ROWS["x"])) for model in (old, new))
    for entry in BEFORE:
        np.testing.assert_allclose(
            after[:, AFTER.index(entry)], before[:, BEFORE.index(entry)], atol=1e-6
        )


@pytest.mark.parametrize("package", [tf.keras, keras])
def test_classes_keep_the_ratios_of_their_probabilities(tmp_path, package):
    old, new, fresh = _start(tmp_path, package, _softmax)
    before, after = (np.array(model(ROWS["x"])) for model in (old, new))
    columns = [[each.index(x) for x in BEFORE] for each in (BEFORE, AFTER)]
    before, after = before[:, columns[0]], after[:, columns[1]]
    np.testing.assert_allclose(
        after / after.sum(1, keepdims=True), before, rtol=1e-4, atol=1e-6
    )
    new_class = AFTER.index(b"yak")
    np.testing.assert_array_equal(
        new.get_weights()[-2][:, new_class], fresh[-2][:, new_class]
    )


@pytest.mark.parametrize("make", [_sigmoid, _sorted])
@pytest.mark.parametrize("package", [tf.keras, keras])
def test_an_output_layer_that_cannot_be_assigned_starts_fresh(tmp_path, package, make):
    _, new, fresh = _start(tmp_path, package, make)
    for mine, own in zip(new.get_weights(), fresh, strict=True):
        np.testing.assert_array_equal(mine, own)
