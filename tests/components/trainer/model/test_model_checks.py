from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from strategos.components import events
from strategos.components.errors import UserError
from strategos.components.targets.label import Label

WHERE = "/home/me/model.py: `build_model`"
BINARY = np.array([[0.0], [1.0]] * 32, np.float32)
CLASSES = np.array([[0], [1], [2], [1]] * 16)
ONE_HOT = np.eye(3, dtype=np.float32)[CLASSES.ravel()]
SHARES = np.full((64, 3), 1 / 3, np.float32)


@pytest.fixture(scope="module")
def tf():
    import tensorflow

    return tensorflow


@pytest.fixture(params=["tf.keras", "keras"])
def package(request, tf):
    """Both packages of Keras that a model may use."""
    if request.param == "tf.keras":
        return tf.keras
    import keras

    return keras


@pytest.fixture
def checker():
    from strategos.components.trainer.model.model_checks import ModelChecker

    return ModelChecker(WHERE, "/home/me", Label.of("late"))


@pytest.fixture
def features(tf):
    values = np.random.default_rng(0).normal(size=(64, 4)).astype(np.float32)
    return {"x": tf.constant(values), "word": tf.constant([["a"]] * 64)}


@pytest.fixture
def model(package):
    def make(units, activation, loss, subclassed=False):
        # Not random: the output of a relu must leave the range 0 to 1 every time.
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


def _check_output(checker, model, features, labels, complete=True):
    import tensorflow as tf

    labels = tf.constant(labels)
    output = checker.outputs(model, features)
    checker.check_output(model, features, output, labels, complete=complete)


