"""A model that is built otherwise a second time is rejected, naming the difference."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

from strategos.components.errors import UserError
from strategos.components.trainer.gang.agreement import Agreement
from strategos.components.trainer.launchers import local
from strategos.components.trainer.loop.checkpoint.cadence import Cadence
from strategos.components.trainer.loop.checkpoint.checkpoints import Checkpoints
from strategos.components.trainer.loop.checkpoint_callback import Keeper, newest
from strategos.components.trainer.loop.position import Position
from strategos.components.trainer.model.comparison import structure
from strategos.components.trainer.operation import Operation

BOTH = pytest.mark.parametrize("package", [tf.keras, keras], ids=["tf_keras", "keras"])


def _functional(package, order="abc", activation="relu", more=0):
    layers = package.layers
    inputs = {name: package.Input((1,), name=name) for name in order}
    nested = package.Sequential([package.Input((4,)), layers.Dense(4)])
    shared = layers.Dense(4)
    x = layers.Concatenate()([inputs[name] for name in order])
    x = layers.Dense(4, activation=activation)(x)
    x = layers.Add()([shared(x), shared(nested(x)) * 0.5])
    for _ in range(more):
        x = layers.BatchNormalization()(x)
    model = package.Model(inputs, layers.Dense(1)(x))
    model.compile("sgd", "mse", metrics=["mae"])
    return model


def _difference(one, other):
    return structure.difference(structure.of(one), structure.of(other))


@BOTH
def test_a_second_build_with_other_numbers_in_its_names_is_the_same(package):
    assert _difference(_functional(package), _functional(package)) == ""


@BOTH
@pytest.mark.parametrize(
    "change, found",
    [
        ({"order": "bac"}, r"concatenate\w*: .*\(a, b, c\) here, .*\(b, a, c\) there"),
        ({"order": "abd"}, r"input: c float32\[1\] here, d float32\[1\] there"),
        ({"activation": "tanh"}, r"dense\w*: Dense relu .* here, Dense tanh .* there"),
        ({"more": 1}, r"dense\w*: Dense .* here, BatchNormalization .* there"),
    ],
)
def test_the_first_difference_is_named(package, change, found):
    here, there = _functional(package), _functional(package, **change)
    assert re.search(found, _difference(here, there))


@BOTH
def test_a_subclassed_model_is_described_by_its_layers_and_variables(package):
    class Tower(package.Model):
        def __init__(self, *units):
            super().__init__()
            self.hidden = [package.layers.Dense(n) for n in units]
            self.seen = package.metrics.Mean()

        def call(self, inputs):
            for layer in self.hidden:
                inputs = layer(inputs)
            return inputs

    def built(*units):
        model = Tower(*units)
        model(np.zeros([1, 2]))
        return model

    assert _difference(built(2, 2), built(2, 2)) == ""
    assert "float32[2, 3] float32[3] there" in _difference(built(2, 2), built(3, 2))
    assert _difference(built(2), built(2, 2)).endswith("float32[2] only there")


def test_a_difference_deep_in_a_long_list_is_shown_without_the_list():
    names = [f"feature_{i}" for i in range(300)]
    others = [*names[:200], *names[201:], names[200]]
    differing = _difference(_functional(tf.keras, names), _functional(tf.keras, others))
    assert "feature_200" in differing and "feature_201" in differing
    assert len(differing) < 400


@pytest.fixture
def keeper_of(tmp_path):
    """Makes a `Keeper` for a model; those of one test share their checkpoints."""

    def make(model):
        store = Checkpoints(str(tmp_path), keep=2, is_chief=True)
        agreement = Agreement(tf.distribute.get_strategy(), 1)
        made = Keeper(store, Cadence(steps=1), agreement, Position(10), [])
        made.restore(model, newest(store, agreement))
        made.set_model(model)
        return made

    return make


def _saved(keeper, step, folder):
    keeper._position.step = step
    with keeper.writing():
        keeper.on_epoch_end(0)
    return Path(folder, f"step-{step:010d}", "state.json")


def test_a_checkpoint_of_a_model_with_other_connections_is_not_resumed(
    keeper_of, tmp_path
):
    state = _saved(keeper_of(_functional(tf.keras)), 10, tmp_path)
    keeper_of(_functional(tf.keras))
    with pytest.raises(UserError, match=r"(?s)'there'.*\(b, a, c\) here.*sorted\("):
        keeper_of(_functional(tf.keras, "bac"))
    # As commit fecbd19 wrote it.
    content = json.loads(state.read_text())
    del content["structure"]
    state.write_text(json.dumps(content))
    keeper_of(_functional(tf.keras, "bac"))


MODEL = """
import tensorflow as tf

