"""How many steps one call of TensorFlow runs, and that nothing else depends on it."""

from __future__ import annotations

import functools
import json
import math

import numpy as np
import pytest
import tensorflow as tf

from strategos.components.errors import UserError
from strategos.components.trainer.compat.callbacks import TensorCallback
from strategos.components.trainer.loop import fit
from strategos.components.trainer.loop.callbacks import Hooks
from strategos.components.trainer.loop.checkpoint.cadence import Cadence
from strategos.components.trainer.loop.checkpoint_callback import Keeper
from strategos.components.trainer.loop.position import Position
from strategos.components.trainer.loop.progress import TerminateOnNaN
from strategos.components.trainer.operation import Operation
from strategos.components.trainer.spec import Settings

ROWS, BATCH, EPOCHS = 1000, 7, 3
STEPS = -(-ROWS // BATCH)  # the last one has 6 rows

MODEL = """
import json
from pathlib import Path
import tensorflow as tf

class OwnStep(tf.keras.Model):
    def train_step(self, data):
        return {**super().train_step(data), "rate": 0.5}

def build_model(context):
    inputs = context.inputs()
    carriers = context.vocabulary_size("carrier") + 1
    embedding = tf.keras.layers.Embedding(carriers, 2)(inputs["carrier"])
    parts = [tf.keras.layers.Flatten()(embedding), inputs["distance"]]
    hidden = tf.keras.layers.Dense(8, "relu")(tf.keras.layers.Concatenate()(parts))
    hidden = tf.keras.layers.BatchNormalization()(hidden)
    dropout = tf.keras.layers.Dropout
    if context.hyperparameters["dropout"] == "by step":
        dropout = context.dropout
    hidden = dropout(0.2, seed=1)(hidden)
    kind = tf.keras.Model
    if context.hyperparameters.get("own_step"):
        kind = OwnStep
    model = kind(inputs, tf.keras.layers.Dense(1, "sigmoid")(hidden))
    rate = tf.keras.optimizers.schedules.CosineDecay(1e-2, context.steps_per_epoch)
    model.compile(tf.keras.optimizers.Adam(rate), "binary_crossentropy",
                  metrics=[tf.keras.metrics.AUC(name="auc")],
                  steps_per_execution=context.hyperparameters.get("own"))
    return model

class Told(tf.keras.callbacks.Callback):
    def __init__(self, path):
        super().__init__()
        self.path = Path(path)

    def on_epoch_end(self, epoch, logs=None):
        self.tell(int(self.model.optimizer.iterations.numpy()))

    def tell(self, done):
        number = int(self.model.steps_per_execution.numpy())
        with self.path.open("a") as file:
            print(json.dumps([done, number]), file=file)

class Watching(Told):
    def on_train_batch_end(self, batch, logs=None):
        self.tell(batch)

def callbacks(context):
    kind = Watching if context.hyperparameters.get("watches") else Told
    return [kind(context.hyperparameters["told"])]
"""


@pytest.fixture(scope="module")
def measured(train_only):
    """Trains and measures what would be exported."""
    return functools.partial(train_only, EXPORT="measured")


@pytest.fixture(scope="module")
def train(workload, make_spec, train_only, tmp_path_factory):
    """Trains: `train(steps per execution)` → (facts, weights, what callbacks told)."""
    workload.write_module("executions", MODEL)

    def train(steps=None, by=train_only, **hyperparameters):
        told = tmp_path_factory.mktemp("told") / "lines"
        chosen = {"told": str(told), "dropout": "by step", **hyperparameters}
        spec = make_spec(
            module="executions",
            batch_size=BATCH,
            epochs=EPOCHS,
            settings=Settings(steps_per_execution=steps),
            hyperparameters=chosen,
        )
        facts = by(spec, Operation())
        return facts, spec, [json.loads(line) for line in told.read_text().splitlines()]

    return train


def _weights(spec):
    reader = tf.train.load_checkpoint(f"{spec.model_dir}/Format-Weights/weights")
    found = {
        name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()
    }
    return {
        name: value.tobytes()
        for name, value in found.items()
        if hasattr(value, "dtype")
    }


@pytest.fixture(scope="module")
def automatic(train, measured):
    """What a training chooses itself: `automatic(dropout)`, once for each."""
    return functools.cache(lambda dropout: train(by=measured, dropout=dropout))


@pytest.mark.long
@pytest.mark.parametrize(
    ("dropout", "steps"),
    [
        ("by step", 1),
        pytest.param("by step", 4, marks=pytest.mark.long),
        pytest.param("Keras's own", 4, marks=pytest.mark.long),
    ],
)
def test_weights_and_history_do_not_depend_on_the_steps_of_an_execution(
    train, measured, automatic, dropout, steps
):
    ours, spec, told = automatic(dropout)
    facts, other, _ = train(steps, by=measured, dropout=dropout)
    assert [done for done, _ in told] == [STEPS, 2 * STEPS, 3 * STEPS]
    assert max(number for _, number in told) > 1
    assert facts["steps"] == ours["steps"] == EPOCHS * STEPS
    assert facts["history"] == ours["history"]
    assert facts["evaluation"] == ours["evaluation"]
    assert _weights(other) == _weights(spec)


@pytest.mark.long
def test_a_callback_that_looks_at_batches_sees_each_of_them(train):
    *_, told = train(watches=True)
    done = [*range(STEPS), 0]
    for epoch in range(EPOCHS):
        done[-1] = (epoch + 1) * STEPS
        assert told[epoch * len(done) :][: len(done)] == [[each, 1] for each in done]


@pytest.mark.long
def test_steps_per_execution_of_the_models_own_are_kept(train):
    *_, told = train(own=5)
    assert [number for _, number in told] == [5, 5, 5]


@pytest.mark.long
def test_a_step_of_the_models_own_is_run_one_at_a_time(train):
    facts, _, told = train(own_step=True)
    assert [number for _, number in told] == [1, 1, 1]
    assert facts["steps"] == EPOCHS * STEPS


@pytest.fixture
def executions():
    """Trains for two epochs of 100 steps: `executions(seconds of a step, due)`."""

    def run(seconds, until_due=lambda step: math.inf):
        model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
        model.compile("sgd", "mse")
        position, now, ends = Position(100), [0.0], []

        class Steps(TensorCallback):
            def on_train_batch_end(self, batch, logs=None):
                now[0] += seconds * (position.step - (ends or [0])[-1])
                ends.append(position.step)

        chooses = fit.StepsPerExecution(position, until_due, clock=lambda: now[0])
        hooks = Hooks([Steps(), chooses], model, position, 2)
        data = tf.data.Dataset.from_tensors((tf.ones([4, 2]), tf.ones([4, 1]))).repeat()
        hooks.on_train_begin()
        fit.fit(
            None,
            model,
            position,
            end_epoch=2,
            feed=lambda step: data,
            evaluation=data,
            evaluation_steps=1,
            hooks=hooks,
        )
        return ends

    return run


def test_an_execution_grows_to_a_twentieth_of_a_second(executions):
    ends = executions(seconds=0.005)
    assert ends[:8] == [1, 2, 4, 8, 16, 26, 36, 46]
    assert 100 in ends and ends[-1] == 200
    assert executions(seconds=1.0) == list(range(1, 201))
    assert max(np.diff(executions(seconds=1e-6))) == 32


@pytest.mark.parametrize(
    "slow_epochs",
    [
        pytest.param(0, marks=pytest.mark.long),
        1,
        pytest.param(2, marks=pytest.mark.long),
    ],
)
@pytest.mark.parametrize(
    "first",
    [
        0,
        pytest.param(1, marks=pytest.mark.long),
        7,
        pytest.param(9, marks=pytest.mark.long),
    ],
)
def test_each_evaluation_sees_all_rows_whatever_the_pace_of_the_epoch_before(
    slow_epochs, first
):
    """Steps of a second run one at a time, fast ones up to 32 at a time."""
    model = tf.keras.Sequential([tf.keras.layers.Dense(1, "sigmoid")])
    model.compile("sgd", "binary_crossentropy", metrics=["accuracy"])
    position, now = Position(10, step=first), [0.0]
    rows = np.random.default_rng(0).normal(size=(290, 2)).astype(np.float32)
    labels = (rows.sum(1, keepdims=True) > 0).astype(np.float32)
    batches = tf.data.Dataset.from_tensor_slices((rows, labels)).batch(16)
    measured, wanted = [], []
    copy = tf.keras.Sequential([tf.keras.layers.Dense(1, "sigmoid")])
    copy.compile("sgd", "binary_crossentropy", metrics=["accuracy"])
    copy.build((None, 2))

    class Told(TensorCallback):
        def on_train_batch_end(self, batch, logs=None):
            now[0] += 1.0 if position.step < 10 * slow_epochs else 1e-6

        def on_epoch_end(self, epoch, logs=None):
            measured.append([float(logs["val_loss"]), float(logs["val_accuracy"])])
            copy.set_weights(model.get_weights())
            wanted.append(copy.evaluate(batches, verbose=0))

    chooses = fit.StepsPerExecution(position, lambda _: math.inf, lambda: now[0])
    hooks = Hooks([Told(), chooses], model, position, 4)
    hooks.on_train_begin()
    fit.fit(
        None,
        model,
        position,
        end_epoch=4,
        feed=lambda step: batches.repeat(),
        evaluation=batches,
        evaluation_steps=19,
        hooks=hooks,
    )
    assert len(measured) == 4
    np.testing.assert_allclose(measured, wanted, rtol=1e-5)


EVALUATIONS = """
import json
import numpy as np
import tensorflow as tf
from strategos.components.trainer.compat.callbacks import TensorCallback
from strategos.components.trainer.loop import fit
from strategos.components.trainer.loop.callbacks import Hooks
from strategos.components.trainer.loop.position import Position

cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(
    cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
devices = ["CPU:0", "CPU:1"]
strategies = {
    "one_device": tf.distribute.get_strategy(),
    "mirrored": tf.distribute.MirroredStrategy(devices),
    "central_storage": tf.distribute.experimental.CentralStorageStrategy(
        devices, "CPU:0"),
}
rows = np.random.default_rng(0).normal(size=(290, 2)).astype(np.float32)
labels = (rows.sum(1, keepdims=True) > 0).astype(np.float32)
batches = tf.data.Dataset.from_tensor_slices((rows, labels)).batch(16)

def build(**how):
    model = tf.keras.Sequential(
        [tf.keras.Input((2,)), tf.keras.layers.Dense(1, "sigmoid")])
    model.compile("sgd", "binary_crossentropy", metrics=["accuracy"], **how)
    return model

copy = build()

def furthest(strategy, steps, first):
    with strategy.scope():
        model = build(steps_per_execution=steps)
    position, gaps = Position(10, step=first), []

    class Told(TensorCallback):
        def on_epoch_end(self, epoch, logs=None):
            copy.set_weights(model.get_weights())
            wanted = copy.evaluate(batches, verbose=0)
            found = [logs["val_loss"], logs["val_accuracy"]]
            gaps.extend(abs(float(a) - b) for a, b in zip(found, wanted))

    with strategy.scope():
        hooks = Hooks([Told()], model, position, 2)
        hooks.on_train_begin()
        fit.fit(
            None, model, position, end_epoch=2,
            feed=lambda step: batches.repeat(), evaluation=batches,
            evaluation_steps=19, hooks=hooks)
    assert len(gaps) == 4
    return max(gaps)

print(json.dumps({
    f"{name}, {steps} at a time, from step {first}":
        furthest(strategies[name], steps, first)
    for name, steps, first in [
        ("one_device", 5, 9), ("mirrored", 5, 9), ("mirrored", 1, 7),
        ("central_storage", 5, 9)]}))
"""


@pytest.mark.long
def test_each_evaluation_sees_all_rows_after_an_epoch_with_few_steps_left(script):
    """tf-keras traces its functions when the number of steps is that of the epoch."""
    found = script(EVALUATIONS).answer()
    assert len(found) == 4
    assert {how: gap for how, gap in found.items() if not gap < 1e-5} == {}


def test_an_execution_ends_where_a_checkpoint_is_due(executions):
    ends = executions(seconds=1e-6, until_due=lambda step: 30 - step % 30)
    assert set(range(30, 201, 30)) < set(ends)
    assert len(ends) < 20


def test_a_loss_that_is_not_finite_is_found_among_the_steps_of_an_execution():
    position = Position(100)
    check = TerminateOnNaN(position, "About {}.".format)
    check.on_train_begin()
    position.step = 8
    check.on_train_batch_end(7, {"loss": 1.0})
    position.step = 24
    with pytest.raises(
        UserError,
        match=r"one of the steps 9 to 24 \(epoch 1, batch 24.*About range\(9, 25\)\.",
    ):
        check.on_train_batch_end(23, {"loss": math.nan})


def test_checkpoints_are_due_after_a_number_of_steps_or_some_time():
    def keeper(every):
        cadence = Cadence.of(every)
        return Keeper(None, cadence, None, Position(100, step=50), [])

    assert [keeper("20 steps").steps_until_due(step) for step in (50, 69, 70)] == [
        20,
        1,
        20,
    ]
    assert keeper("5m").steps_until_due(50) == math.inf


OF_FIT = """
import json, sys
import numpy as np
import tensorflow as tf
import tf_keras
from strategos.components.trainer.loop import fit
from strategos.components.trainer.loop.callbacks import Hooks
from strategos.components.trainer.loop.position import Position

rows = np.random.default_rng(0).normal(size=(87, 3)).astype(np.float32)
labels = (rows.sum(1, keepdims=True) > 0).astype(np.float32)
batches = tf.data.Dataset.from_tensor_slices((rows, labels)).batch(8)
folder = sys.argv[1]

class Own(tf_keras.Sequential):
    def train_step(self, data):
        logs = super().train_step(data)
        tf.summary.scalar("loss of a step", logs["loss"])
        return {**logs, "norm": tf.linalg.global_norm(self.trainable_weights)}

    def test_step(self, data):
        logs = super().test_step(data)
        tf.summary.scalar("loss of a test", logs["loss"])
        return logs

class Told(tf_keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.calls = []

def told(name):
    def call(self, *arguments, logs=None):
        logs = logs or (arguments[-1] if isinstance(arguments[-1], dict) else {})
        numbers = [x for x in arguments if isinstance(x, int)]
        values = {key: float(value) for key, value in logs.items()}
        stops = name == "on_train_batch_end" and self.stops
        self.calls.append([name, numbers, values])
        self.model.stop_training |= stops and len(self.calls) > 60
    return call

for when in ("begin", "end"):
    for what in ("train", "epoch", "train_batch", "test", "test_batch"):
        name = f"on_{what}_{when}"
        setattr(Told, name, told(name))

def trained(kind, ours, steps, stops):
    tf_keras.utils.set_random_seed(1)
    layers = tf_keras.layers
    model = kind([layers.Dense(4, "relu"), layers.Dense(1, "sigmoid")])
    model.compile("adam", "binary_crossentropy", metrics=["accuracy", "AUC"],
                  steps_per_execution=steps)
    model.build((None, 3))
    logs = f"{folder}/{kind.__name__}-{ours}-{steps}-{stops}"
    callback = Told()
    callback.stops = stops
    board = tf_keras.callbacks.TensorBoard(logs, update_freq=1, write_graph=False)
    callbacks = [callback, board]
    if ours:
        position = Position(11, total=33)
        hooks = Hooks(callbacks, model, position, 3)
        hooks.on_train_begin()
        fit.fit(None, model, position, end_epoch=3,
                feed=lambda step: batches.repeat(), evaluation=batches.repeat(),
                evaluation_steps=11, hooks=hooks)
        hooks.on_train_end()
    else:
        model.fit(batches.repeat(), epochs=3, steps_per_epoch=11, verbose=0,
                  validation_data=batches.repeat(), validation_steps=11,
                  callbacks=callbacks)
    weights = [each.tolist() for each in model.get_weights()]
    return callback.calls, model.history.history, weights, summaries(logs)

def summaries(logs):
    found = []
    for file in sorted(tf.io.gfile.glob(f"{logs}/*/events*")):
        for event in tf.compat.v1.train.summary_iterator(file):
            for value in event.summary.value:
                if value.HasField("tensor") and "steps_per_second" not in value.tag:
                    number = float(tf.make_ndarray(value.tensor))
                    found.append([file.split("/")[-2], value.tag, event.step, number])
    return sorted(found)

different = []
for kind in (tf_keras.Sequential, Own):
    for steps in (1, 4):
        for stops in (False, True):
            pairs = zip(*(trained(kind, ours, steps, stops) for ours in (True, False)))
            names = ("calls", "history", "weights", "summaries")
            for name, (one, other) in zip(names, pairs):
                if one != other or not one:
                    different.append([kind.__name__, steps, stops, name,
                                      str(one)[:2000], str(other)[:2000]])
print(json.dumps(different))
"""


@pytest.mark.long
def test_calls_logs_weights_and_summaries_are_those_of_keras_own_fit(
    warm_tensorflow, tmp_path
):
    """Of stock and own steps, one and four at a time, also where a callback stops."""
    assert warm_tensorflow.script(OF_FIT, str(tmp_path)).answer() == []
