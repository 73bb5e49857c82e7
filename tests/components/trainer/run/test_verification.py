"""A model is published only if it answers and measures as the trained one did."""

from __future__ import annotations

import functools
import json
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

from strategos.components import events
from strategos.components.errors import UserError
from strategos.components.exported import SERVING_DIR
from strategos.components.trainer.launchers import local
from strategos.components.trainer.operation import Operation
from strategos.components.trainer.run import verification
from strategos.components.trainer.spec import Settings

IMPORTS = {
    "tf_keras": "import numpy as np, tensorflow as tf; keras = tf.keras\n",
    "keras": "import numpy as np, tensorflow as tf, keras\n",
}

FUNCTIONAL = """
NAMES = ["distance", "temp"]

def build_model(context):
    inputs = {name: keras.Input((1,), name=name) for name in NAMES}
    x = keras.layers.Concatenate()([inputs[name] for name in NAMES])
    BODY
    model = keras.Model(inputs, outputs)
    model.compile(keras.optimizers.Adam(0.01), LOSS, metrics=METRICS)
    return model
"""
OUTPUT = 'outputs = keras.layers.Dense(1, "sigmoid")(x)'

DRAWN = """
    drawn = np.random.default_rng().normal(size=(2, 16)).astype("float32")
    x = keras.layers.Lambda(lambda t: t @ drawn / 1000, output_shape=(16,))(x)
"""
ADAPTED = """
    sample = np.random.default_rng().normal(size=(50, 2)) * [1000, 10]
    norm = keras.layers.Normalization()
    norm.adapt(sample.astype("float32"))
    x = norm(x)
"""
EAGER = """
    class Eager(keras.layers.Layer):
        def call(self, inputs):
            return inputs if tf.executing_eagerly() else -inputs
    x = Eager()(x)
"""


@pytest.fixture(scope="module")
def train(train_only):
    """Trains, exports and compares; no process rehearses the export beside it."""
    return functools.partial(train_only, EXPORT="1")


@pytest.fixture
def spec_of_model(workload, make_spec):
    """Writes a module and makes the specification of its training."""

    def make(
        name, body="", package="tf_keras", loss='"binary_crossentropy"', **settings
    ):
        metrics = settings.pop("metrics", '["AUC", "accuracy"]')
        code = settings.pop("code", FUNCTIONAL)
        code = code.replace("BODY", f"{body}\n    {settings.pop('output', OUTPUT)}")
        code = IMPORTS[package] + code.replace("LOSS", loss).replace("METRICS", metrics)
        Path(workload.folder, f"{name}.py").write_text(code)
        defaults = {"distribution": {"strategy": "one_device"}, "epochs": 2}
        return make_spec(module=name, **{**defaults, **settings})

    return make


def _is_published(spec):
    return Path(spec.model_dir, SERVING_DIR).exists()


@pytest.mark.parametrize(
    ("package", "body"),
    [
        ("tf_keras", DRAWN),
        pytest.param("tf_keras", ADAPTED, marks=pytest.mark.long),
        pytest.param("keras", ADAPTED, marks=pytest.mark.long),
    ],
    ids=["drawn", "adapted", "adapted-keras"],
)
def test_constants_that_differ_from_build_to_build_are_not_published(
    spec_of_model, train, package, body
):
    spec = spec_of_model(f"constants_{package}", body, package)
    message = r"(?s)`predictions` differs in \d+ of 64 rows, .*np\.random"
    with pytest.raises(UserError, match=message):
        train(spec)
    assert not _is_published(spec)


@pytest.mark.long
def test_a_saved_model_that_answers_otherwise_is_not_published(spec_of_model, train):
    spec = spec_of_model("eager", EAGER)
    with pytest.raises(UserError, match="the SavedModel does not answer as the train"):
        train(spec)
    assert not _is_published(spec)


