"""Which rows belong to which ids, in models of many kinds."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from strategos.components.trainer.model.tables import relations
from strategos.components.trainer.model.tables.relations import UNKNOWN, Relation
from strategos.components.transformed.feature_ids import FeatureIds

layers = tf.keras.layers
ENTRIES = np.array([b"a", b"b", b"c", b"d", b"e"], object)
ROWS = {
    "shop": tf.constant([[0], [3], [4], [-1]], tf.int64),
    "item": tf.constant([[1], [1], [2], [3]], tf.int64),
    "word": tf.constant([["x"], ["y"], ["?"], ["x"]]),
}


class _Model(tf.keras.Model):
    """A model with one table of 12 rows, called by a function."""

    def __init__(self, function):
        super().__init__()
        self.table = self.add_weight("table", [12, 3])
        self._function = function
        self.extra = layers.StringLookup(vocabulary=["y", "x"])

    def call(self, features):
        return self._function(self, features)


def _shifted(model, features):
    return tf.gather(model.table, features["shop"][:, 0] + 2)


def _numbered(model, features):
    return tf.one_hot(features["shop"][:, 0] + 1, 12) @ model.table


def _in_a_function(model, features):
    return tf.function(_shifted)(model, features)


def _in_a_loop(model, features):
    total = tf.zeros([4, 3])
    for _ in tf.range(2):
        total += tf.gather(model.table, features["shop"][:, 0] + 1)
    return total


def _crossed(model, features):
    return tf.gather(model.table, features["shop"][:, 0] * 2 + features["item"][:, 0])


def _hashed(model, features):
    texts = tf.strings.as_string(features["shop"][:, 0])
    return tf.gather(model.table, tf.strings.to_hash_bucket_fast(texts, 12))


def _modulo(model, features):
    return tf.gather(model.table, (features["shop"][:, 0] + 1) % 3)


def _looked_up(model, features):
    return tf.gather(model.table, model.extra(features["word"])[:, 0])


def _both(model, features):
    return _shifted(model, features) + tf.gather(model.table, features["item"][:, 0])


def _as_numbers(model, features):
    return tf.tile(tf.cast(features["shop"], tf.float32), [1, 12]) @ model.table


def _unused(model, features):
    return tf.reduce_sum(model.table) + tf.cast(features["shop"], tf.float32)


SHOP = {
    _shifted: [Relation("shop", 0, 2, -1, 4)],
    _numbered: [Relation("shop", 0, 1, -1, 4)],
    _in_a_function: [Relation("shop", 0, 2, -1, 4)],
    _in_a_loop: [Relation("shop", UNKNOWN)],
    _crossed: [Relation("item", UNKNOWN), Relation("shop", UNKNOWN)],
    _hashed: [Relation("shop", UNKNOWN)],
    _modulo: [Relation("shop", UNKNOWN)],
    _looked_up: [Relation("look-up 1 in the model, of word", 0, 0, 1, 2)],
    _both: [Relation("item", UNKNOWN), Relation("shop", 0, 2, -1, 4)],
    _as_numbers: [],
    _unused: [],
}


@pytest.mark.parametrize("function", SHOP, ids=lambda x: x.__name__)
def test_rows_are_assigned_to_ids_or_known_to_be_unassignable(function):
    model = _Model(function)
    model.compile("sgd", "mse")
    model(ROWS)
    ids = {
        "shop": FeatureIds("1", True, ENTRIES, np.arange(5), np.array([-1])),
        "item": FeatureIds("2"),
        "word": FeatureIds("3"),
    }
    before = model.table.numpy()
    found = relations.find(model, ROWS, ids)
    assert found.relations == [SHOP[function]]
    np.testing.assert_array_equal(model.table.numpy(), before)
