"""Models that do not accept a feature with missing values or a ragged feature."""

from __future__ import annotations

import pytest

from strategos.components.errors import UserError
from strategos.components.trainer.compat import keras3
from strategos.components.trainer.model import varying


@pytest.fixture
def features():
    import tensorflow as tf

    shop = tf.SparseTensor([[0, 0], [2, 0]], tf.constant([1, 2], tf.int64), [3, 1])
    words = tf.ragged.constant([[1, 2], [], [3]], dtype=tf.int64)
    return {"price": tf.ones([3, 1]), "shop": shop, "words": words}


def _added(keras, name, features):
    given = keras.Input((1,), name=name, dtype="int64")
    model = keras.Model([given], keras.layers.Embedding(9, 2)(given + 1))
    return lambda: model({name: features[name]}), keras3.inputs_of(model)


def _subclassed(keras, name, features):
    import tensorflow as tf

    class Model(keras.Model):
        def call(self, given):
            return tf.convert_to_tensor(given[name])

    return lambda: Model()(features), {}


def _undeclared(keras, name, features):
    """A dense layer on a feature of unknown length."""
    kind = {"shop": "sparse", "words": "ragged"}[name]
    given = keras.Input((None,), name=name, **{kind: True})
    return lambda: keras.layers.Dense(1)(given), {}


def _fill(names):
    return f"fill {', '.join(names)}"


@pytest.mark.parametrize("make", [_added, _subclassed, _undeclared])
@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("shop", "fill shop"),
        ("words", "Declare the input with `ragged=True`"),
    ],
)
def test_the_feature_is_named_with_what_to_do(make, name, remedy, features, tmp_path):
    import tensorflow as tf

    features = {name: features[name], "price": features["price"]}
    call, inputs = make(tf.keras, name, features)
    with (
        pytest.raises(UserError) as raised,
        varying.explained("model.py", str(tmp_path), features, inputs, _fill),
    ):
        call()
    text = str(raised.value)
    assert f"the model needs dense values of `{name}`" in text
    assert remedy in text and "Tensor(" not in text.replace("tf.SparseTensor ", "")
    assert len(text.splitlines()) == 1


def test_other_errors_stay_as_they_are(features, tmp_path):
    with (
        pytest.raises(ValueError, match="no such unit"),
        varying.explained("model.py", str(tmp_path), features, {}, _fill),
    ):
        raise ValueError("no such unit")


def test_an_input_that_is_declared_is_not_blamed(features, tmp_path):
    import tensorflow as tf

    inputs = {"shop": tf.keras.Input((None,), name="shop", sparse=True)}
    with (
        pytest.raises(ValueError, match="of another SparseTensor"),
        varying.explained("model.py", str(tmp_path), features, inputs, _fill),
    ):
        raise ValueError("of another SparseTensor")
