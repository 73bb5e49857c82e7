"""The state of callbacks: kept with its types, or named; restored as it was."""

from __future__ import annotations

import collections
import io
import itertools
import json
import math
import random

import numpy as np
import pytest
import tensorflow as tf

from strategos.components import events
from strategos.components.trainer.loop.callbacks import BestWeights
from strategos.components.trainer.loop.checkpoint.checkpoints import Checkpoints
from strategos.components.trainer.loop.position import Position
from strategos.components.trainer.loop.progress import Progress
from strategos.components.trainer.loop.state.callback_state import CallbackState
from strategos.components.trainer.operation import Operation


class Own(tf.keras.callbacks.Callback):
    """A callback with one attribute, set in turn by each of three functions."""

    def __init__(self, made=None, begun=None):
        super().__init__()
        self.value = made() if made else None
        self._begun = begun

    def on_train_begin(self, logs=None):
        if self._begun:
            self.value = self._begun()


def _resumed(callback, fresh, train, folder):
    """The state of `fresh` after a resume of `callback`, which `train` changed."""
    state = CallbackState([callback])
    callback.on_train_begin()
    state.begin()
    train(callback)
    store = Checkpoints(str(folder), keep=1, is_chief=True)
    plain, arrays = state.take()
    store.save(1, {}, {"callback_state": plain}, arrays)
    store.finish()
    found = store.find(1)
    state = CallbackState([fresh])
    fresh.on_train_begin()
    state.begin()
    state.give(found.state["callback_state"], found.arrays)
    return fresh


class Other(Own):
    """A callback of another class."""


@pytest.mark.parametrize("older", [False, True])
def test_tasks_with_fewer_callbacks_get_the_state_of_their_own(older):
    """As where `callbacks(context)` adds some only `if context.is_chief`."""
    chief = [Own(), Other(), Own(), Own()]
    state = CallbackState(chief)
    state.begin()
    for number, each in enumerate(chief):
        each.value = number
    stored, arrays = state.take()
    if older:  # of a version that did not store the classes
        stored = [{"set": x["set"], "deleted": x["deleted"]} for x in stored]
    worker = [Other(), Own(), Own()]
    state = CallbackState(worker)
    state.begin()
    state.give(stored, arrays)
    expected = [0, 1, 2] if older else [1, 0, 2]
    assert [each.value for each in worker] == expected
    alone = [tf.keras.callbacks.History(), Other()]  # more than the chief has
    CallbackState(alone).give(stored[1:2], arrays)
    assert older or alone[1].value == 1


VALUES = {
    "int": 2**70,
    "float": 0.1,
    "infinite": -math.inf,
    "text": "größe",
    "bytes": b"\x00\xff",
    "bool": True,
    "none": None,
    "list": [1, [2.5, None]],
    "tuple": (1, ("a", (0.5,))),
    "set": {(1, "a", (2, 3))},  # one: the order of several depends on their hashes
    "frozenset": frozenset({0.5}),
    "dict": {0: 0.5, "a": {(1, 2): [3]}, None: b"x", 1.5: {}},
    "deque": collections.deque([1, 2], maxlen=3),
    "ordered": collections.OrderedDict(b=1, a=2),
    "counter": collections.Counter("aab"),
    "default": collections.defaultdict(list, {3: [4]}),
    "names of types": {"tuple": [1], "set": 2, "array": 0},
    "no items": [(), {}, set(), collections.deque()],
}


def _set(value):
    def train(callback):
        callback.value = value

    return train


@pytest.mark.parametrize("name", VALUES)
def test_a_value_is_restored_with_its_type(tmp_path, name):
    value = VALUES[name]
    found = _resumed(Own(object), Own(object), _set(value), tmp_path).value
    assert repr(found) == repr(value)
    assert found == value


def test_a_number_that_is_none_is_restored(tmp_path):
    found = _resumed(Own(), Own(), _set([math.nan]), tmp_path).value
    assert math.isnan(found[0])


