"""Warm starts by value: rows follow the entries of vocabularies, and names bind."""

from __future__ import annotations

import math
import random
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

from strategos.components import events
from strategos.components.errors import UserError
from strategos.components.trainer.loop.state import saved_weights
from strategos.components.trainer.loop.warm_start import earlier_weights
from strategos.components.trainer.model.tables import record, relations
from strategos.components.transformed.feature_ids import FeatureIds

layers = tf.keras.layers
WORDS = [f"word {i}".encode() for i in range(12)]


def _ids(entries, *, oov=0, missing=False, is_one_hot=False):
    """The ids that `tft.compute_and_apply_vocabulary` gives."""
    size = len(entries)
    others = [-1] * missing + list(range(size, size + oov))
    return FeatureIds(
        digest=repr((entries, oov, missing)),
        looks_up=True,
        entries=np.array(entries, object),
        ids=np.arange(size),
        others=np.array(others, np.int64),
        is_one_hot=is_one_hot,
    )


def _readme(size, package=tf.keras):
    price = package.Input((1,), name="price")
    shop = package.Input((1,), name="shop", dtype="int64")
    embedded = package.layers.Embedding(size + 1, 8)(shop + 1)
    parts = [price, package.layers.Flatten()(embedded)]
    hidden = package.layers.Concatenate()(parts)
    output = package.layers.Dense(1, activation="sigmoid")(hidden)
    return package.Model([price, shop], output)


def _keras3(size):
    return _readme(size, keras)


def _one_hot(size):
    """One-hot vectors between numbers, then a ReLU."""
    price = tf.keras.Input((1,), name="price")
    shop = tf.keras.Input((1,), name="shop", dtype=tf.int64)
    encoded = layers.CategoryEncoding(size + 1, output_mode="one_hot")(shop + 1)
    hidden = layers.Concatenate()([price, encoded, price * 2])
    return tf.keras.Model([price, shop], layers.Dense(4, "relu")(hidden))


def _multi_hot(size):
    price = tf.keras.Input((1,), name="price")
    shop = tf.keras.Input((None,), name="shop", dtype=tf.int64, ragged=True)
    dense = layers.Lambda(lambda x: x.to_tensor() + 1)(shop)
    encoded = layers.CategoryEncoding(size + 1, output_mode="multi_hot")(dense)
    return tf.keras.Model(
        [price, shop], layers.Dense(4)(layers.Concatenate()([encoded, price]))
    )


def _in_transform(size):
    """One-hot vectors that `preprocessing_fn` makes."""
    price = tf.keras.Input((1,), name="price")
    shop = tf.keras.Input((size,), name="shop")
    return tf.keras.Model(
        [price, shop], layers.Dense(4)(layers.Concatenate()([price, shop]))
    )


def _frozen(size):
    """A linear model of zeros, whose table does not learn."""
    price = tf.keras.Input((1,), name="price")
    shop = tf.keras.Input((1,), name="shop", dtype=tf.int64)
    table = layers.Embedding(size + 1, 1, trainable=False)(shop + 1)
    output = layers.Dense(1, kernel_initializer="zeros")(price)
    return tf.keras.Model([price, shop], output + layers.Flatten()(table))


class _Subclassed(tf.keras.Model):
    def __init__(self, size):
        super().__init__()
        self.tables = [layers.Embedding(size + 1, 3) for _ in range(2)]
        self.dense = layers.Dense(2)

    def call(self, features):
        parts = [tf.squeeze(x(features["shop"] + 1), 1) for x in self.tables]
        return self.dense(tf.concat([*parts, features["price"]], 1))


KINDS = {
    "readme": _readme,
    "keras 3": _keras3,
    "one-hot": _one_hot,
    "multi-hot": _multi_hot,
    "one-hot in Transform": _in_transform,
    "frozen": _frozen,
    "subclassed": _Subclassed,
}


def _features(kind, ids, size):
    """One row for each id."""
    price = tf.linspace([-1.0], [1.0], len(ids))
    shop = tf.reshape(tf.constant(ids, tf.int64), [-1, 1])
    if kind == "multi-hot":
        shop = tf.RaggedTensor.from_tensor(shop)
    if kind == "one-hot in Transform":
        shop = tf.one_hot(shop[:, 0], size)
    return {"price": price, "shop": shop}


def _made(kind, entries):
    """A model, and what its rows mean."""
    model = KINDS[kind](len(entries))
    model.compile("sgd", "mse")
    ids = _ids(entries, missing=True, is_one_hot=kind == "one-hot in Transform")
    sample = _features(kind, [*range(len(entries)), -1], len(entries))
    model(sample)
    found = relations.find(model, sample, {"shop": ids})
    return model, found


