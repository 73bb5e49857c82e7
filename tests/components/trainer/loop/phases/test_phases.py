"""Phases that train other layers: resumed exactly, and equal under each strategy."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from strategos.components.errors import UserError
from strategos.components.trainer.operation import Operation
from strategos.components.trainer.run import session
from strategos.components.trainer.spec import Settings

pytestmark = pytest.mark.long

ONE_DEVICE = {"strategy": "one_device"}
GANG = {"strategy": "multi_worker_mirrored", "workers": 2}
MIRRORED = {"strategy": "mirrored", "devices": 2}
CENTRAL = {"strategy": "central_storage", "devices": 2}

# 1,000 rows are 10 steps of 100. AUC rises in the second epoch, and `min` stops there.
HEAD = {
    "name": "head",
    "epochs": 4,
    "base": "base",
    "trainable": "none",
    "early_stopping": {"monitor": "val_auc", "mode": "min", "patience": 1},
}
TUNE = {"name": "tune", "epochs": 2, "base": "base", "trainable": 2}
TUNE |= {"learning_rate": 1e-3}

MODEL = """
import json, os, signal
from pathlib import Path
import tensorflow as tf

class Noise(tf.keras.layers.Layer):
    def __init__(self, context):
        super().__init__()
        self.seeds_of = context.row_seeds

    def call(self, x, training=None):
        if not training:
            return x
        draw = lambda seed: tf.random.stateless_uniform([8], seed, 0.9, 1.1)
        return x * tf.map_fn(draw, self.seeds_of(x), fn_output_signature=tf.float32)

def build_model(context):
    layers, inputs = tf.keras.layers, context.inputs()
    numbers = tf.keras.Input((2,))
    hidden = layers.Dense(8, "relu", name="first")(numbers)
    hidden = layers.BatchNormalization(name="norm")(hidden)
    hidden = layers.Dense(8, "relu", name="second")(hidden)
    base = tf.keras.Model(numbers, hidden, name="base")
    hour = tf.cast(inputs["hour"], tf.float32) / 24
    hidden = layers.Concatenate()([inputs["distance"], hour])
    hidden = base(hidden, training=False)
    if context.hyperparameters.get("drops", True):
        hidden = Noise(context)(context.dropout(0.2, seed=1)(hidden))
    late = layers.Dense(1, "sigmoid", name="late")(hidden)
    model = tf.keras.Model(
        {name: inputs[name] for name in ("distance", "hour")}, late)
    model.compile(tf.keras.optimizers.Adam(1e-2), "binary_crossentropy",
                  metrics=[tf.keras.metrics.AUC(name="auc")])
    return model

class Watching(tf.keras.callbacks.Callback):
    def __init__(self, context):
        super().__init__()
        self.folder = Path(context.hyperparameters["folder"])
        self.stops = context.hyperparameters.get("stops", [])
        self.tells = context.is_chief
        self.seen, self.lines = 0, []

    def on_train_batch_end(self, batch, logs=None):
        self.seen += 1
        if self.tells and self.seen in self.stops:
            marker = self.folder / f"stopped-{self.seen}"
            if not marker.exists():
                marker.touch()
                os.kill(os.getpid(), signal.SIGTERM)

    def on_epoch_end(self, epoch, logs=None):
        base, optimizer = self.model.get_layer("base"), self.model.optimizer
        self.lines.append({
            "trained": [x.name for x in self.model.trainable_variables],
            "rate": float(optimizer.learning_rate.numpy()),
            "updates": int(optimizer.iterations.numpy()),
            "frozen": base.get_layer("first").kernel.numpy().tolist(),
            "second": base.get_layer("second").kernel.numpy().tolist(),
            "late": self.model.get_layer("late").kernel.numpy().tolist(),
        })
        if self.tells:
            (self.folder / "epochs.json").write_text(json.dumps(self.lines))

def callbacks(context):
    return [Watching(context)]