TWO = {"strategy": "mirrored", "devices": 2}
SUBCLASSED = """
class Mine(keras.Model):
    def __init__(self):
        super().__init__()
        self.hidden = [keras.layers.Dense(4, "relu") for _ in range(2)]
        self.last = keras.layers.Dense(1, "sigmoid")
        self.calls = self.add_weight(name="calls", shape=(), trainable=False)

    def build(self, shape):
        self.built = True

    def call(self, inputs, training=False):
        x = tf.concat([inputs["distance"], inputs["temp"]], 1) / 1000
        for layer in self.hidden:
            x = layer(x)
        self.calls.assign_add(1.0)
        return self.last(x)

def build_model(context):
    model = Mine()
    model.compile("adam", LOSS, metrics=METRICS)
    return model
"""
GOOD = {
    "keras": {"package": "keras"},
    "keras_on_two_replicas": {"package": "keras", "distribution": TWO},
    "several_outputs": {
        "output": 'outputs = [keras.layers.Dense(1, "sigmoid", name="a")(x), '
        'keras.layers.Dense(2, name="b")(x)]',
        "loss": '["binary_crossentropy", None]',
        "metrics": "[]",
    },
    "outputs_in_a_dict": {
        "output": 'outputs = {"late": keras.layers.Dense(1, "sigmoid")(x), '
        '"most": tf.argmax(keras.layers.Dense(3)(x), 1)}',
        "loss": '{"late": "binary_crossentropy"}',
        "metrics": "[]",
    },
    "subclassed_and_counting": {"code": SUBCLASSED},
    "dropout_in_inference": {
        "body": "x = keras.layers.Dropout(0.5)(x, training=True)",
    },
    "sum_and_own_metric_on_two_replicas": {
        "loss": 'keras.losses.BinaryCrossentropy(reduction="sum")',
        "metrics": "[lambda y, p: tf.reduce_max(p)]",
        "distribution": TWO,
        "batch_size": 90,
    },
    "penalty_and_batch_normalization_on_two_replicas": {
        "body": "x = keras.layers.BatchNormalization()(x)",
        "output": 'outputs = keras.layers.Dense(1, "sigmoid", '
        'kernel_regularizer="l2", activity_regularizer="l2")(x)',
        "distribution": TWO,
    },
    "drawn_by_the_seed": {
        "body": DRAWN.replace("np.random.default_rng()", "np.random"),
    },
    "float16": {"settings": Settings(mixed_precision="float16")},
    "bfloat16": {"settings": Settings(mixed_precision="bfloat16")},
}


# The untrained model is built otherwise than Keras builds most: it is rehearsed, too.
REHEARSED = ("keras", "subclassed_and_counting")


@pytest.mark.long
@pytest.mark.parametrize("case", GOOD)
def test_correct_models_are_published(spec_of_model, train, case, monkeypatch):
    monkeypatch.setenv("REHEARSED", "1")
    spec = spec_of_model(f"good_{case}", **GOOD[case])
    facts = local.launch(spec, Operation()) if case in REHEARSED else train(spec)
    assert _is_published(spec)
    assert facts["weights_epoch"] == 2


_NEIGHBOURS = {
    "centered": "x = keras.layers.Lambda(lambda t: t - tf.reduce_mean(t, 0))(x)",
    "wrong_axis": "x = keras.layers.Softmax(axis=0)(x / 1000)",
    "normalized_in_training": "x = keras.layers.BatchNormalization()(x, training=True)",
}


@pytest.mark.long
@pytest.mark.parametrize("case", [*_NEIGHBOURS, "batch_normalization"])
def test_an_answer_that_depends_on_other_rows_of_the_batch_is_warned_about(
    spec_of_model, train, case, tmp_path
):
    body = _NEIGHBOURS.get(case, "x = keras.layers.BatchNormalization()(x)")
    spec = spec_of_model(f"neighbours_{case}", body)
    events.open_sink(str(tmp_path / "events"))
    try:
        train(spec)
    finally:
        events.open_sink(None)
    lines = map(json.loads, (tmp_path / "events").read_text().splitlines())
    warned = [x["message"] for x in lines if "depends on the other" in str(x)]
    assert len(warned) == (case in _NEIGHBOURS)
    assert all("if 8 rows are asked for" in message for message in warned)


def test_outputs_as_long_as_the_longest_sequence_of_a_batch_are_not_compared(
    monkeypatch,
):
    warned = []
    monkeypatch.setattr(verification.events, "emit", lambda *_, **x: warned.append(x))
    rebuilt = {"tags": np.ones((64, 9, 3)), "score": np.arange(64.0)[:, None]}
    few = {
        "tags": np.zeros((8, 5, 3)),
        "score": rebuilt["score"][[*range(4), *range(60, 64)]],
    }
    verification.warn_of_neighbours(rebuilt, few, 1e-3)
    assert not warned
    verification.warn_of_neighbours(rebuilt, few | {"score": few["score"] + 1}, 1e-3)
    (event,) = warned
    assert "`score` differs in 8 of 8 rows" in event["message"]


@pytest.mark.long
def test_the_epoch_that_the_weights_are_from_is_recorded(spec_of_model, train):
    callbacks = {"best_checkpoint": {"monitor": "val_loss", "mode": "max"}}
    spec = spec_of_model("restored", epochs=4, settings=Settings(callbacks=callbacks))
    facts = train(spec)
    values = facts["history"]["val_loss"]
    epoch = int(np.argmax(values)) + 1
    assert _is_published(spec)
    assert facts["weights_epoch"] == epoch < 4
    assert facts["evaluation"]["loss"] == pytest.approx(values[epoch - 1], rel=1e-5)
    stored = json.loads(Path(spec.model_dir, "trainer.json").read_text())
    assert stored["weights_epoch"] == epoch


