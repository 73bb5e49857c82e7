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


@pytest.fixture(params=["tf.keras", "keras"])
def package(request, tf):
    """Both Keras that a model may be made with."""
    if request.param == "tf.keras":
        return tf.keras
    import keras

    return keras


@pytest.fixture
def checker():
    from strategos.components.trainer.model_checks import ModelChecker

    return ModelChecker(WHERE, "/home/me", "late")


@pytest.fixture
def features(tf):
    values = np.random.default_rng(0).normal(size=(64, 4)).astype(np.float32)
    return {"x": tf.constant(values), "word": tf.constant([["a"]] * 64)}


@pytest.fixture
def model(package):
    def make(units, activation, loss, subclassed=False):
        # Not at random: what a relu gives must leave the range 0 to 1 every time.
        dense = package.layers.Dense(units, activation, kernel_initializer="ones")
        if subclassed:

            class Mine(package.Model):
                def __init__(self):
                    super().__init__()
                    self.dense = dense

                def call(self, inputs):
                    return self.dense(inputs["x"])

            made = Mine()
        else:
            inputs = package.Input((4,), name="x")
            made = package.Model({"x": inputs}, dense(inputs))
        made.compile("sgd", loss, metrics=["accuracy"])
        return made

    return make


def _check_output(checker, model, features, labels):
    import tensorflow as tf

    strategy = tf.distribute.get_strategy()
    checker.check_output(model, features, tf.constant(labels), strategy)


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
    package, checker, features, model, units, activation, loss, labels
):
    if isinstance(loss, tuple):
        loss = getattr(package.losses, loss[0])(**loss[1])
    for subclassed in (False, True):
        made = model(units, activation, loss, subclassed)
        checker.check_kind(made)
        checker.check_inputs(made, features)
        _check_output(checker, made, features, labels)
        counted = [v for metric in made.metrics for v in metric.variables]
        assert [v.numpy() for v in counted] == [0] * 4  # of loss and accuracy


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
    package, checker, features, model, units, activation, loss, labels, message
):
    if isinstance(loss, tuple):
        loss = getattr(package.losses, loss[0])(**loss[1])
    with pytest.raises(UserError, match=message):
        _check_output(checker, model(units, activation, loss), features, labels)


def test_a_subclassed_models_logits_are_seen_by_their_values(
    package, checker, features, model
):
    loss = package.losses.BinaryCrossentropy()
    with pytest.raises(UserError, match=r"gives logits .last activation: unknown"):
        made = model(1, None, loss, subclassed=True)
        _check_output(checker, made, features, BINARY)


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


def _with_input(keras, shape, name, dtype=None):
    inputs = keras.Input(shape, name=name, dtype=dtype)
    return keras.Model({name: inputs}, keras.layers.Identity()(inputs))


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
    package, checker, features, shape, name, dtype, message
):
    with pytest.raises(UserError, match=message):
        checker.check_inputs(_with_input(package, shape, name, dtype), features)


def test_a_sequential_model_without_an_input_is_refused(package, checker, features):
    made = package.Sequential([package.layers.Dense(1)])
    with pytest.raises(UserError, match=r"Begin it with `keras.Input"):
        checker.check_inputs(made, features)


def test_a_string_label_is_refused(checker, features, model):
    with pytest.raises(UserError, match="label `late` is a string"):
        made = model(1, "sigmoid", "mse")
        _check_output(checker, made, features, [["a"]] * 64)
