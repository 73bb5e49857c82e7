"""The layers that a phase trains are those that Keras would train by hand."""

from __future__ import annotations

import pytest
import tensorflow as tf

from strategos.components.errors import UserError
from strategos.components.trainer.compat import compiled
from strategos.components.trainer.loop.phases import trained_layers
from strategos.components.trainer.phases import Phase, check_epochs


@pytest.fixture(params=["tf.keras", "keras"])
def keras(request):
    if request.param == "tf.keras":
        return tf.keras
    return pytest.importorskip("keras")


@pytest.fixture
def build(keras):
    """A model with a model in it: `build(rate)` → the compiled model."""

    def build(rate=0.1):
        dense = keras.layers.Dense
        inside = keras.Input((2,))
        hidden = dense(3, name="conv1_a")(inside)
        hidden = dense(3, name="conv2_a")(hidden)
        hidden = dense(3, name="conv2_b")(hidden)
        base = keras.Model(inside, hidden, name="base")
        inputs = keras.Input((2,))
        model = keras.Model(inputs, dense(1, name="head")(base(inputs)))
        model.compile(keras.optimizers.SGD(rate), "mse")
        return model

    return build


def _trained(model, **phase):
    """Names of the layers with variables that train, in a phase with these settings."""
    chosen = Phase("tune", 1, **phase)
    trained_layers.choose(model, chosen, [chosen])
    inner = [x for x in compiled.layers(model) if not hasattr(x, "layers")]
    trained = {id(variable) for variable in model.trainable_variables}
    return sorted(
        layer.name
        for layer in inner
        if trained.intersection(map(id, layer.trainable_variables))
    )


@pytest.mark.parametrize(
    ("phase", "expected"),
    [
        ({}, ["conv1_a", "conv2_a", "conv2_b", "head"]),
        ({"base": "base", "trainable": "none"}, ["head"]),
        (
            {"base": "base", "trainable": "all"},
            ["conv1_a", "conv2_a", "conv2_b", "head"],
        ),
        ({"base": "base", "trainable": 2}, ["conv2_a", "conv2_b", "head"]),
        ({"base": "base", "trainable": ["conv2_*"]}, ["conv2_a", "conv2_b", "head"]),
        ({"trainable": 1}, ["head"]),
        ({"trainable": ["conv1_a", "head"]}, ["conv1_a", "head"]),
        ({"trainable": ["base"]}, ["conv1_a", "conv2_a", "conv2_b"]),
    ],
)
def test_layers_that_train(build, phase, expected):
    model = build()
    assert _trained(model, **phase) == expected
    assert compiled.changed_trainable(model) == []  # `fit` trains these


@pytest.mark.parametrize(
    ("phase", "message"),
    [
        (
            {"base": "bose", "trainable": "none"},
            r"tune.base: received `bose`; the model .* no such layer\n.*`base`\?",
        ),
        (
            {"base": "base", "trainable": ["conv2_*", "conv3_a"]},
            r"phases.tune.trainable: received `conv3_a`.*\n.*Did you mean `conv\d_a`",
        ),
        ({"base": "base", "trainable": 9}, "received 9; `base` has 4 layers"),
    ],
)
def test_layers_that_the_model_lacks_are_rejected_by_name(build, phase, message):
    chosen = Phase("tune", 1, **phase)
    with pytest.raises(UserError, match=message):  # in the first phase already
        trained_layers.choose(build(), Phase("head", 1), [Phase("head", 1), chosen])


def test_a_phase_that_trains_nothing_is_rejected(build):
    model = build()
    model.get_layer("head").trainable = False
    model.compile("sgd", "mse")
    phase = Phase("tune", 1, base="base", trainable="none")
    with pytest.raises(UserError, match="tune.trainable: received none; no layer"):
        trained_layers.choose(model, phase, [phase])


def test_rate_of_a_phase_takes_the_place_of_a_number_and_not_of_a_schedule(
    build, keras
):
    phase = Phase("tune", 1, learning_rate=0.02)
    model = build()
    trained_layers.set_rate(model, phase)
    assert float(model.optimizer.learning_rate) == pytest.approx(0.02)
    model = build(keras.optimizers.schedules.CosineDecay(0.1, 10))
    with pytest.raises(UserError, match=r"tune.learning_rate: .*\(CosineDecay\)"):
        trained_layers.set_rate(model, phase)


def test_epochs_that_a_runtime_parameter_changes_are_rejected():
    with pytest.raises(UserError, match=r"trainer.epochs: received 9; .* 3 epochs"):
        check_epochs([1, 2], 9)