@pytest.mark.long
def test_averaged_weights_are_of_no_epoch(spec_of_model, train):
    code = FUNCTIONAL.replace("Adam(0.01)", "Adam(0.01, use_ema=True)")
    spec = spec_of_model("averaged", code=code)
    facts = train(spec)
    assert facts["weights_epoch"] is None
    assert _is_published(spec)


def _model(package=tf.keras, loss="binary_crossentropy", metrics=("AUC",), kind=None):
    kind = kind or package.Model
    inputs = package.Input((2,))
    outputs = package.layers.Dense(1, "sigmoid")(inputs)
    model = kind(inputs, outputs)
    model.compile("sgd", loss, metrics=list(metrics))
    rows = np.random.default_rng(1).normal(size=(40, 2)).astype("float32")
    label = (rows[:, :1] > 0).astype("float32")

    def evaluate():
        return model.evaluate(rows, label, verbose=0, return_dict=True)

    return model, evaluate


def _facts(found, replicas=1, **changed):
    values = {**found, **changed}
    history = {f"val_{name}": [0.0, value] for name, value in values.items()}
    return {"history": history, "weights_epoch": 2, "replicas": replicas}


@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize("package", [tf.keras, keras], ids=["tf_keras", "keras"])
def test_metrics_that_differ_from_those_of_fit_are_an_error(package, replicas):
    model, evaluate = _model(package)
    found = evaluate()
    verification.check_metrics(model, _facts(found, replicas), found, evaluate, 40)
    for name, value in found.items():
        facts = _facts(found, replicas, **{name: value + 0.1})
        with pytest.raises(UserError, match=f"in epoch 2 .*: {name} [0-9.]+ for"):
            verification.check_metrics(model, facts, found, evaluate, 40)


def test_what_depends_on_the_division_of_batches_is_compared_on_one_replica_only():
    def own(y, p):
        return tf.reduce_max(p)

    loss = tf.keras.losses.BinaryCrossentropy(reduction="sum")
    model, evaluate = _model(loss=loss, metrics=[own])
    found = evaluate()
    changed = {name: value + 1 for name, value in found.items()}
    verification.check_metrics(model, _facts(changed, 2), found, evaluate, 40)
    with pytest.raises(UserError, match=r"loss .*, own "):
        verification.check_metrics(model, _facts(changed, 1), found, evaluate, 40)


@pytest.mark.parametrize("package", [tf.keras, keras], ids=["tf_keras", "keras"])
def test_the_loss_of_an_output_is_compared_where_keras_averages_it_over_rows(package):
    inputs = package.Input((2,))
    heads = {x: package.layers.Dense(1, name=x)(inputs) for x in ("one", "other")}
    model = package.Model(inputs, heads)
    model.compile("sgd", dict.fromkeys(heads, "mean_squared_error"))
    rows = np.random.default_rng(1).normal(size=(40, 2)).astype("float32")
    labels = dict.fromkeys(heads, rows[:, :1] ** 3)
    data = tf.data.Dataset.from_tensor_slices((rows, labels))

    def evaluated(batch):
        return model.evaluate(data.batch(batch), verbose=0, return_dict=True)

    fit, found = evaluated(32), evaluated(25)  # as on two replicas, and in the export
    by_rows = np.isclose(fit["one_loss"], found["one_loss"], rtol=1e-4)
    assert by_rows == (package is not keras)
    verification.check_metrics(model, _facts(fit, 2), found, lambda: found, 40)
    differing = "loss" if package is keras else "loss .*one_loss .*other_loss"
    changed = {name: value + 1 for name, value in found.items()}
    with pytest.raises(UserError, match=f"in epoch 2 .*: {differing} [0-9.]+ for"):
        verification.check_metrics(model, _facts(changed, 2), found, lambda: found, 40)


def test_metrics_that_are_sampled_are_not_compared():
    class Sampled(tf.keras.Model):
        def test_step(self, data):
            return {**super().test_step(data), "sampled": 1e3 * tf.random.uniform([])}

    model, evaluate = _model(kind=Sampled)
    found = evaluate()
    facts = _facts(found, sampled=2.0)
    verification.check_metrics(model, facts, found, evaluate, 40)
    facts = _facts(found, sampled=2.0, loss=0.0)
    with pytest.raises(UserError, match=r": loss \d\.\d+ for 0\n") as raised:
        verification.check_metrics(model, facts, found, evaluate, 40)
    assert "sampled" not in str(raised.value)
