from __future__ import annotations

import numpy as np
import pytest

from strategos.components.errors import UserError

WHERE = "/home/me/model.py: `build_model`"
BINARY = np.array([[0.0], [1.0]] * 32, np.float32)
CLASSES = np.array([[0], [1], [2], [1]] * 16)
ONE_HOT = np.eye(3, dtype=np.float32)[CLASSES.ravel()]


@pytest.fixture(scope="module")
def tf():
    import tensorflow

    return tensorflow


@pytest.fixture
def checker():
    from strategos.components.trainer.model_checks import ModelChecker

    return ModelChecker(WHERE, "/home/me", "late")


@pytest.fixture
def features(tf):
    values = np.random.default_rng(0).normal(size=(64, 4)).astype(np.float32)
    return {"x": tf.constant(values), "word": tf.constant([["a"]] * 64)}


@pytest.fixture
def model(tf):
    def make(units, activation, loss, subclassed=False):
        dense = tf.keras.layers.Dense(units, activation)
        if subclassed:

            class Mine(tf.keras.Model):
                def __init__(self):
                    super().__init__()
                    self.dense = dense

                def call(self, inputs):
                    return self.dense(inputs["x"])

            made = Mine()
        else:
            inputs = tf.keras.Input((4,), name="x")
            made = tf.keras.Model({"x": inputs}, dense(inputs))
        made.compile("sgd", loss, metrics=["accuracy"])
        return made

    return make


@pytest.mark.parametrize(
    ("units", "activation", "loss", "labels"),
    [
        (1, "sigmoid", ("BinaryCrossentropy", {}), BINARY),
        (1, None, ("BinaryCrossentropy", {"from_logits": True}), BINARY),
        (1, "sigmoid", "binary_crossentropy", BINARY),
        (3, "softmax", ("SparseCategoricalCrossentropy", {}), CLASSES),
        (3, None, ("SparseCategoricalCrossentropy", {"from_logits": True}), CLASSES),
        (3, "softmax", ("CategoricalCrossentropy", {}), ONE_HOT),
        (1, None, "mse", BINARY),
        (1, None, ("Huber", {}), BINARY),
        (1, None, lambda y, p: p - y, BINARY),
    ],
)
def test_what_fits_passes(
    tf, checker, features, model, units, activation, loss, labels
):
    if isinstance(loss, tuple):
        loss = getattr(tf.keras.losses, loss[0])(**loss[1])
    for subclassed in (False, True):
        made = model(units, activation, loss, subclassed)
        checker.check_kind(made)
        checker.check_inputs(made, features)
        checker.check_output(made, features, tf.constant(labels))
        assert [metric.name for metric in made.metrics] == ["loss", "accuracy"]
        assert made.metrics[1].count.numpy() == 0


@pytest.mark.parametrize(
    ("units", "activation", "loss", "labels", "message"),
    [
        (1, None, ("BinaryCrossentropy", {}), BINARY, "gives logits.*from_logits=True"),
        (1, "relu", "binary_crossentropy", BINARY * 0.5, "gives logits"),
        (3, None, ("CategoricalCrossentropy", {}), ONE_HOT, "gives logits.*a softmax"),
        (
            3,
            "softmax",
            ("SparseCategoricalCrossentropy", {"from_logits": True}),
            CLASSES,
            "gives probabilities .softmax.*from_logits=True. Leave out one",
        ),
        (
            1,
            "sigmoid",
            ("BinaryCrossentropy", {"from_logits": True}),
            BINARY,
            "gives probabilities .sigmoid",
        ),
        (
            3,
            "softmax",
            "sparse_categorical_crossentropy",
            ONE_HOT,
            "has 3 values per row .one-hot.*Use CategoricalCrossentropy",
        ),
        (
            3,
            "softmax",
            ("CategoricalCrossentropy", {}),
            CLASSES,
            "3 output unit.*1 value.*Use SparseCategoricalCrossentropy",
        ),
        (
            2,
            "softmax",
            ("SparseCategoricalCrossentropy", {}),
            CLASSES,
            "2 output unit.*from 0 to 2: it needs 3 units",
        ),
        (3, None, "mse", BINARY, "3 output unit.*mean_squared_error.*End .* 1 unit"),
        (
            1,
            "sigmoid",
            ("BinaryCrossentropy", {}),
            BINARY * 2,
            "from 0 to 2, expected 0 to 1",
        ),
        (
            1,
            "sigmoid",
            ("BinaryCrossentropy", {}),
            BINARY * 0,
            "label `late` is 0 in every training example",
        ),
        (
            1,
            "softmax",
            ("CategoricalCrossentropy", {}),
            BINARY,
            "one output unit under categorical_crossentropy|Use Sparse",
        ),
    ],
)
def test_what_does_not_fit_is_refused_with_a_remedy(
    tf, checker, features, model, units, activation, loss, labels, message
):
    if isinstance(loss, tuple):
        loss = getattr(tf.keras.losses, loss[0])(**loss[1])
    with pytest.raises(UserError, match=message):
        checker.check_output(
            model(units, activation, loss), features, tf.constant(labels)
        )


def test_a_subclassed_models_logits_are_seen_by_their_values(
    tf, checker, features, model
):
    loss = tf.keras.losses.BinaryCrossentropy()
    with pytest.raises(UserError, match=r"gives logits .last activation: unknown"):
        checker.check_output(
            model(1, None, loss, subclassed=True), features, tf.constant(BINARY)
        )


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (lambda tf: None, "returned None. End it with `return model`"),
        (lambda tf: "model", "returned a builtins.str, expected a `tf.keras.Model`"),
        (
            lambda tf: tf.keras.Sequential([tf.keras.layers.Dense(1)]),
            "not compiled. Call `model.compile",
        ),
    ],
)
def test_what_is_no_compiled_model_is_refused(tf, checker, returned, message):
    with pytest.raises(UserError, match=message) as raised:
        checker.check_kind(returned(tf))
    assert str(raised.value).startswith(WHERE)


def test_a_keras_3_model_is_refused_by_name(checker):
    import keras

    with pytest.raises(UserError, match=r"returned a keras.*not the package `keras`"):
        checker.check_kind(keras.Sequential())


def _with_input(tf, shape, name, dtype=None):
    inputs = tf.keras.Input(shape, name=name, dtype=dtype)
    return tf.keras.Model({name: inputs}, inputs)


@pytest.mark.parametrize(
    ("shape", "name", "dtype", "message"),
    [
        ((4,), "y", None, "does not have: y. Transformed features: word, x"),
        ((3,), "x", None, r"`x` has shape \[batch, 3\], but .* \[batch, 4\]"),
        ((4,), "x", "string", "`x` is string, but the feature is float32"),
        ((1,), "word", None, "`word` is float32, but the feature is string"),
    ],
)
def test_inputs_that_the_data_does_not_have_are_refused(
    tf, checker, features, shape, name, dtype, message
):
    with pytest.raises(UserError, match=message):
        checker.check_inputs(_with_input(tf, shape, name, dtype), features)


def test_a_sequential_model_without_an_input_is_refused(tf, checker, features):
    made = tf.keras.Sequential([tf.keras.layers.Dense(1)])
    with pytest.raises(UserError, match=r"Begin it with `tf.keras.Input"):
        checker.check_inputs(made, features)


def test_a_string_label_is_refused(tf, checker, features, model):
    with pytest.raises(UserError, match="label `late` is a string"):
        checker.check_output(
            model(1, "sigmoid", "mse"), features, tf.constant([["a"]] * 64)
        )
