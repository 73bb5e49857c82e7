"""A label of several columns trains as Keras's `fit` trains on them as one tensor."""

from __future__ import annotations

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from strategos.components.errors import UserError
from strategos.components.trainer.model import workload as inputs
from strategos.components.user_code import modules

pytestmark = pytest.mark.long

EPOCHS, SIZE = 2, 111
PACKAGES = {2: tf_keras, 3: keras}
LABEL = '["late", "night"]'

MODEL = """
def build_model(context):
    features = context.inputs(keras)
    assert not {*features} & {*context.target.columns, context.weight}
    assert context.label_spec.shape == [2]
    taken = {name: features[name] for name in ("distance", "temp")}
    joined = keras.layers.Concatenate()([taken["distance"], taken["temp"]])
    hidden = keras.layers.Dense(8, "relu")(joined)
    model = keras.Model(taken, keras.layers.Dense(2)(hidden))
    model.compile(keras.optimizers.Adam(1e-2),
                  keras.losses.BinaryCrossentropy(from_logits=True),
                  metrics=["mse"], weighted_metrics=["mae"])
    return model
"""


@pytest.fixture(scope="module")
def make(workload_in, write_flights, transform, spec_of, tmp_path_factory):
    """Makes the spec of a training of flights with the label of two columns."""
    made = workload_in(tmp_path_factory.mktemp("several"), "late")
    with open(f"{made.folder}/preprocessing.py", "a") as file:
        file.write(
            "\n\n_one_label = preprocessing_fn\n\n\ndef preprocessing_fn(inputs):\n"
            "    made = _one_label(inputs)\n"
            '    night = tf.cast(made["hour"] > 17, tf.float32)\n'
            '    return {**made, "night": night}\n'
        )
    write_flights(made, 1000, 300)
    transform(made)
    for version, package in PACKAGES.items():
        made.write_module(
            f"several{version}", f"import {package.__name__} as keras\n{MODEL}"
        )

    def make(distribution, version):
        return spec_of(
            made,
            label=LABEL,
            weight="hour",
            module=f"several{version}",
            batch_size=SIZE,
            epochs=EPOCHS,
            distribution=distribution,
        )

    return make


def plain(spec, package):
    """History and weights of plain Keras on the two columns as one tensor."""
    single = dataclasses.replace(spec, label="late", weight="")
    train, evaluated = (
        inputs.split(single, files) for files in (spec.train_files, spec.eval_files)
    )

    def joined(features, late):
        label = tf.concat([tf.cast(late, tf.float32), features["night"]], 1)
        taken = {name: features[name] for name in ("distance", "temp")}
        return taken, label, tf.cast(features["hour"][:, 0], tf.float32)

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
        ("one_device", 2),
        pytest.param("one_device", 3, marks=pytest.mark.faults),
        pytest.param("mirrored", 2, marks=pytest.mark.faults),
        pytest.param("mirrored", 3, marks=pytest.mark.faults),
        pytest.param("multi_worker_mirrored", 2, marks=pytest.mark.faults),
        pytest.param("multi_worker_mirrored", 3, marks=pytest.mark.faults),
    ],
)
def test_several_columns_train_as_plain_keras(make, train_only, strategy, version):
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


def test_weights_of_the_columns_in_another_order_are_rejected(make, train_only):
    first = make({"strategy": "one_device"}, 2)
    train_only(first, EXPORT="1")  # which names the label beside the weights
    weights = f"{first.model_dir}/Format-Weights"
    later = make({"strategy": "one_device"}, 2)
    turned = '["night", "late"]'
    later = dataclasses.replace(later, warm_start=weights, label=turned)
    with pytest.raises(UserError, match="predict the columns late, night") as caught:
        train_only(later)
    assert caught.value.key == "trainer.warm_start"
