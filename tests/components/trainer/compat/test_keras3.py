"""Models made with the package `keras`; `tf.keras` is tf-keras here."""

from __future__ import annotations

import dataclasses
import functools
import json
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from strategos.components.errors import UserError
from strategos.components.trainer.launchers import local
from strategos.components.trainer.operation import Operation
from strategos.components.trainer.spec import Settings

EPOCHS = 3

MODEL = """
import os
import signal
import keras

def build_model(context):
    inputs = context.inputs(keras)
    hidden = keras.layers.Conv2D(8, 3, activation="relu")(inputs["image"])
    hidden = keras.layers.Flatten()(hidden)
    outputs = keras.layers.Dense(10, activation="softmax")(hidden)
    model = keras.Model(inputs, outputs)
    model.compile(
        keras.optimizers.SGD(context.hyperparameters["learning_rate"], momentum=0.9),
        "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model

class Seen(keras.callbacks.Callback):
    epochs = 0
    def __init__(self, dies_at):
        super().__init__()
        self.dies_at = dies_at
    def on_train_batch_end(self, batch, logs=None):
        if self.epochs == 1 and batch == self.dies_at and not os.path.exists("died"):
            open("died", "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
    def on_epoch_end(self, epoch, logs=None):
        self.epochs += 1
        print("seen", self.epochs, "epochs, accuracy", logs["val_accuracy"])

def callbacks(context):
    return [Seen(context.hyperparameters["dies_at"])]
"""


@pytest.fixture(scope="module")
def train(digits, spec_of, train_only):
    """Trains digits by MODEL: `train(**settings)`."""
    digits.write_module("keras3_model", MODEL)

    def launch(dies_at=None, by=train_only, **settings):
        spec = spec_of(
            digits,
            module="keras3_model",
            label="label",
            batch_size=32,
            epochs=EPOCHS,
            hyperparameters={"learning_rate": 0.05, "dies_at": dies_at},
            **settings,
        )
        return spec, by(spec, Operation(checkpoint_every="15 steps"))

    return launch


@pytest.fixture(scope="module")
def alone(train):
    callbacks = {
        "early_stopping": {"monitor": "val_loss", "patience": 5},
        "csv": True,
    }
    settings = Settings(callbacks=callbacks, last_batch="drop")
    device = {"strategy": "one_device"}
    return train(by=local.launch, distribution=device, settings=settings)


