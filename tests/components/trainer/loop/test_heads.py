"""A label of several heads trains as Keras's `fit` trains on a dict of labels."""

from __future__ import annotations

import dataclasses
import re

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from strategos.components.errors import UserError
from strategos.components.trainer.model import workload as inputs
from strategos.components.trainer.spec import Settings
from strategos.components.user_code import modules

EPOCHS, SIZE = 2, 111
PACKAGES = {2: tf_keras, 3: keras}
HEADS = {"part": "part", "is_late": "late"}
LABEL = '{"part": "part", "is_late": "late"}'

MODEL = """
def build_model(context):
    features = context.inputs(keras)
    assert not {*features} & {*context.target.columns, context.weight}
    assert {*context.label_spec} == {*context.target.outputs}
    taken = {name: features[name] for name in ("distance", "temp")}
    joined = keras.layers.Concatenate()([*taken.values()])
    hidden = keras.layers.Dense(8, "relu")(joined)
    part = keras.layers.Dense(4, "softmax", name="part")(hidden)
    is_late = keras.layers.Dense(1, name="is_late")(hidden)
    outputs = OUTPUTS
    model = keras.Model(taken, outputs)
    loss = {"is_late": keras.losses.BinaryCrossentropy(from_logits=True),
            "part": keras.losses.SparseCategoricalCrossentropy()}
    model.compile(keras.optimizers.Adam(1e-2), loss,
                  loss_weights={"part": 0.3, "is_late": 1.7},
                  metrics={"is_late": ["mse"]},
                  weighted_metrics={"part": ["accuracy"]})
    return model
"""
LISTS = '{"part": "part", "is_late": ["late", "odd"]}'
OUTPUTS = {2: "[part, is_late]", 3: '{"part": part, "is_late": is_late}'}


