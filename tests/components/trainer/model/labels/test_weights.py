"""Weights of rows and of classes that cannot weigh are rejected before training."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from sklearn.utils.class_weight import compute_class_weight

from strategos.components.errors import UserError
from strategos.components.trainer.data.batches.weights import Weights
from strategos.components.trainer.model import workload as inputs
from strategos.components.trainer.model.labels import class_weights, weight_checks
from strategos.components.trainer.spec import Settings


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([1.0, 0.0, -2.0, -3.0], "received -2 as `w` in row 3 of the eval split"),
        ([1.0, np.nan], "received nan as `w` in row 2 of the eval split"),
        ([0.0, 0.0], "`w` is 0 in all 2 rows of the eval split"),
    ],
)
def test_a_weight_that_cannot_weigh_is_rejected(values, message):
    with pytest.raises(UserError, match=message) as found:
        weight_checks.check(np.array(values)[:, None], "w", "eval")
    assert found.value.key == "weight"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("hours", "received `hours`.*Did you mean `hour`"),
        ("temp", "received -.* as `temp` in row .* of the training split"),
    ],
)
def test_a_weight_that_is_no_number_of_each_row_is_rejected(make_spec, name, message):
    spec = make_spec(weight=name)
    with pytest.raises(UserError, match="(?s)" + message) as found:
        inputs.split(spec, spec.train_files)
    assert found.value.key == "weight"


def test_a_batch_has_weights_that_are_no_feature(make_spec):
    spec = make_spec(weight="hour", settings=Settings(class_weight={"1": 3.0}))
    plain = inputs.split(make_spec(), spec.train_files)
    split = inputs.with_class_weights(spec, inputs.split(spec, spec.train_files))
    features, _, weight = next(iter(split.ordered(50)))
    expected, labels = plain.sample(50)
    hours = tf.cast(expected.pop("hour"), tf.float32)[:, 0]
    assert features.keys() == expected.keys()
    np.testing.assert_array_equal(weight, hours * tf.where(labels[:, 0] == 1, 3.0, 1.0))


def test_balanced_classes_are_those_of_scikit_learn(make_spec):
    spec = make_spec()
    labels = inputs.split(spec, spec.train_files).labels()
    found = class_weights.factors(
        "balanced", labels, "late", spec.transform_graph, announces=False
    )
    flat = labels.numpy().reshape(-1)
    theirs = compute_class_weight("balanced", classes=np.unique(flat), y=flat)
    assert list(found.values()) == pytest.approx(theirs)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"2": 1.0}, "has the class `2` of `late`"),
        ({"yes": 1.0}, "`yes` is no value of `late`"),
        ({"1": 2.0, "01": 3.0}, "`01` is another spelling"),
    ],
)
def test_classes_that_do_not_fit_the_label_are_rejected(make_spec, setting, message):
    spec = make_spec()
    labels = inputs.split(spec, spec.train_files).labels()
    arguments = labels, "late", spec.transform_graph
    with pytest.raises(UserError, match=message) as found:
        class_weights.factors(setting, *arguments, announces=False)
    assert found.value.key == "trainer.class_weight"


def test_the_class_of_a_one_hot_label_is_its_place():
    label = tf.constant([[0, 1, 0], [1, 0, 0], [0, 0, 1]])
    _, _, weight = Weights(factors={1.0: 5.0, 2.0: 0.0}).batch({}, label)
    assert weight.numpy().tolist() == [5.0, 1.0, 0.0]