"""


@pytest.fixture(scope="module")
def run(workload, make_spec, train_only, tmp_path_factory):
    """Trains in phases: `run(distribution, stops=…)` → facts, spec, epochs seen."""
    workload.write_module("phases_model", MODEL)

    def run(
        distribution,
        phases=(HEAD, TUNE),
        batch_size=100,
        module="phases_model",
        callbacks=None,
        optimizer=None,
        **hyperparameters,
    ):
        folder = tmp_path_factory.mktemp("phases")
        spec = make_spec(
            module=module,
            batch_size=batch_size,
            epochs=sum(each["epochs"] for each in phases),
            distribution=distribution,
            settings=Settings(
                phases=phases,
                callbacks=callbacks or {"csv": True},
                optimizer=optimizer or {},
            ),
            hyperparameters={"folder": str(folder), **hyperparameters},
        )
        facts = train_only(spec, Operation())
        return facts, spec, json.loads((folder / "epochs.json").read_text())

    return run


@pytest.fixture(scope="module")
def undisturbed(run):
    return run(ONE_DEVICE)


def _weights(spec):
    reader = tf.train.load_checkpoint(f"{spec.model_dir}/Format-Weights/weights")
    names = reader.get_variable_to_shape_map()
    return {x: reader.get_tensor(x) for x in names if "OBJECT_GRAPH" not in x}


def test_each_phase_trains_its_layers_at_its_rate_by_an_optimizer_of_its_own(
    undisturbed,
):
    facts, _, epochs = undisturbed
    head, tune = ["late/kernel:0", "late/bias:0"], ["norm/gamma:0", "norm/beta:0"]
    tune += ["second/kernel:0", "second/bias:0", *head]
    assert [each["trained"] for each in epochs] == [head, head, tune, tune]
    rates = [each["rate"] for each in epochs]
    np.testing.assert_allclose(rates, [1e-2, 1e-2, 1e-3, 1e-3], rtol=1e-6)
    assert [each["updates"] for each in epochs] == [10, 20, 10, 20]
    assert all(each["frozen"] == epochs[0]["frozen"] for each in epochs)
    assert epochs[1]["second"] == epochs[0]["second"] != epochs[2]["second"]
    assert facts["steps"] == 40


def test_record_and_history_name_the_phase_of_each_epoch(undisturbed):
    facts, spec, _ = undisturbed
    assert facts["phases"] == [
        {"name": "head", "first_epoch": 1, "epochs": 2},  # of 4: stopped early
        {"name": "tune", "first_epoch": 3, "epochs": 2},
    ]
    text = Path(spec.log_dir, "history.csv").read_text()
    lines = list(csv.DictReader(text.splitlines()))
    assert [x["phase"] for x in lines] == ["head", "head", "tune", "tune"]
    assert len(facts["history"]["loss"]) == 4


def test_resumed_within_a_phase_and_at_its_end_training_has_the_same_bits(
    run, undisturbed
):
    facts, spec, epochs = run(ONE_DEVICE, stops=[13, 20, 27])
    assert facts["restarts"] == 3
    assert epochs == undisturbed[2]
    assert facts["history"] == undisturbed[0]["history"]
    assert facts["phases"] == undisturbed[0]["phases"]
    ours, theirs = _weights(spec), _weights(undisturbed[1])
    assert ours.keys() == theirs.keys()
    for name, value in ours.items():
        np.testing.assert_array_equal(value, theirs[name], err_msg=name)


@pytest.mark.parametrize(
    ("distribution", "stops"),
    [
        pytest.param(
            GANG, [20, 27], id="multi_worker_mirrored", marks=pytest.mark.long
        ),
        pytest.param(MIRRORED, [27], id="mirrored", marks=pytest.mark.matrix),
        pytest.param(CENTRAL, [27], id="central_storage", marks=pytest.mark.matrix),
    ],
)
def test_on_two_replicas_the_curve_is_that_of_one_device(
    run, undisturbed, distribution, stops
):
    facts, spec, _ = run(distribution, stops=stops)
    assert facts["restarts"] == len(stops)
    assert facts["phases"] == undisturbed[0]["phases"]
    for name, values in undisturbed[0]["history"].items():
        np.testing.assert_allclose(facts["history"][name], values, rtol=1e-5, atol=1e-5)
    for name, value in _weights(undisturbed[1]).items():
        np.testing.assert_allclose(_weights(spec)[name], value, atol=1e-5)


def test_plain_keras_that_compiles_again_for_each_phase_gives_the_same_curve(run):
    """All rows are one batch: their order does not matter."""
    phases = ({**HEAD, "epochs": 3, "early_stopping": None}, {**TUNE, "epochs": 3})
    facts, spec, _ = run(ONE_DEVICE, phases, batch_size=1000, drops=False)
    model, training = session.untrained(spec, "one_device", 1)
    features, labels = training.sample(1000)
    expected = []
    for last, rate in ((0, 1e-2), (2, 1e-3)):
        base = model.get_layer("base")
        base.trainable = last > 0
        for layer in base.layers[: -last or None]:
            layer.trainable = False
        model.compile(tf.keras.optimizers.Adam(rate), "binary_crossentropy")
        fitted = model.fit(features, labels, 1000, 3, verbose=0)
        expected += fitted.history["loss"]
    np.testing.assert_allclose(facts["history"]["loss"], expected, rtol=2e-5)


BLOCK = """
import json
from pathlib import Path
import tensorflow as tf