def test_it_trains_evaluates_and_answers_raw_examples(alone, digits):
    spec, facts = alone
    assert facts["steps"] == EPOCHS * (facts["rows"] // 32)
    assert facts["history"]["val_accuracy"][-1] > 0.9
    for name, value in facts["evaluation"].items():
        assert value == pytest.approx(facts["history"][f"val_{name}"][-1], abs=1e-6)
    served = tf.saved_model.load(f"{spec.model_dir}/Format-Serving")
    raw = next(iter(tf.data.TFRecordDataset(digits.raw("eval"), "GZIP").batch(500)))
    answer = served.signatures["serving_default"](raw)["predictions"]
    label = served.signatures["transform_features"](raw)["label"][:, 0]
    right = tf.reduce_mean(tf.cast(tf.argmax(answer, 1) == label, tf.float32))
    assert float(right) == pytest.approx(facts["evaluation"]["accuracy"], abs=1e-6)


@pytest.mark.long
def test_two_replicas_give_the_curve_of_one(alone, train, capfd):
    settings = alone[0].settings
    _, facts = train(
        distribution={"strategy": "mirrored", "devices": 2}, settings=settings
    )
    assert facts["replicas"] == 2
    for name, values in alone[1]["history"].items():
        assert facts["history"][name] == pytest.approx(values, abs=1e-5), name
    said = capfd.readouterr().err
    assert f"seen {EPOCHS} epochs, accuracy" in said


@pytest.mark.long
def test_it_goes_on_from_its_checkpoint_with_equal_digits(alone, train):
    spec, undisturbed = alone
    distribution = {"strategy": "one_device"}
    _, facts = train(20, distribution=distribution, settings=spec.settings)
    assert facts["restarts"] == 1
    assert facts["history"] == undisturbed["history"]


RANDOM = """
import os
import signal
import keras

class Noise(keras.layers.Layer):
    # Random numbers of the process, not of a layer.
    def call(self, x, training=None):
        return x + keras.random.normal((16,)) if training else x

class Tower(keras.layers.Layer):
    def __init__(self):
        super().__init__()
        self.blocks = [
            keras.layers.Dense(16, activation="relu"),
            keras.layers.BatchNormalization(synchronized=True),
            keras.layers.Dropout(0.3),
            keras.layers.GaussianNoise(0.1)]
    def call(self, x, training=None):
        for layer in self.blocks:
            x = layer(x, training=training)
        return x

def build_model(context):
    inputs = context.inputs(keras)
    x = Tower()(keras.layers.Flatten()(inputs["image"]))
    if context.replicas == 1:
        x = Noise()(x)
    model = keras.Model(inputs, keras.layers.Dense(10, activation="softmax")(x))
    adam = keras.optimizers.Adam(0.01)
    model.compile(adam, "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model

class Dies(keras.callbacks.Callback):
    def __init__(self, mark):
        super().__init__()
        self.mark = mark
    def on_train_batch_end(self, batch, logs=None):
        if self.model.optimizer.iterations == 7 and os.path.exists(self.mark):
            os.remove(self.mark)
            os.kill(os.getpid(), signal.SIGKILL)

def callbacks(context):
    return [Dies(context.hyperparameters["mark"])]
"""


@pytest.mark.long
@pytest.mark.parametrize("devices", [1, pytest.param(2, marks=pytest.mark.long)])
def test_layers_in_a_list_and_random_numbers_resume_and_are_exported(
    digits, spec_of, train_only, devices, tmp_path
):
    mark = tmp_path / "alive"
    digits.write_module("random_model", RANDOM)
    strategy = "mirrored" if devices == 2 else "one_device"
    spec = functools.partial(
        spec_of,
        digits,
        module="random_model",
        label="label",
        batch_size=256,
        epochs=2,
        hyperparameters={"mark": str(mark)},
        distribution={"strategy": strategy, "devices": devices},
        settings=Settings(last_batch="drop"),
    )
    operation = Operation(checkpoint_every="3 steps")
    exported, killed = spec(), spec()
    undisturbed = local.launch(exported, operation)
    for name, value in undisturbed["evaluation"].items():
        last = undisturbed["history"][f"val_{name}"][-1]
        assert value == pytest.approx(last, abs=1e-6)
    mark.touch()
    resumed = train_only(killed, operation)
    assert resumed["restarts"] == 1
    for name, values in undisturbed["history"].items():
        # Two replicas count apart: the means of an epoch are rounded in another order.
        tolerance = 0 if name.startswith("val_") else 3e-7
        assert resumed["history"][name] == pytest.approx(values, abs=tolerance), name
    ours, theirs = weights_of(killed), weights_of(exported)
    assert ours.keys() == theirs.keys() != set()
    for name, value in ours.items():
        np.testing.assert_array_equal(value, theirs[name], err_msg=name)


def weights_of(spec):
    reader = tf.train.load_checkpoint(f"{spec.model_dir}/Format-Weights/weights")
    names = reader.get_variable_to_shape_map()
    return {x: reader.get_tensor(x) for x in names if "OBJECT_GRAPH" not in x}


@pytest.mark.long
def test_several_steps_per_execution_end_with_the_epoch(alone, train):
    spec, undisturbed = alone
    settings = dataclasses.replace(spec.settings, steps_per_execution=7)
    _, facts = train(distribution={"strategy": "one_device"}, settings=settings)
    assert facts["steps"] == undisturbed["steps"]
    for name, values in undisturbed["history"].items():
        assert facts["history"][name] == pytest.approx(values, abs=1e-5), name


@pytest.mark.long
def test_several_steps_per_execution_measure_each_evaluation_row_once():
    import keras

    from strategos.components.trainer.compat import keras3

    rows = np.random.default_rng(1).normal(size=(53, 2)).astype("float32")
    data = tf.data.Dataset.from_tensor_slices((rows, rows[:, :1] > 0))
    inputs = keras.Input((2,))
    model = keras.Model(inputs, keras.layers.Dense(1, activation="sigmoid")(inputs))
    model.compile("sgd", "binary_crossentropy", metrics=["accuracy", "AUC"])
    keras3.compile_as(model, Settings(steps_per_execution=5))
    evaluation = data.skip(40).batch(2)  # 7 batches, the last one has a row
    history = model.fit(
        data.take(40).batch(4), validation_data=evaluation, verbose=0
    ).history
    plain = keras.models.clone_model(model)
    plain.compile("sgd", "binary_crossentropy", metrics=["accuracy", "AUC"])
    plain.set_weights(model.get_weights())
    for name, value in plain.evaluate(evaluation, verbose=0, return_dict=True).items():
        assert history[f"val_{name}"] == [pytest.approx(value, abs=1e-6)], name


@pytest.mark.long
def test_it_trains_in_float16_and_is_exported(train):
    settings = Settings(mixed_precision="float16")
    device = {"strategy": "one_device"}
    _, facts = train(by=local.launch, distribution=device, settings=settings)
    assert facts["evaluation"]["accuracy"] > 0.85


@pytest.mark.long
def test_two_replicas_train_in_bfloat16(train):
    settings = Settings(mixed_precision="bfloat16")
    _, facts = train(
        distribution={"strategy": "mirrored", "devices": 2}, settings=settings
    )
    assert facts["history"]["val_accuracy"][-1] > 0.85


ONE_INPUT = """
import keras

def build_model(context):
    hour = context.inputs(keras)["hour"]  # of several features, not the first
    scaled = keras.layers.Rescaling(1 / 24)(hour)
    model = keras.Model({"hour": hour}, keras.layers.Dense(1, "sigmoid")(scaled))
    model.compile("adam", "binary_crossentropy", metrics=["accuracy"])
    return model
"""


@pytest.mark.long
def test_a_model_gets_the_features_that_it_names(workload, spec_of):
    workload.write_module("one_input", ONE_INPUT)
    spec = spec_of(workload, module="one_input", label="late", batch_size=50, epochs=1)
    facts = local.launch(spec, Operation())
    serving = Path(spec.model_dir, "Format-Serving")
    described = json.loads((serving / "assets.extra" / "serving.json").read_text())
    assert described["features"] == ["hour"] and described["from_logits"] is False
    served = tf.saved_model.load(str(serving))
    raw = next(iter(tf.data.TFRecordDataset(workload.raw("eval"), "GZIP").batch(300)))
    answer = served.signatures["serving_default"](raw)["predictions"]
    label = served.signatures["transform_features"](raw)["late"]
    loss = tf.keras.losses.BinaryCrossentropy()(label, answer)
    assert float(loss) == pytest.approx(facts["evaluation"]["loss"], abs=1e-6)


def test_a_tpu_is_rejected_with_the_remedy(alone):
    from strategos.components.trainer.run import session

    message = (
        r"keras3_model.py: `build_model`: returned a Keras 3 model .*does not train "
        r"under tpu, only under one_device, .*and parameter_server. "
        r"Build it with tf-keras"
    )
    with pytest.raises(UserError, match=message):
        session.untrained(alone[0], "tpu", 2)
