"""Dropout whose masks follow the step, wherever the layer is made."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from strategos.components.trainer.model.context import TrainingContext


class Block(tf.keras.layers.Layer):
    """Makes its dropout in `__init__`, in `build`, or lets a function hold it."""

    def __init__(self, context, place):
        super().__init__()
        self.context, self.place = context, place
        self.drop = self.made() if place == "init" else None

    def made(self):
        dropout = self.context.dropout(0.5, seed=1)
        return (lambda x, training: dropout(x, training)) if self._closes else dropout

    @property
    def _closes(self):
        return self.place == "closure"

    def build(self, shape):
        if self.drop is None:
            self.drop = self.made()

    def call(self, x, training=None):
        return self.drop(x, training=training)


def _context(rows=64, replicas=1, batch=8):
    return TrainingContext(
        {}, "y", {}, None, None, None, rows, 2, replicas, batch, seed=3
    )


def _masks(place):
    context = _context()
    block = Block(context, place)
    model = tf.keras.Sequential([block, tf.keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    context.training_step.follow(model)
    masks = []
    for _ in range(3):
        dropped = block(tf.ones([8, 16]), training=True).numpy()
        masks.append(dropped > 0)
        model.train_on_batch(np.ones((8, 16)), np.ones((8, 1)))
    return np.stack(masks)


@pytest.mark.parametrize("place", ["build", "closure"])
def test_masks_do_not_depend_on_where_the_layer_is_made(place):
    wanted = _masks("init")
    assert (wanted[0] != wanted[1]).any() and (wanted[1] != wanted[2]).any()
    np.testing.assert_array_equal(_masks(place), wanted)


def _dropped(package):
    """What a layer of a package leaves in three steps of a training."""
    context = _context()
    inputs = package.Input((16,))
    dropout = context.dropout(0.5, seed=1, keras=package)
    model = package.Model(inputs, package.layers.Dense(1)(dropout(inputs)))
    model.compile("sgd", "mse")
    context.training_step.follow(model)
    left = []
    for _ in range(3):
        left.append(dropout(tf.ones([8, 16]), training=True).numpy())
        model.fit(np.ones((8, 16)), np.ones((8, 1)), verbose=0)
    return np.stack(left)


def test_layers_of_both_kerases_drop_the_same():
    wanted = _dropped(tf_keras)
    assert 0.3 < (wanted == 0).mean() < 0.7
    assert set(wanted[wanted != 0]) == {2}
    np.testing.assert_array_equal(_dropped(keras), wanted)
