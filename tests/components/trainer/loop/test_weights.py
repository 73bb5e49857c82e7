"""Weighted rows train as Keras's `fit` trains them with `sample_weight`."""

from __future__ import annotations

import dataclasses
import functools

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from strategos.components.trainer.model import workload as inputs
from strategos.components.trainer.spec import Settings
from strategos.components.user_code import modules

pytestmark = pytest.mark.long

EPOCHS, SIZE = 2, 111  # 1,000 rows: of the last batch, one of two replicas gets no row
PACKAGES = {2: tf_keras, 3: keras}

# `hour` is the weight: 0 for the rows of an hour of each day.
MODEL = """
def build_model(context):
    features = context.inputs(keras)
    assert "hour" not in features and context.weight in ("", "hour")
    taken = {name: features[name] for name in ("distance", "temp")}
    joined = keras.layers.Concatenate()([taken["distance"], taken["temp"]])
    hidden = keras.layers.Dense(8, "relu", kernel_regularizer="l2")(joined)
    output = keras.layers.Dense(1, "sigmoid")(hidden)
    model = keras.Model(taken, output)
    model.compile(keras.optimizers.Adam(1e-2, global_clipnorm=0.5),
                  "binary_crossentropy", metrics=["accuracy"],
                  weighted_metrics=["mse", keras.metrics.AUC(name="auc")])
    return model
"""

CLASSES = {"0": 0.5, "1": 3.0}
ONE = {"strategy": "one_device"}
TWO = {"strategy": "mirrored", "devices": 2}
WORKERS = {"strategy": "multi_worker_mirrored", "workers": 2}
CENTRAL = {"strategy": "central_storage", "devices": 2}
SERVERS = {"strategy": "parameter_server", "workers": 1, "parameter_servers": 2}


@pytest.fixture(scope="module")
def run(workload, make_spec, train_only):
    """Trains under a strategy: `run(distribution, keras=2)` → facts, spec."""
    for version, package in PACKAGES.items():
        code = f"import {package.__name__} as keras\n{MODEL}"
        workload.write_module(f"weighted{version}", code)

    def run(distribution, version=2, settings=None, weight="hour", **changes):
        by = changes.pop("by", train_only)
        given = {"batch_size": SIZE, "epochs": EPOCHS, "module": f"weighted{version}"}
        spec = make_spec(
            **given | changes,
            distribution=distribution,
            settings=Settings(**(settings or {})),
            weight=weight,
        )
        return by(spec), spec

    return run


@pytest.fixture(scope="module")
def plain(make_spec, run):
    """History and weights of plain Keras: `plain(version, classes)`."""

    @functools.cache
    def plain(version, classes):
        spec = make_spec(batch_size=SIZE)
        files = spec.train_files, spec.eval_files
        train, evaluated = (inputs.split(spec, each) for each in files)
        names = ("distance", "temp")

        def weighted(features, label, factors):
            weight = tf.cast(features["hour"][:, 0], tf.float32)
            if factors:
                weight *= tf.where(label[:, 0] == 1, factors[1], factors[0])
            return {name: features[name] for name in names}, label, weight

        batches = train.shuffled(SIZE, seed=spec.seed, epochs=None)
        batches = batches.map(lambda x, y: weighted(x, y, classes))
        ordered = evaluated.ordered(SIZE).map(lambda x, y: weighted(x, y, ()))
        package = PACKAGES[version]
        package.utils.set_random_seed(spec.seed)
        module = modules.load(spec.folder, f"weighted{version}")
        context = inputs.context(
            dataclasses.replace(spec, weight="hour"), train.rows, 1
        )
        model = module.build_model(context)
        steps = train.steps(SIZE)
        history = model.fit(
            batches,
            epochs=EPOCHS,
            steps_per_epoch=steps,
            validation_data=ordered,
            verbose=0,
        ).history
        return history, model.get_weights()

    return plain


def assert_as_plain(facts, spec, plain, version, classes):
    history, weights = plain(version, classes)
    assert facts["history"].keys() >= history.keys()
    for name, values in history.items():
        found = facts["history"][name]
        np.testing.assert_allclose(found, values, atol=1e-5, err_msg=name)
    reader = tf.train.load_checkpoint(f"{spec.model_dir}/Format-Weights/weights")
    found = [
        reader.get_tensor(name)
        for name in reader.get_variable_to_shape_map()
        if "OBJECT_GRAPH" not in name
    ]
    for value in weights:
        alike = [x for x in found if x.shape == value.shape]
        assert min(abs(x - value).max() for x in alike) < 1e-5


def cell(distribution, version, *marks, **settings):
    name = f"{distribution['strategy']}-keras{version}" + "-".join(["", *settings])
    return pytest.param(distribution, version, settings, id=name, marks=marks)


@pytest.mark.parametrize(
    ("distribution", "version", "settings"),
    [
        cell(TWO, 2),
        cell(TWO, 3),
        cell(ONE, 2, pytest.mark.faults),
        cell(ONE, 3, pytest.mark.faults),
        cell(WORKERS, 2, pytest.mark.faults),
        cell(WORKERS, 3, pytest.mark.faults),
        cell(CENTRAL, 2, pytest.mark.faults),
        cell(CENTRAL, 3, pytest.mark.faults),
        cell(SERVERS, 2, pytest.mark.faults),
        cell(SERVERS, 3, pytest.mark.faults),
        cell(ONE, 2, pytest.mark.faults, accumulate_steps=3),
        cell(ONE, 3, pytest.mark.faults, accumulate_steps=3),
        cell(TWO, 2, pytest.mark.faults, accumulate_steps=3),
        cell(TWO, 3, pytest.mark.faults, accumulate_steps=3),
    ],
)
def test_weights_and_classes_train_as_plain_keras(
    run, plain, distribution, version, settings
):
    how = {**settings, "class_weight": CLASSES}
    facts, spec = run(distribution, version, how)
    assert_as_plain(facts, spec, plain, version, (0.5, 3.0))