def build_model(context):
    inputs = context.inputs()
    names = ["distance", "temp"]
    if BACKWARDS:
        names = names[::-1]
    x = tf.keras.layers.Concatenate()([inputs[name] for name in names])
    model = tf.keras.Model(inputs, tf.keras.layers.Dense(1, "sigmoid")(x))
    model.compile("sgd", "binary_crossentropy")
    return model
"""


@pytest.fixture
def spec_of_model(workload, make_spec):
    """Makes a spec of a model whose features are in another order if `backwards`."""

    def make(name, backwards, more="", **settings):
        workload.write_module(name, MODEL.replace("BACKWARDS", backwards) + more)
        return make_spec(module=name, epochs=1, hyperparameters={}, **settings)

    return make


def test_tasks_that_build_different_models_do_not_train(spec_of_model, train_only):
    gang = {"strategy": "multi_worker_mirrored", "workers": 2}
    spec = spec_of_model("by_task", "not context.is_chief", distribution=gang)
    message = (
        r"another model in chief-0 \('here'\) than in worker-0 \('there'\): "
        r"concatenate: Concatenate\(distance, temp\) here, "
        r"Concatenate\(temp, distance\) there\. .*sorted\("
    )
    with pytest.raises(UserError, match=message):
        train_only(spec)


TOLD = """
from pathlib import Path

TRAINED = Path(__file__).with_name("trained")

def callbacks(context):
    told = lambda logs: TRAINED.touch()
    return [tf.keras.callbacks.LambdaCallback(on_train_end=told)]
"""


@pytest.mark.long
def test_a_model_that_the_export_builds_otherwise_is_not_published(spec_of_model):
    spec = spec_of_model("by_time", "TRAINED.exists()", TOLD)
    with pytest.raises(UserError, match=r"for the export .*\(temp, distance\) here"):
        local.launch(spec, Operation())
    assert not list(Path(spec.model_dir).glob("Format-*"))


@pytest.mark.long
def test_a_warm_start_from_a_model_with_other_connections_is_rejected(
    spec_of_model, train_only
):
    first = spec_of_model("forwards", "False")
    train_only(first)
    weights = f"{first.model_dir}/Format-Weights"
    with pytest.raises(UserError, match=r"(?s)trainer\.warm_start.*distance\) here"):
        train_only(spec_of_model("backwards", "True", warm_start=weights))
    Path(weights, "weights.structure.json").unlink()  # as commit fecbd19 wrote them
    train_only(spec_of_model("backwards", "True", warm_start=weights))


TRAIN = """
import json, sys
from strategos.components.trainer.launchers import local
from strategos.components.trainer.operation import Operation
from strategos.components.trainer.spec import WorkerSpec

facts = local.launch(WorkerSpec.from_json(json.loads(sys.argv[1])), Operation())
print(json.dumps([facts["history"], facts["evaluation"]]))
"""


@pytest.mark.long
@pytest.mark.cold
def test_features_in_a_set_train_equally_whatever_the_shells_hash_seed(
    spec_of_model, monkeypatch
):
    found = []
    for seed in ("1", "2"):  # a set of these two names has another order in each
        monkeypatch.setenv("PYTHONHASHSEED", seed)
        spec = spec_of_model("in_a_set", "(names := list(set(names))) and False")
        command = [sys.executable, "-c", TRAIN, json.dumps(spec.to_json())]
        found.append(json.loads(subprocess.check_output(command).splitlines()[-1]))
    assert found[0] == found[1]
    history, evaluation = found[0]
    assert evaluation["loss"] == pytest.approx(history["val_loss"][-1], abs=1e-6)
