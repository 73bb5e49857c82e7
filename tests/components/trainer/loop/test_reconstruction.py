"""A model of features to reconstruct trains as Keras's `fit` on the features as `y`."""

from __future__ import annotations

import dataclasses
import json

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from strategos.components.errors import UserError
from strategos.components.trainer.model import workload as inputs
from strategos.components.user_code import modules

EPOCHS, SIZE = 2, 111
PACKAGES = {2: tf_keras, 3: keras}
FEATURES = ("temp", "part", "distance")
LABEL = json.dumps({"reconstruct": FEATURES})

MODEL = """
def build_model(context):
    features = context.inputs(keras)
    assert {*context.target.columns} < {*features} and context.weight not in features
    assert context.label_spec.shape == [6], context.label_spec
    taken = {name: features[name] for name in context.target.columns}
    joined = keras.layers.Concatenate()([*taken.values()])
    hidden = keras.layers.Dense(3, "tanh")(joined)
    model = keras.Model(taken, keras.layers.Dense(6)(hidden))
    model.compile(keras.optimizers.Adam(1e-2), "mse", weighted_metrics=["mae"])
    return model
"""

LOOP = """
import tensorflow as tf

def run_fn(context):
    model = context.model

    @tf.function(reduce_retracing=True)
    def step(features, wanted, weight):
        taken = {name: features[name] for name in context.target.columns}
        with tf.GradientTape() as tape:
            answer = model(taken, training=True)
            loss = model.compute_loss(taken, wanted, answer, weight)
        gradients = tape.gradient(loss, model.trainable_variables)
        model.optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        return loss

    for _ in context.loop.epochs():
        for batch in context.loop.steps():
            context.loop.report(loss=step(*batch))
        context.loop.end_epoch()
"""


@pytest.fixture(scope="module")
def make(workload_in, write_flights, transform, spec_of, tmp_path_factory):
    """Makes the spec of a training of flights on three of their features."""
    made = workload_in(tmp_path_factory.mktemp("features"), "late")
    with open(f"{made.folder}/preprocessing.py", "a") as file:
        file.write(
            "\n\n_one_label = preprocessing_fn\n\n\ndef preprocessing_fn(inputs):\n"
            "    made = _one_label(inputs)\n"
            '    part = tf.cast(made["hour"], tf.int64)[:, 0] // 6 % 4\n'
            '    text = tf.as_string(made["hour"])\n'
            '    few = tf.sparse.from_dense(tf.cast(made["hour"] > 12, tf.int64))\n'
            '    made |= {"part": tf.one_hot(part, 4), "text": text, "few": few}\n'
            "    return made\n"
        )
    write_flights(made, 1000, 300)
    transform(made)
    for version, package in PACKAGES.items():
        text = f"import {package.__name__} as keras\n{MODEL}"
        made.write_module(f"features{version}", text)
    narrow = f"import tf_keras as keras\n{MODEL}".replace("Dense(6)", "Dense(5)")
    made.write_module("narrow", narrow)
    made.write_module("loop", f"import tf_keras as keras\n{MODEL}{LOOP}")

    def make(distribution, version=2, **changes):
        given = {"module": f"features{version}", "label": LABEL, "weight": "hour"}
        settings = {"batch_size": SIZE, "epochs": EPOCHS, "distribution": distribution}
        return spec_of(made, **{**given, **settings, **changes})

    return make


def plain(spec, package):
    """History and weights of plain Keras on the same batches."""
    single = dataclasses.replace(spec, label="late", weight="")
    train, evaluated = (
        inputs.split(single, files) for files in (spec.train_files, spec.eval_files)
    )

    def joined(features, late):
        taken = {name: features[name] for name in FEATURES}
        wanted = tf.concat([*taken.values()], axis=1)
        return taken, wanted, tf.cast(features["hour"][:, 0], tf.float32)

    package.utils.set_random_seed(spec.seed)
    model = modules.load(spec.folder, spec.module).build_model(
        inputs.context(spec, train.rows, 1)
    )
    history = model.fit(
        train.shuffled(SIZE, seed=spec.seed, epochs=None).map(joined),
        epochs=EPOCHS,
        steps_per_epoch=train.steps(SIZE),
        validation_data=evaluated.ordered(SIZE).map(joined),
        verbose=0,
    ).history
    return history, model.get_weights()


@pytest.mark.parametrize(
    ("strategy", "version"),
    [
        pytest.param("one_device", 2, marks=pytest.mark.long),
        pytest.param("one_device", 3, marks=pytest.mark.faults),
        pytest.param("mirrored", 2, marks=pytest.mark.faults),
        pytest.param("mirrored", 3, marks=pytest.mark.faults),
        pytest.param("multi_worker_mirrored", 2, marks=pytest.mark.long),
        pytest.param("multi_worker_mirrored", 3, marks=pytest.mark.faults),
    ],
)
def test_features_train_as_plain_keras(make, train_only, strategy, version):
    sizes = {"mirrored": {"devices": 2}, "multi_worker_mirrored": {"workers": 2}}
    spec = make({"strategy": strategy, **sizes.get(strategy, {})}, version)
    facts = train_only(spec)
    history, weights = plain(spec, PACKAGES[version])
    assert facts["history"].keys() >= history.keys()
    for name, values in history.items():
        found = facts["history"][name]
        np.testing.assert_allclose(found, values, rtol=1e-5, atol=1e-5, err_msg=name)
    reader = tf.train.load_checkpoint(f"{spec.model_dir}/Format-Weights/weights")
    names = reader.get_variable_to_shape_map()
    found = [reader.get_tensor(each) for each in names if "OBJECT_GRAPH" not in each]
    for value in weights:
        alike = [each for each in found if each.shape == value.shape]
        assert min(abs(each - value).max() for each in alike) < 1e-5


@pytest.mark.long
def test_a_loop_of_the_users_own_gets_the_features(make, train_only):
    spec = make({"strategy": "one_device"}, module="loop")
    own = train_only(spec)["history"]["loss"]
    fitted, _ = plain(make({"strategy": "one_device"}), tf_keras)
    np.testing.assert_allclose(own, fitted["loss"], rtol=0.05)


@pytest.mark.faults
def test_parameter_servers_train_on_the_features(make, train_only):
    distribution = {"strategy": "parameter_server", "workers": 2}
    facts = train_only(make(distribution, batch_size=20, epochs=8))
    losses = facts["history"]["val_loss"]
    assert losses[-1] < 0.7 * losses[0]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"label": '{"reconstruct": ["temp", "tmp"]}'},
            r"received `tmp`; `preprocessing_fn` returns no such feature\n.*`temp`",
        ),
        ({"label": '{"reconstruct": ["text"]}'}, "`text` is a string after Transform"),
        (
            {"label": '{"reconstruct": ["few"]}'},
            "`few` has no value, or several, in some rows.*to reconstruct\n.*dense",
        ),
    ],
)
def test_features_that_cannot_be_reconstructed_are_rejected(make, changes, message):
    spec = make({"strategy": "one_device"}, **changes)
    with pytest.raises(UserError, match=message) as caught:
        inputs.split(spec, spec.train_files)
    assert caught.value.key == "label"