def _randomized(model):
    numbers = np.random.default_rng(1)
    model.set_weights([numbers.normal(size=x.shape) for x in model.get_weights()])


def _vocabularies(seed):
    """Entries before and after: order, growth and loss."""
    numbers = random.Random(seed)
    known = numbers.sample(WORDS, numbers.randint(1, 9))
    kept = numbers.sample(known, numbers.randint(1, len(known)))
    new = [word for word in WORDS if word not in known][: numbers.randint(0, 3)]
    return known, numbers.sample(kept + new, len(kept + new))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", KINDS)
def test_each_entry_keeps_its_answer_and_each_new_one_starts_fresh(
    tmp_path, kind, seed
):
    before, after = _vocabularies(seed)
    path = str(tmp_path / "weights")
    old, meaning = _made(kind, before)
    _randomized(old)
    saved_weights.write(old, path)
    record.write(meaning, path)
    new, meaning = _made(kind, after)
    fresh = [np.array(x) for x in new.get_weights()]
    earlier_weights.read(new, path, tables=meaning)

    common = [word for word in before if word in after]
    same = []
    for model, entries in ((old, before), (new, after)):
        ids = [-1, *map(entries.index, common)]
        same.append(np.array(model(_features(kind, ids, len(entries)))))
    np.testing.assert_allclose(*same, atol=1e-6)
    _assert_fresh(
        new, meaning, fresh, [after.index(x) for x in after if x not in common]
    )


def _assert_fresh(model, meaning, fresh, ids):
    moved = 0
    for each, before, after in zip(
        meaning.relations, fresh, model.get_weights(), strict=True
    ):
        for relation in (x for x in each if x.source == "shop"):
            rows = [relation.offset + x for x in ids]
            moved += 1
            assert relation.axis == 0
            np.testing.assert_array_equal(after[rows], before[rows])
    assert moved


def test_merged_entries_with_different_rows_start_fresh(tmp_path):
    old, meaning = _made("readme", WORDS[:3])
    _randomized(old)
    path = str(tmp_path / "weights")
    saved_weights.write(old, path)
    record.write(meaning, path)
    new, _ = _made("readme", WORDS[:2])
    merged = FeatureIds(
        "merged",
        True,
        np.array(WORDS[:3], object),
        np.array([0, 0, 1]),
        np.array([-1]),
    )
    sample = _features("readme", [0, 1, -1], 2)
    tables = relations.find(new, sample, {"shop": merged})
    first = np.array(new.get_weights()[0])
    earlier_weights.read(new, path, tables=tables)
    before, after = old.get_weights()[0], new.get_weights()[0]
    np.testing.assert_array_equal(after, [before[0], first[1], before[3]])


def _warnings(tmp_path, start):
    events.open_sink(str(tmp_path / "events"))
    start()
    events.open_sink(None)
    return (tmp_path / "events").read_text()


def test_rows_of_a_model_without_a_record_start_fresh_and_a_warning_names_them(
    tmp_path,
):
    path = str(tmp_path / "weights")
    old, _ = _made("readme", WORDS[:4])
    _randomized(old)
    saved_weights.write(old, path)  # as commit fecbd19 wrote them
    new, meaning = _made("readme", WORDS[:5])
    fresh = new.get_weights()[0]
    told = _warnings(tmp_path, lambda: earlier_weights.read(new, path, tables=meaning))
    np.testing.assert_array_equal(new.get_weights()[0], fresh)
    np.testing.assert_array_equal(new.get_weights()[1], old.get_weights()[1])
    assert "starts fresh" in told and "`shop`" in told


def _buckets(boundaries):
    return {"shop": FeatureIds(repr(boundaries))}


@pytest.mark.parametrize("differ", [False, True])
def test_rows_of_buckets_start_fresh_if_their_boundaries_differ(tmp_path, differ):
    path = str(tmp_path / "weights")
    sample = _features("readme", [0, 1, 2], 3)
    old, new = (KINDS["readme"](3) for _ in range(2))
    for model in (old, new):
        model.compile("sgd", "mse")
    _randomized(old)
    saved_weights.write(old, path)
    record.write(relations.find(old, sample, _buckets([1, 2])), path)
    fresh = new.get_weights()[0]
    tables = relations.find(new, sample, _buckets([1, 2 + differ]))
    told = _warnings(tmp_path, lambda: earlier_weights.read(new, path, tables=tables))
    expected = fresh if differ else old.get_weights()[0]
    np.testing.assert_array_equal(new.get_weights()[0], expected)
    assert ("starts fresh" in told) == differ


