"""What the export records of the compiled loss: whether the model gives logits."""

from __future__ import annotations

import pytest
import tensorflow as tf

from strategos.components.trainer.run import export

keras3 = pytest.importorskip("keras")


def _own(labels, outputs):
    return tf.reduce_mean(outputs)


@pytest.mark.parametrize("keras", [tf.keras, keras3], ids=["tf", "keras3"])
@pytest.mark.parametrize(
    ("loss", "from_logits"),
    [
        ("binary_crossentropy", False),
        (("BinaryCrossentropy", {"from_logits": True}), True),
        (("BinaryCrossentropy", {}), False),
        (("SparseCategoricalCrossentropy", {"from_logits": True}), True),
        (("BinaryFocalCrossentropy", {"from_logits": True}), True),
        (("Hinge", {}), None),
        ("mse", None),
        (_own, None),
        (None, None),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_logits_are_recorded_from_the_compiled_loss(keras, loss, from_logits):
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    if isinstance(loss, tuple):
        name, arguments = loss
        loss = getattr(keras.losses, name)(**arguments)
    model.compile("sgd", loss)
    assert export._from_logits(model.loss) is from_logits