layers = tf.keras.layers

class Block(layers.Layer):
    def __init__(self, **arguments):
        super().__init__(**arguments)
        self.first, self.last = layers.BatchNormalization(), layers.BatchNormalization()
        self.middle = layers.Dense(3) if MIDDLE else layers.ReLU()

    def call(self, x, training=None):
        x = self.middle(self.first(x, training=training))
        return self.last(x, training=training)

def build_model(context):
    inputs = context.inputs()
    hidden = Block(name="block")(layers.Dense(3)(inputs["distance"]))
    late = layers.Dense(1, "sigmoid", name="late")(hidden)
    model = tf.keras.Model({"distance": inputs["distance"]}, late)
    model.compile(tf.keras.optimizers.Adam(1e-1), "binary_crossentropy")
    return model

class Watching(tf.keras.callbacks.Callback):
    def __init__(self, context):
        super().__init__()
        self.path, self.lines = context.hyperparameters["folder"] + "/epochs.json", []

    def on_epoch_end(self, epoch, logs=None):
        values = {x.name: x.numpy().tolist() for x in self.model.variables}
        self.lines.append(values)
        Path(self.path).write_text(json.dumps(self.lines))

def callbacks(context):
    return [Watching(context)]
"""
FROZEN = {"name": "frozen", "epochs": 2, "trainable": ["late"], "learning_rate": 0.1}


@pytest.mark.parametrize("middle", [False, True])
@pytest.mark.parametrize(
    ("settings", "epochs"),
    [
        ({"optimizer": {"swa": {"from_epoch": 2}}}, [1, 2, 3]),
        ({"callbacks": {"best_checkpoint": {"monitor": "val_loss", "mode": "max"}}}, 1),
    ],
    ids=["swa", "best"],
)
def test_weights_kept_in_one_phase_are_those_of_the_same_variables_in_the_next(
    run, workload, settings, epochs, middle
):
    """tf-keras lists the variables of a frozen layer of layers in another order."""
    module = f"phases_block_{middle}"
    workload.write_module(module, BLOCK.replace("MIDDLE", str(middle)))
    phases = ({"name": "all", "epochs": 2}, FROZEN)
    facts, spec, seen = run(ONE_DEVICE, phases, module=module, **settings)
    if not isinstance(epochs, list):
        epochs = [int(np.argmax(facts["history"]["val_loss"]))]
        assert epochs[0] < 2, "chosen in the first phase, exported from the second"
    exported = {name: value for name, value in _named(spec).items() if name in seen[0]}
    assert len(exported) == len(seen[0])
    for name, value in exported.items():
        mean = np.mean([seen[epoch][name] for epoch in epochs], axis=0)
        np.testing.assert_allclose(value, mean, rtol=1e-5, atol=1e-6, err_msg=name)


def _named(spec):
    """The exported weights by the names of their variables."""
    path = f"{spec.model_dir}/Format-Weights/weights"
    reader = tf.train.load_checkpoint(path)
    described = json.loads(Path(f"{path}.json").read_text())
    return {name: reader.get_tensor(key) for name, _, _, key in described}


def test_a_loop_of_the_users_own_is_rejected_before_the_first_step(run, workload):
    workload.write_module("phases_loop", f"{MODEL}\ndef run_fn(context):\n    pass\n")
    with pytest.raises(
        UserError, match="phases_loop.py: `run_fn` decides itself which"
    ):
        run(ONE_DEVICE, module="phases_loop")
