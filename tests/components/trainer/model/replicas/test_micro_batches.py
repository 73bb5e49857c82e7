"""What batches computed in parts (`trainer.accumulate_steps`) cannot be right for.

Curves are compared in `trainer/loop/test_strategies.py`.
"""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from strategos.components.errors import UserError
from strategos.components.trainer.data.parts import cut
from strategos.components.trainer.model.context import TrainingContext
from strategos.components.trainer.model.replicas import micro_batches


class OwnStep(tf.keras.Model):
    def train_step(self, data):
        return super().train_step(data)


class OwnLoss(tf.keras.Model):
    def compute_loss(self, *args, **kwargs):
        return super().compute_loss(*args, **kwargs)


def _model(
    kind=tf.keras.Model, layer=None, optimizer="sgd", loss="mse", keras=tf.keras
):
    inputs = keras.Input((3,))
    outputs = keras.layers.Dense(1)(layer(inputs) if layer else inputs)
    model = kind(inputs, outputs)
    model.compile(optimizer, loss)
    return model


def _accumulate(model, batch=8, parts=2, replicas=1):
    context = TrainingContext({}, "y", {}, *[None] * 3, 100, 1, replicas, batch, 3)
    micro_batches.accumulate(model, context, parts)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"kind": OwnStep}, "a `train_step` of its own"),
        ({"kind": OwnLoss}, "a `compute_loss` of its own"),
        ({"loss": tf.keras.losses.MeanSquaredError("sum")}, "a sum over rows"),
        ({"optimizer": tf.keras.optimizers.legacy.SGD()}, "SGD is an optimizer of bef"),
    ],
)
def test_what_parts_would_change_is_rejected_by_name(how, message):
    with pytest.raises(UserError, match=f"accumulate_steps: .*{message}"):
        _accumulate(_model(**how))


def test_batch_normalization_is_rejected_unless_it_is_frozen():
    normalization = tf.keras.layers.BatchNormalization(name="normed")
    with pytest.raises(UserError, match="`normed`: BatchNormalization takes the mean"):
        _accumulate(_model(layer=normalization))
    frozen = tf.keras.layers.BatchNormalization(trainable=False)
    _accumulate(_model(layer=frozen))


def test_keras_3_accumulates_by_one_setting():
    import keras

    optimizer = keras.optimizers.SGD(gradient_accumulation_steps=2)
    with pytest.raises(UserError, match="gradient_accumulation_steps`, too"):
        _accumulate(_model(keras.Model, optimizer=optimizer, keras=keras))


def test_a_part_has_a_row_at_least():
    _accumulate(_model(), batch=8, parts=8)
    with pytest.raises(UserError, match="received 9; more parts than the 8 rows that"):
        _accumulate(_model(), batch=8, parts=9)


@settings(max_examples=20, deadline=None)
@given(st.data())
def test_rows_are_cut_alike_from_dense_sparse_and_ragged_features(data):
    lengths = data.draw(st.lists(st.integers(0, 3), min_size=1, max_size=6))
    ragged = tf.ragged.range(tf.constant(lengths, tf.int64)) + 1
    first = data.draw(st.integers(0, len(lengths)))
    end = data.draw(st.integers(first, len(lengths)))
    dense = ragged.to_tensor(shape=[None, 3])
    batch = {"d": dense, "s": tf.sparse.from_dense(dense), "r": ragged}
    found = cut(batch, tf.constant(first, tf.int64), tf.constant(end, tf.int64))
    expected = dense.numpy()[first:end]
    np.testing.assert_array_equal(found["d"], expected)
    np.testing.assert_array_equal(tf.sparse.to_dense(found["s"]), expected)
    np.testing.assert_array_equal(found["r"].to_tensor(shape=[None, 3]), expected)
