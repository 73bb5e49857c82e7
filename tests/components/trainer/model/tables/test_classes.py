"""Classes of a label keep their weights if the order of its vocabulary changes."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

from strategos.components.errors import UserError
from strategos.components.targets.label import Label
from strategos.components.trainer.loop.state import saved_weights
from strategos.components.trainer.loop.warm_start import earlier_weights
from strategos.components.trainer.model import effects
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


def _heads(package, classes, order):
    """Two heads that learn classes, in this order, and one that learns a number."""
    inputs = package.Input((3,), name="x")
    hidden = package.layers.Dense(8, "relu", name="hidden")(inputs)
    layers = {
        "kind": package.layers.Dense(classes, "softmax", name="kind"),
        "logits": package.layers.Dense(classes, name="logits"),
        "size": package.layers.Dense(classes, name="size"),
    }
    outputs = {name: layers[name](hidden) for name in order}
    if package is keras or order[0] == "size":
        return package.Model(inputs, outputs)
    return package.Model(inputs, [*outputs.values()])


@pytest.mark.parametrize("package", [tf.keras, keras])
@pytest.mark.parametrize("names", [("y", "y"), ("y", "z")])
@pytest.mark.parametrize("traced", [True, False])
def test_classes_of_each_head_move_with_its_own_column(
    tmp_path, package, names, traced
):
    """Head `size` has as many outputs as there are classes, and none of them moves."""
    path = str(tmp_path / "weights")
    orders = ("kind", "size", "logits"), ("size", "logits", "kind")
    models, label = [], Label.of({"kind": "y", "logits": names[1], "size": "n"})
    shuffled = [BEFORE, [BEFORE[2], BEFORE[0], BEFORE[1]]]
    for entries, order in zip(shuffled, orders, strict=True):
        model = _heads(package, 3, order)
        model.compile("sgd", dict.fromkeys(order, "mse"), run_eagerly=not traced)
        still = _ids(BEFORE)["y"]
        ids = {"z": still, **_ids(entries)}
        tables = relations.find(model, ROWS, ids, label.text)
        models.append(model)
        if entries is BEFORE:
            numbers = np.random.default_rng(1)
            model.set_weights([numbers.normal(size=w.shape) for w in model.weights])
            saved_weights.write(model, path)
            record.write(tables, path)
    fresh = [np.array(x) for x in models[1].get_weights()]
    earlier_weights.read(models[1], path, tables=tables)
    if not traced:  # no row can be assigned
        for mine, own in zip(models[1].get_weights(), fresh, strict=True):
            np.testing.assert_array_equal(mine, own)
        return
    before, after = (
        {
            name: np.array(value)
            for name, (_, value) in effects.by_output(model, model(ROWS["x"])).items()
        }
        for model in models
    )
    moved = [shuffled[0].index(each) for each in shuffled[1]]
    np.testing.assert_allclose(after["kind"], before["kind"][:, moved], atol=1e-6)
    own = moved if names[1] == "y" else [0, 1, 2]
    np.testing.assert_allclose(after["logits"], before["logits"][:, own], atol=1e-6)
    np.testing.assert_allclose(after["size"], before["size"], atol=1e-6)


def test_an_output_that_learns_another_column_is_named(tmp_path):
    path = str(tmp_path / "weights")
    for columns in ({"a": "x", "b": "y"}, {"a": "y", "b": "x"}):
        inputs = keras.Input((3,), name="x")
        outputs = {name: keras.layers.Dense(1, name=name)(inputs) for name in columns}
        model = keras.Model(inputs, outputs)
        model.compile("sgd", dict.fromkeys(columns, "mse"))
        tables = relations.find(model, ROWS, {}, Label.of(columns).text)
        if columns["a"] == "x":
            saved_weights.write(model, path)
            record.write(tables, path)
    with pytest.raises(UserError, match="`a`.*predicts `x`, and `label` names `y`"):
        earlier_weights.read(model, path, tables=tables)