LOOP = """
import tensorflow as tf

def run_fn(context):
    model = context.model

    @tf.function(reduce_retracing=True)
    def step(features, label, weight):
        taken = {name: features[name] for name in ("distance", "temp")}
        with tf.GradientTape() as tape:
            loss = model.compute_loss(taken, label, model(taken, training=True), weight)
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
    """Makes the spec of a training of flights with two heads."""
    made = workload_in(tmp_path_factory.mktemp("heads"), "late")
    with open(f"{made.folder}/preprocessing.py", "a") as file:
        file.write(
            "\n\n_one_label = preprocessing_fn\n\n\ndef preprocessing_fn(inputs):\n"
            "    made = _one_label(inputs)\n"
            '    part = tf.cast(made["hour"], tf.int64) // 6 % 4\n'
            '    odd = tf.cast(made["hour"], tf.int64) % 2\n'
            '    return {**made, "part": part, "odd": odd}\n'
        )
    write_flights(made, 1000, 300)
    transform(made)
    for version, package in PACKAGES.items():
        text = f"import {package.__name__} as keras\n{MODEL}"
        text = text.replace("OUTPUTS", OUTPUTS[version])
        made.write_module(f"heads{version}", text)
        made.write_module(f"loop{version}", text + LOOP)
        text = text.replace("Dense(1,", "Dense(2,")
        made.write_module(f"lists{version}", text)
    unnamed = f"import keras\n{MODEL}".replace("OUTPUTS", OUTPUTS[2])
    made.write_module("unnamed", unnamed)
    swapped = f"import tf_keras as keras\n{MODEL}".replace("OUTPUTS", OUTPUTS[2])
    for name, (old, new) in {
        "lossless": ('"part": keras.losses.SparseCategoricalCrossentropy()', ""),
        "narrow": ("Dense(4", "Dense(3"),
        "logits": ("BinaryCrossentropy(from_logits=True)", "BinaryCrossentropy()"),
    }.items():
        text = swapped.replace(old, new)
        text = text.replace(',\n                  weighted_metrics={"part"', ")#")
        made.write_module(name, text)

    def make(distribution, version, label=LABEL, **changes):
        given = {"module": f"heads{version}", "weight": "hour", **changes}
        settings = {"batch_size": SIZE, "epochs": EPOCHS, "distribution": distribution}
        return spec_of(made, label=label, **settings, **given)

    return make


def plain(spec, package):
    """History and weights of plain Keras on the same batches."""
    single = dataclasses.replace(spec, label="late", weight="")
    train, evaluated = (
        inputs.split(single, files) for files in (spec.train_files, spec.eval_files)
    )

    def by_head(features, late):
        if spec.target.heads["is_late"].is_several:
            late = tf.concat([late, features["odd"]], 1)
        labels = {"is_late": late, "part": features["part"]}
        taken = {name: features[name] for name in ("distance", "temp")}
        return taken, labels, tf.cast(features["hour"][:, 0], tf.float32)

    package.utils.set_random_seed(spec.seed)
    model = modules.load(spec.folder, spec.module).build_model(
        inputs.context(spec, train.rows, 1)
    )
    history = model.fit(
        train.shuffled(SIZE, seed=spec.seed, epochs=None).map(by_head),
        epochs=EPOCHS,
        steps_per_epoch=train.steps(SIZE),
        validation_data=evaluated.ordered(SIZE).map(by_head),
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
        pytest.param("multi_worker_mirrored", 2, marks=pytest.mark.faults),
        pytest.param("multi_worker_mirrored", 3, marks=pytest.mark.faults),
        pytest.param("micro", 2, marks=pytest.mark.faults),
        pytest.param("parameter_server", 2, marks=pytest.mark.faults),
        pytest.param("parameter_server", 3, marks=pytest.mark.faults),
    ],
)
def test_heads_train_as_plain_keras(make, train_only, strategy, version):
    distribution = {
        "mirrored": {"strategy": "mirrored", "devices": 2},
        "multi_worker_mirrored": {"strategy": "multi_worker_mirrored", "workers": 2},
        "parameter_server": {"strategy": "parameter_server", "workers": 1},
    }.get(strategy, {"strategy": "one_device"})
    parts = {"settings": Settings(accumulate_steps=3)} if strategy == "micro" else {}
    spec = make(distribution, version, **parts)
    facts = train_only(spec)
    history, weights = plain(spec, PACKAGES[version])
    assert facts["history"].keys() >= history.keys() > {"part_loss", "is_late_mse"}
    for name, values in history.items():
        found = facts["history"][name]
        np.testing.assert_allclose(found, values, rtol=1e-5, atol=1e-5, err_msg=name)
    assert_weights(spec, weights)


@pytest.mark.parametrize(
    "strategy", ["one_device", "mirrored", "central_storage", "parameter_server"]
)
@pytest.mark.parametrize("version", PACKAGES)
@pytest.mark.faults
def test_a_head_of_several_columns_trains_as_plain_keras(
    make, train_only, strategy, version
):
    own = {"mirrored": {"devices": 2}, "parameter_server": {"workers": 1}}
    distribution = {"strategy": strategy, **own.get(strategy, {})}
    spec = make(distribution, version, LISTS, module=f"lists{version}")
    facts = train_only(spec)
    history, weights = plain(spec, PACKAGES[version])
    for name, values in history.items():
        found = facts["history"][name]
        np.testing.assert_allclose(found, values, rtol=1e-5, atol=1e-5, err_msg=name)
    assert_weights(spec, weights)


@pytest.mark.faults
def test_a_loop_of_ones_own_gets_labels_by_head(make, train_only):
    spec = make({"strategy": "one_device"}, 2, module="loop2")
    train_only(spec)
    assert_weights(spec, plain(spec, tf_keras)[1])


def assert_weights(spec, weights):
    """Asserts that the trained model has these weights."""
    reader = tf.train.load_checkpoint(f"{spec.model_dir}/Format-Weights/weights")
    names = reader.get_variable_to_shape_map()
    found = [reader.get_tensor(each) for each in names if "OBJECT_GRAPH" not in each]
    for value in weights:
        alike = [each for each in found if each.shape == value.shape]
        assert min(abs(each - value).max() for each in alike) < 1e-5


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"label": '{"prat": "part", "is_late": "late"}'}, "no output `prat`.*`part`"),
        ({"module": "lossless"}, "`part` has no loss, so it would not learn `part`"),
        ({"module": "narrow"}, "the output `part` has 3 output unit.*at least 4"),
        ({"module": "logits"}, "the output `is_late` gives logits"),
        ({"module": "unnamed"}, "Keras 3 takes labels by name only.*Return a dict"),
        (
            {"module": "heads3", "settings": Settings(accumulate_steps=3)},
            "Keras 3 logs the loss of each of several outputs as the mean over parts",
        ),
    ],
    ids=["unknown", "lossless", "narrow", "logits", "unnamed", "parts"],
)
def test_heads_that_do_not_fit_the_model_are_named(make, train_only, changes, message):
    spec = make({"strategy": "one_device"}, 2, **changes)
    with pytest.raises(UserError) as caught:
        train_only(spec)
    text = f"{caught.value.message} {caught.value.expected} {caught.value.remedy}"
    assert re.search(message, text), text