ARRAYS = {
    "float32": np.ones((2, 3), np.float32),
    "no rows": np.zeros((0, 2), np.int8),
    "text": np.array(["a", "bc"]),
    "scalar": np.float32(0.1),
    "date": np.datetime64("2026-11-26"),
    "bfloat16": np.array([0.5, 2], tf.bfloat16.as_numpy_dtype),
    "records": np.array([(1, 0.5)], [("a", "i4"), ("b", "f8")]),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_an_array_is_restored_with_its_dtype(tmp_path, name):
    value = {3: [ARRAYS[name]]}
    found = _resumed(Own(), Own(), _set(value), tmp_path).value[3][0]
    assert type(found) is type(ARRAYS[name])
    assert found.dtype == ARRAYS[name].dtype
    np.testing.assert_array_equal(found, ARRAYS[name])


def test_a_variable_keeps_its_identity_and_gets_its_value(tmp_path):
    def made():
        return [tf.Variable([1.0, 2.0]), (tf.Variable(0),)]

    def train(callback):
        callback.value[0].assign([3.0, 4.0])
        callback.value[1][0].assign_add(7)

    fresh = Own(made)
    before = fresh.value
    found = _resumed(Own(made), fresh, train, tmp_path).value
    assert found[0] is before[0]
    assert found[1][0] is before[1][0]
    assert (found[0].numpy().tolist(), int(found[1][0])) == ([3.0, 4.0], 7)


def test_a_tensor_is_restored(tmp_path):
    train = _set(tf.constant([1, 2], tf.int64))
    found = _resumed(Own(), Own(), train, tmp_path).value
    assert found.dtype == tf.int64
    assert found.numpy().tolist() == [1, 2]


def test_a_value_that_went_back_to_that_of_init_is_restored(tmp_path):
    def made():
        return Own(lambda: False, lambda: True)

    assert _resumed(made(), made(), _set(False), tmp_path).value is False


def test_a_value_of_on_train_begin_is_that_of_the_first_start(tmp_path):
    def made(rate):  # read from the optimizer, whose rate a schedule has changed since
        return Own(None, lambda: rate)

    found = _resumed(made(0.1), made(0.001), lambda callback: None, tmp_path)
    assert found.value == 0.1


def test_an_attribute_that_was_deleted_stays_deleted(tmp_path):
    def train(callback):
        del callback.value

    assert "value" not in vars(_resumed(Own(), Own(), train, tmp_path))


def test_an_array_that_is_changed_in_place_is_state(tmp_path):
    def made():
        return np.zeros(2)

    def train(callback):
        callback.value += 1

    found = _resumed(Own(made), Own(made), train, tmp_path).value
    np.testing.assert_array_equal(found, [1, 1])


def test_a_setting_that_does_not_change_is_not_state(tmp_path):
    then, now = Own(lambda: "then"), Own(lambda: "now")
    assert _resumed(then, now, lambda callback: None, tmp_path).value == "now"


class Holder:
    def __init__(self):
        self.count = 0
        self.itself = self


def _count(callback):
    callback.value.count += 1


def _count_first(callback):
    callback.value[0].count += 1


LOST = {
    "an object": (Holder, _count),
    "an object in a list": (
        lambda: [Holder()],
        lambda x: _count(Own(lambda: x.value[0])),
    ),
    "another object": (Holder, _set(Holder())),
    "a generator": (lambda: (x for x in "ab"), lambda x: next(x.value)),
    "an iterator": (itertools.count, lambda x: next(x.value)),
    "random numbers": (lambda: random.Random(1), lambda x: x.value.random()),
    "random arrays": (lambda: np.random.default_rng(1), lambda x: x.value.random()),
}


@pytest.fixture
def warnings(tmp_path):
    """Returns the messages of all warnings so far."""
    sink = tmp_path / "events.jsonl"
    events.open_sink(str(sink), node="Trainer")
    yield lambda: [json.loads(line)["message"] for line in sink.open()]
    events.open_sink(None)


@pytest.mark.parametrize("name", LOST)
def test_what_changes_and_cannot_be_kept_is_named_once(warnings, name):
    made, train = LOST[name]
    callback = Own(made)
    state = CallbackState([callback])
    callback.on_train_begin()
    state.begin()
    train(callback)
    for _ in range(2):
        state.name_lost()
    (message,) = warnings()
    assert "`Own.value` cannot be kept in a checkpoint" in message


STEADY = {
    "an object": Holder,
    "functions": lambda: [print, lambda: 0],
    "a model": lambda: tf.keras.Sequential([tf.keras.layers.Dense(1)]),
    "a file": io.StringIO,
    "random numbers": lambda: np.random.default_rng(1),
}


@pytest.mark.parametrize("name", STEADY)
def test_what_does_not_change_is_not_named(warnings, name):
    callback = Own(STEADY[name])
    state = CallbackState([callback])
    state.begin()
    state.name_lost()
    assert warnings() == []


@pytest.mark.parametrize("keras", ["tf.keras", "keras"])
def test_callbacks_of_keras_are_kept_and_never_named(warnings, tmp_path, keras):
    package = tf.keras if keras == "tf.keras" else pytest.importorskip("keras")
    model = package.Sequential([package.Input((1,)), package.layers.Dense(1)])
    model.compile("sgd", "mse")

    def made():
        own = package.callbacks
        how = {"patience": 3, "min_delta": 0.125}
        stopping = own.EarlyStopping("loss", restore_best_weights=True, **how)
        plateau = own.ReduceLROnPlateau("loss", **how)
        best = BestWeights("loss")
        kept = own.ModelCheckpoint(
            str(tmp_path / "kept.weights.h5"),
            monitor="loss",
            save_best_only=True,
            save_weights_only=True,
        )
        found = [stopping, plateau, best, kept]
        for callback in found:
            callback.set_model(model)
        return found, CallbackState(found)

    before, state = made()
    for callback in before:
        callback.on_train_begin()
    state.begin()
    for epoch, loss in enumerate([0.5, 0.25, 0.75]):
        model.set_weights([np.full((1, 1), epoch), np.zeros(1)])
        for callback in before:
            callback.on_epoch_begin(epoch)
            callback.on_epoch_end(epoch, {"loss": loss})
    state.name_lost()
    assert warnings() == []
    plain, arrays = state.take()
    after, state = made()
    for callback in after:
        callback.on_train_begin()
    state.begin()
    state.give(json.loads(json.dumps(plain)), arrays)
    stopping, plateau, best, kept = after
    assert (stopping.best, stopping.wait, stopping.best_epoch) == (0.25, 1, 1)
    np.testing.assert_array_equal(stopping.best_weights[0], [[1.0]])
    assert (plateau.best, plateau.wait, best.best, kept.best) == (0.25, 1, 0.25, 0.25)
    np.testing.assert_array_equal(best.best_weights[0], [[1.0]])
    for callback in (stopping, plateau):  # less than `min_delta`
        callback.on_epoch_end(3, {"loss": 0.2})
        assert (callback.best, callback.wait) == (0.25, 2)


@pytest.mark.parametrize("keras", ["tf.keras", "keras"])
def test_state_that_belongs_to_a_process_is_not_saved(tmp_path, keras):
    package = tf.keras if keras == "tf.keras" else pytest.importorskip("keras")
    board = package.callbacks.TensorBoard(str(tmp_path), profile_batch=(2, 9))
    progress = Progress(None, Position(5), None, clock=lambda: 9e9)
    state = CallbackState([progress, board, Own()])
    progress._started = board._is_tracing = True  # as in the middle of a profile
    assert state.take() == ([{"of": "Own", "set": {}, "deleted": []}], {})


def test_the_state_that_commit_fecbd19_wrote_is_restored():
    stopping = tf.keras.callbacks.EarlyStopping("val_loss", restore_best_weights=True)
    callbacks = [stopping, Own()]
    plain = [{"best": 0.25, "wait": 1, "best_epoch": 0}, {"value": {"steps": 7}}]
    arrays = {"0/best_weights/0": np.zeros((1, 1)), "0/best_weights/1": np.ones(1)}
    CallbackState(callbacks).give_older(plain, arrays)
    assert (stopping.best, stopping.wait, stopping.best_epoch) == (0.25, 1, 0)
    assert [x.tolist() for x in stopping.best_weights] == [[[0.0]], [1.0]]
    assert callbacks[1].value == {"steps": 7}


RESUMED = """
import os
import signal
import tensorflow as tf

def build_model(context):
    inputs = context.inputs()
    outputs = tf.keras.layers.Dense(1, "sigmoid")(inputs["distance"])
    model = tf.keras.Model({"distance": inputs["distance"]}, outputs)
    model.compile(tf.keras.optimizers.SGD(0.1), "binary_crossentropy")
    return model

class Phases(tf.keras.callbacks.Callback):
    # The rate depends on a flag that an epoch resets, and on losses by epoch.
    def __init__(self, mark):
        super().__init__()
        self.mark = mark
        self.warm = False
        self.by_epoch = {}

    def on_train_begin(self, logs=None):
        self.warm = True
        self.first = float(self.model.optimizer.learning_rate)

    def on_epoch_begin(self, epoch, logs=None):
        if epoch == 2 and os.path.exists(self.mark):
            os.remove(self.mark)
            os.kill(os.getpid(), signal.SIGKILL)
        rate = self.first * (1 if self.warm else 0.1 + len(self.by_epoch))
        self.model.optimizer.learning_rate.assign(rate)

    def on_epoch_end(self, epoch, logs=None):
        self.warm = False
        self.by_epoch[epoch] = (logs["loss"],)

def callbacks(context):
    return [Phases(context.hyperparameters["mark"])]
"""


@pytest.mark.long
def test_a_killed_training_ends_with_the_weights_of_an_undisturbed_one(
    workload, make_spec, train_only, tmp_path
):
    workload.write_module("phases", RESUMED)

    def train(mark):
        spec = make_spec(module="phases", epochs=4, hyperparameters={"mark": str(mark)})
        return train_only(spec, Operation(checkpoint_every="1 step"))

    undisturbed = train(tmp_path / "none")
    mark = tmp_path / "alive"
    mark.touch()
    resumed = train(mark)
    assert resumed["restarts"] == 1
    assert resumed["history"] == undisturbed["history"]