class _Joined(tf.keras.Model):
    """Joins its features in an order that no connection of layers shows."""

    def __init__(self, names):
        super().__init__()
        self._names = names
        self.dense = layers.Dense(4, "relu")

    def call(self, features):
        return self.dense(tf.concat([features[name] for name in self._names], 1))


def test_rows_of_numbers_follow_their_features(tmp_path):
    path, order = str(tmp_path / "weights"), ["price", "size", "pixels"]
    shapes = {"price": [8, 1], "size": [8, 1], "pixels": [8, 5]}
    rows = {n: tf.random.stateless_normal(x, [1, 2]) for n, x in shapes.items()}
    rows["size"] *= [[math.nan], *[[1.0]] * 7]
    outputs = []
    for names in (order, ["size", "pixels", "price"]):
        model = _Joined(names)
        model.compile("sgd", "mse")
        model(rows)
        meaning = relations.find(model, rows, {})
        if names is order:
            saved_weights.write(model, path)
            record.write(meaning, path)
        else:
            earlier_weights.read(model, path, tables=meaning)
        outputs.append(model(rows).numpy())
    np.testing.assert_allclose(*outputs, atol=1e-6, equal_nan=True)


def test_rows_of_a_feature_that_a_model_newly_takes_start_fresh(tmp_path):
    path, rows = str(tmp_path / "weights"), tf.random.stateless_normal([8, 3], [1, 2])
    kernels = []
    for names in (["a", "b"], ["c", "b", "a"]):
        features = {name: rows[:, i : i + 1] for i, name in enumerate(names)}
        model = _Joined(names)
        model.compile("sgd", "mse")
        model(features)
        meaning = relations.find(model, features, {})
        kernels.append(model.get_weights()[0])
        if len(names) == 2:
            saved_weights.write(model, path)
            record.write(meaning, path)
        else:
            earlier_weights.read(model, path, tables=meaning)
    old, fresh = kernels
    expected = [fresh[0], old[1], old[0]]
    np.testing.assert_array_equal(model.get_weights()[0], expected)


def _two(names, package=tf.keras, rename=str):
    """Two tables of equal shape, each with a name of its own."""
    inputs = {n: package.Input((1,), name=n, dtype="int64") for n in names}
    tables = [package.layers.Embedding(10, 4, name=rename(f"of_{n}")) for n in names]
    parts = [
        package.layers.Flatten()(table(inputs[n]))
        for n, table in zip(names, tables, strict=True)
    ]
    hidden = package.layers.Concatenate()(parts)
    model = package.Model(inputs, package.layers.Dense(1, name="out")(hidden))
    model.compile("sgd", "mse")
    return model


@pytest.mark.parametrize("package", [tf.keras, keras])
def test_layers_of_equal_shape_are_paired_by_the_names_that_the_user_gave(
    tmp_path, package
):
    path = str(tmp_path / "weights")
    old, new = _two(["shop", "item"], package), _two(["item", "shop"], package)
    saved_weights.write(old, path)
    earlier_weights.read(new, path)
    for name in ("of_shop", "of_item"):
        mine, other = (x.get_layer(name).get_weights()[0] for x in (new, old))
        np.testing.assert_array_equal(mine, other)


def test_weights_of_today_are_paired_by_name_too(tmp_path):
    path = str(tmp_path / "weights")
    old, new = _two(["shop", "item"]), _two(["item", "shop"])
    saved_weights.write(old, path)
    file = Path(f"{path}.json")
    file.write_text(repr([x[:3] for x in eval(file.read_text())]).replace("'", '"'))
    earlier_weights.read(new, path)
    mine, other = (x.get_layer("of_shop").get_weights()[0] for x in (new, old))
    np.testing.assert_array_equal(mine, other)


def test_a_layer_in_the_place_of_one_with_another_name_is_rejected(tmp_path):
    path = str(tmp_path / "weights")
    saved_weights.write(_two(["shop", "item"]), path)
    other = _two(["shop", "item"], rename=lambda x: x.replace("item", "article"))
    with pytest.raises(UserError, match="of_article.* here .* of_item"):
        earlier_weights.read(other, path)


def test_the_numbers_that_keras_adds_to_names_do_not_matter(tmp_path):
    path = str(tmp_path / "weights")
    first = tf.keras.Sequential([layers.Bidirectional(layers.LSTM(2))])
    layers.LSTM(3), layers.Dense(3)
    second = tf.keras.Sequential([layers.Bidirectional(layers.LSTM(2))])
    for model in (first, second):
        model.compile("sgd", "mse")
        model(np.zeros((1, 3, 2), np.float32))
    saved_weights.write(first, path)
    earlier_weights.read(second, path)
    for mine, other in zip(second.get_weights(), first.get_weights(), strict=True):
        np.testing.assert_array_equal(mine, other)