@pytest.mark.parametrize(
    ("units", "activation", "loss", "labels"),
    [
        (1, "sigmoid", ("BinaryCrossentropy", {}), BINARY),
        (1, None, ("BinaryCrossentropy", {"from_logits": True}), BINARY),
        (1, "sigmoid", "binary_crossentropy", BINARY),
        (3, "softmax", ("SparseCategoricalCrossentropy", {}), CLASSES),
        (3, None, ("SparseCategoricalCrossentropy", {"from_logits": True}), CLASSES),
        (3, "softmax", ("CategoricalCrossentropy", {}), ONE_HOT),
        (3, "softmax", ("CategoricalCrossentropy", {}), SHARES),
        (1, None, "mse", BINARY),
        (1, None, ("Huber", {}), BINARY),
        (1, None, lambda y, p: p - y, BINARY),
    ],
)
def test_a_fitting_model_passes(
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
            "2 output unit.*from 0 to 2 in the training.* at least 3 units",
        ),
        (3, None, "mse", BINARY, "3 output unit.*mean_squared_error.*End .* 1 unit"),
        (
            1,
            "sigmoid",
            ("BinaryCrossentropy", {}),
            BINARY * 2,
            "from 0 to 2 in the training split: expected 0 to 1",
        ),
        (
            1,
            "sigmoid",
            ("BinaryCrossentropy", {}),
            BINARY * 0,
            "label: `late` is 0 in every training example",
        ),
        (
            1,
            "softmax",
            ("CategoricalCrossentropy", {}),
            BINARY,
            "one output unit under categorical_crossentropy|Use Sparse",
        ),
        (
            3,
            "softmax",
            ("CategoricalCrossentropy", {}),
            np.maximum(ONE_HOT, [0, 0, 1]),
            "in 48 of 64 rows of the training .*`late` do not add up to 1; .* has 2",
        ),
    ],
)
def test_a_misfit_is_rejected_with_a_remedy(
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
def test_anything_but_a_compiled_model_is_rejected(tf, checker, returned, message):
    with pytest.raises(UserError, match=message) as raised:
        checker.check_kind(returned(tf))
    assert str(raised.value).startswith(WHERE)


@pytest.mark.parametrize("name", ["fit", "evaluate"])
def test_a_fit_of_the_models_own_is_rejected_and_a_warning_for_keras_3(
    package, tf, checker, name, monkeypatch
):
    def own(self, *arguments, **words):
        return None

    kind = type("Own", (package.Sequential,), {name: own})
    model, warnings = kind([package.layers.Dense(1)]), []
    model.compile("sgd", "mse")
    monkeypatch.setattr(events, "emit", lambda _, message: warnings.append(message))
    if package is tf.keras:
        with pytest.raises(UserError, match=f"overrides `{name}`, .*run_fn"):
            checker.check_kind(model)
    else:
        checker.check_kind(model)
        assert f"overrides `{name}`, which is not called" in warnings[0]


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
def test_inputs_missing_in_the_data_are_rejected(
    package, checker, features, shape, name, dtype, message
):
    with pytest.raises(UserError, match=message):
        checker.check_inputs(_with_input(package, shape, name, dtype), features)


def test_a_sequential_model_without_an_input_is_rejected(package, checker, features):
    made = package.Sequential([package.layers.Dense(1)])
    with pytest.raises(UserError, match=r"Begin it with `keras.Input"):
        checker.check_inputs(made, features)


def test_a_string_label_is_rejected(checker, features, model):
    with pytest.raises(UserError, match="label: `late` is a string"):
        made = model(1, "sigmoid", "mse")
        _check_output(checker, made, features, [["a"]] * 64)


@pytest.mark.parametrize("labels", [BINARY * 0, BINARY * 0 + 1])
def test_a_sample_of_one_class_is_not_rejected(
    package, checker, features, model, labels
):
    made = model(1, "sigmoid", package.losses.BinaryCrossentropy())
    _check_output(checker, made, features, labels, complete=False)
    made = model(3, "softmax", package.losses.SparseCategoricalCrossentropy())
    _check_output(checker, made, features, labels, complete=False)


@pytest.fixture
def sorted_split(tf, tmp_path):
    """100 rows whose first 80 labels are 0: `sorted_split(cache_limit)`."""
    from strategos.components.trainer.data import dataset

    file = str(tmp_path / "rows")
    with tf.io.TFRecordWriter(file) as writer:
        for row in range(100):
            example = tf.train.Example()
            example.features.feature["x"].float_list.value.extend([row] * 4)
            example.features.feature["late"].int64_list.value.append(row >= 80)
            writer.write(example.SerializeToString())
    spec = {
        "x": tf.io.FixedLenFeature([4], tf.float32),
        "late": tf.io.FixedLenFeature([], tf.int64),
    }
    return lambda limit: dataset.read([file], spec, "late", limit)


def test_a_label_must_vary_only_where_all_of_it_is_at_hand(
    tf, workload, make_spec, model, sorted_split
):
    from strategos.components.trainer.data.file_shards import FileShare
    from strategos.components.trainer.model.user_module import UserModule

    code = UserModule(make_spec())
    made = model(1, "sigmoid", "binary_crossentropy")
    streamed, whole = sorted_split(0), sorted_split(1 << 20)
    assert streamed.columns is None
    code.check(made, code.outputs(made, streamed), streamed)
    outputs = code.outputs(made, whole)
    code.check(made, outputs, whole)
    columns = tf.nest.map_structure(lambda matrix: matrix[:80], whole.columns)
    zeros = dataclasses.replace(whole, rows=80, columns=columns)
    share = FileShare(zeros, pipelines=2, fewest=80, total=180)
    code.check(made, outputs, share)
    with pytest.raises(UserError, match="`late` is 0 in every training example"):
        code.check(made, outputs, zeros)


def test_a_class_that_only_the_evaluation_split_has_is_named_before_training(
    tf, tmp_path, make_spec, model, sorted_split
):
    from strategos.components.trainer.model.user_module import UserModule
    from strategos.components.transformed import unseen_labels

    spec = dataclasses.replace(make_spec(), transform_graph=str(tmp_path))
    unseen_labels.write(str(tmp_path), {"eval": "'zebra' (data/2.csv: line 57)"})
    code, whole = UserModule(spec), sorted_split(1 << 20)
    made = model(2, "softmax", "sparse_categorical_crossentropy")
    outputs = code.outputs(made, whole)
    code.check(made, outputs, whole, whole)
    for change, message in (
        (-1, r"`late` is -1 in 80 of 100 rows of the evaluation split.*\n.*num_oov"),
        (1, r"2 output unit.*from 1 to 2 in the evaluation split.* at least 3 units"),
    ):
        columns = tf.nest.map_structure(lambda matrix: matrix + change, whole.columns)  # noqa: B023
        later = dataclasses.replace(whole, columns=columns)
        with pytest.raises(UserError, match=message) as raised:
            code.check(made, outputs, whole, later)
        assert "Training has no 'zebra' (data/2.csv: line 57)" in str(raised.value)


def test_an_output_without_an_axis_for_units_is_one_unit(package, checker, features):
    inputs = package.Input((4,), name="x")
    made = package.Model(
        {"x": inputs}, package.layers.Reshape(())(package.layers.Dense(1)(inputs))
    )
    made.compile("sgd", "mse")
    _check_output(checker, made, features, BINARY)
    with pytest.raises(UserError, match="has 1 output unit.* 3 value"):
        _check_output(checker, made, features, ONE_HOT)


@pytest.mark.parametrize(("activation", "is_right"), [("softmax", True), (None, False)])
def test_a_cast_at_the_end_is_looked_through(
    package, checker, features, activation, is_right
):
    inputs = package.Input((4,), name="x")
    hidden = package.layers.Dense(3, activation, dtype="mixed_float16")(inputs)
    outputs = package.layers.Activation("linear", dtype="float32")(hidden)
    made = package.Model({"x": inputs}, outputs)
    made.compile("sgd", "sparse_categorical_crossentropy")
    if is_right:
        _check_output(checker, made, features, CLASSES)
    else:
        with pytest.raises(UserError, match=r"gives logits .last activation: linear"):
            _check_output(checker, made, features, CLASSES)


def test_a_metric_of_several_values_is_rejected_by_name(package, checker, features):
    def made(**arguments):
        inputs = package.Input((4,), name="x")
        outputs = package.layers.Dense(3, "softmax")(inputs)
        model = package.Model({"x": inputs}, outputs)
        metric = package.metrics.F1Score(**arguments)
        model.compile("sgd", "categorical_crossentropy", metrics=[metric])
        return model

    _check_output(checker, made(average="macro"), features, ONE_HOT)
    with pytest.raises(UserError, match="`f1_score` gives 3 values.*average='macro'"):
        _check_output(checker, made(), features, ONE_HOT)


def test_checks_before_training_leave_the_state_of_layers_alone(
    tf, package, checker, features
):
    class Counting(package.layers.Layer):
        def build(self, shape):
            self.calls = self.add_weight(
                name="calls", shape=(), initializer="zeros", trainable=False
            )

        def call(self, x):
            self.calls.assign(self.calls + 1.0)
            return x

    counting = Counting()

    class Mine(package.Model):
        def __init__(self):
            super().__init__()
            self.counting, self.dense = counting, package.layers.Dense(1, "sigmoid")

        def call(self, inputs):
            return self.dense(self.counting(inputs["x"]))

    made = Mine()
    made.compile("sgd", "binary_crossentropy", metrics=["accuracy"])
    _check_output(checker, made, features, BINARY)
    assert float(counting.calls.numpy()) == 0
    assert len(made.weights) == 3
    made(features)
    assert float(counting.calls.numpy()) == 1


def _with_own_variable(package, tf, trainable=True):
    """A layer with a variable that TensorFlow tracks, and Keras does not train."""
    kept = tf.Variable(2.0, trainable=trainable, name="kept")

    class Scaled(package.layers.Layer):
        def call(self, x):
            return x * kept

    return Scaled()


def _of_other_package(package, tf):
    import keras

    made = keras if package is tf.keras else tf.keras
    return made.layers.Dense(4, name="kept")


@pytest.mark.parametrize("make", [_with_own_variable, _of_other_package])
def test_a_variable_that_would_never_train_is_rejected(
    checker, package, tf, features, make
):
    if make is _of_other_package and package is not tf.keras:
        pytest.skip("checked by kind, before")
    inputs = package.Input((4,), name="x")
    model = package.Model(inputs, package.layers.Dense(1)(make(package, tf)(inputs)))
    model.compile("sgd", "mse")
    with pytest.raises(UserError, match=r"variable `kept.*not a weight.*`add_weight`"):
        checker.outputs(model, features)


@pytest.mark.parametrize("eager", [False, True])
def test_a_variable_that_stays_as_it_is_may_be_elsewhere(
    checker, package, tf, features, eager
):
    inputs = package.Input((4,), name="x")
    hidden = _with_own_variable(package, tf, trainable=False)(inputs)
    model = package.Model(inputs, package.layers.Dense(1)(hidden))
    model.compile("sgd", "mse", run_eagerly=eager)
    assert checker.outputs(model, features).shape == (64, 1)


def _with_held_object(package, tf):
    """A layer with an object of TensorFlow that Keras does not look into."""
    held = tf.train.Checkpoint(value=tf.Variable(2.0, name="kept"))

    class Scaled(package.layers.Layer):
        def __init__(self):
            super().__init__()
            self.held = held

        def call(self, x):
            return x * self.held.value

    return Scaled()


def test_a_variable_of_an_object_in_an_attribute_is_warned_about(
    checker, package, tf, features, monkeypatch
):
    from strategos.components.trainer.model import model_checks

    warned = []
    monkeypatch.setattr(model_checks.events, "emit", lambda *_, **x: warned.append(x))
    inputs = package.Input((4,), name="x")
    hidden = _with_held_object(package, tf)(inputs)
    model = package.Model(inputs, package.layers.Dense(1)(hidden))
    model.compile("sgd", "mse")
    assert checker.outputs(model, features).shape == (64, 1)
    (event,) = warned
    assert "variable `kept" in event["message"] and "never train" in event["message"]


def test_own_steps_may_train_other_variables(checker, package, tf, features):
    class Mine(package.Model):
        def train_step(self, data):
            return {}

    inputs = package.Input((4,), name="x")
    model = Mine(inputs, _with_own_variable(package, tf)(inputs))
    model.compile("sgd", "mse")
    assert checker.outputs(model, features).shape == (64, 4)
