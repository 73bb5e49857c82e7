"""Checkpoints on disk: complete or absent, the newest kept, distinguished by model."""

from __future__ import annotations

import subprocess
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from strategos.components.errors import UserError
from strategos.components.trainer.gang.agreement import Agreement
from strategos.components.trainer.gang.preemption import Preempted
from strategos.components.trainer.loop.callbacks import BestWeights, Hooks
from strategos.components.trainer.loop.checkpoint.cadence import Cadence
from strategos.components.trainer.loop.checkpoint.checkpoints import (
    Checkpoints,
    CopiedCheckpoints,
)
from strategos.components.trainer.loop.checkpoint_callback import Keeper, newest
from strategos.components.trainer.loop.position import Position
from strategos.components.trainer.loop.progress import Recorder
from strategos.components.trainer.loop.state import saved_weights, stored_variables
from strategos.components.trainer.loop.warm_start import earlier_weights


def _model(units=3):
    inputs = tf.keras.Input((2,))
    model = tf.keras.Model(inputs, tf.keras.layers.Dense(units, name="dense")(inputs))
    model.compile("adam", "mse")
    model.optimizer.build(model.trainable_variables)
    return model


def _store(tmp_path, keep=2, is_chief=True):
    return Checkpoints(str(tmp_path / "kept"), keep=keep, is_chief=is_chief)


def _save(store, step, model=None, *, waits=True):
    parts = {"model": model or _model()}
    store.save(step, parts, {"patience": step}, {"best/0": np.arange(step)})
    if waits:
        store.finish()


def test_a_checkpoint_gives_back_variables_state_and_arrays(tmp_path):
    store, model = _store(tmp_path), _model()
    model.fit(np.ones((4, 2)), np.ones((4, 3)), verbose=0)
    _save(store, 7, model)
    found, other = store.find(7), _model()
    stored_variables.read(other, f"{found.path}/model")
    assert found.state["patience"] == 7
    np.testing.assert_array_equal(found.arrays["best/0"], np.arange(7))
    for mine, theirs in zip(other.variables, model.variables, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    assert int(other.optimizer.iterations) == 1


def test_the_newest_ones_are_kept(tmp_path):
    store = _store(tmp_path, keep=2)
    for step in (1, 20, 300):
        _save(store, step)
    assert store.steps() == [20, 300]


def test_one_that_was_being_written_does_not_count(tmp_path):
    store = _store(tmp_path)
    _save(store, 1)
    _save(store, 2)
    Path(store.find(2).path, "state.json").unlink()
    assert store.steps() == [1]


def test_one_that_was_never_completed_goes_with_the_next_save(tmp_path):
    store = _store(tmp_path, keep=2)
    for step in (1, 2):
        _save(store, step)
    Path(store.find(2).path, "state.json").unlink()
    _save(store, 3)
    left = sorted(path.name for path in (tmp_path / "kept").iterdir())
    assert left == ["step-0000000001", "step-0000000003"]


def test_object_store_that_tensorflow_cannot_open_has_the_same(bucket, bucket_client):
    def store(is_chief=True):
        return CopiedCheckpoints(f"{bucket}/kept", keep=2, is_chief=is_chief)

    model = _model()
    model.fit(np.ones((4, 2)), np.ones((4, 3)), verbose=0)
    chief, worker = store(), store(is_chief=False)
    for step in (1, 20, 300):
        _save(chief, step, model)
    _save(worker, 4000)
    assert store().steps() == [20, 300]
    worker, other = store(is_chief=False), _model()
    found = worker.find(300)
    stored_variables.read(other, f"{found.path}/model")
    assert found.state["patience"] == 300
    np.testing.assert_array_equal(found.arrays["best/0"], np.arange(300))
    for mine, theirs in zip(other.variables, model.variables, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    mark = "kept/step-0000000300/state.json"
    bucket_client.delete_object(Bucket="bucket", Key=mark)  # as if never completed
    assert store().steps() == [20]
    _save(chief, 301)
    listed = bucket_client.list_objects_v2(Bucket="bucket", Prefix="kept/step-")
    names = {each["Key"].split("/")[1] for each in listed["Contents"]}
    assert names == {"step-0000000020", "step-0000000301"}


def test_training_goes_on_while_a_checkpoint_is_uploaded(bucket, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    store = CopiedCheckpoints("s3://no-such-bucket/kept", keep=2, is_chief=True)
    _save(store, 1, waits=False)  # returns
    with pytest.raises(OSError, match="no-such-bucket"):
        _save(store, 2)  # waits for the first
    assert not list(tmp_path.iterdir())  # no local copy is left


@pytest.mark.parametrize("package", ["tf.keras", "keras"])
def test_steps_beside_the_writing_change_nothing_of_what_is_written(tmp_path, package):
    import keras

    package = keras if package == "keras" else tf.keras
    inputs = package.Input((), dtype="int32")
    hidden = package.layers.Embedding(50, 4)(inputs)
    models = [package.Model(inputs, package.layers.Dense(1)(hidden)) for _ in range(2)]
    for model in models:
        model.compile(package.optimizers.Adam(0.1), "mse")
    ids, labels = np.arange(8, dtype="int32"), np.ones((8, 1), "float32")
    models[0].fit(ids, labels, verbose=0)
    before = [np.array(x) for x in models[0].variables + models[0].optimizer.variables]
    taken = stored_variables.taken(models[0])
    models[0].fit(ids, labels, epochs=3, verbose=0)
    with ThreadPoolExecutor(1) as thread:
        thread.submit(taken.write, f"{tmp_path}/model").result()
    models[1].optimizer.build(models[1].trainable_variables)
    assert stored_variables.read(models[1], f"{tmp_path}/model") == []
    after = [*models[1].variables, *models[1].optimizer.variables]
    for written, value in zip(after, before, strict=True):
        np.testing.assert_array_equal(written, value)


def test_an_array_that_a_callback_changes_afterwards_is_as_it_was(tmp_path):
    store, best = _store(tmp_path), np.arange(500_000)
    store.save(1, {"model": _model()}, {}, {"best": best})
    best[:] = 0
    store.finish()
    np.testing.assert_array_equal(store.find(1).arrays["best"], np.arange(500_000))


SAVES = """
import sys
import numpy as np
import tensorflow as tf
from strategos.components.trainer.loop.checkpoint.checkpoints import Checkpoints

store, part = Checkpoints(sys.argv[1], keep=2, is_chief=True), tf.Module()
part.value = tf.Variable(tf.zeros([10_000_000]))
for step in range(1, 1000):
    part.value.assign_add(tf.ones_like(part.value))
    store.save(step, {"model": part}, {}, {})
    print(step, flush=True)
"""


def test_kill_9_while_one_is_written_leaves_whole_ones(tmp_path, script):
    store, process = _store(tmp_path), script(SAVES, str(tmp_path / "kept"))
    for line in process.stdout:
        if int(line) >= 4 and _begun(tmp_path) - set(store.steps()):
            break
    process.kill()
    process.wait()
    assert _begun(tmp_path) - set(store.steps())  # killed while it was written
    part = tf.Module()
    part.value = tf.Variable(tf.zeros([10_000_000]))
    assert store.steps()
    for step in store.steps():
        assert stored_variables.read(part, f"{store.find(step).path}/model") == []
        np.testing.assert_array_equal(part.value, np.full(10_000_000, step))
    _save(store, 1000)
    assert len(_begun(tmp_path)) == 2


def _begun(tmp_path):
    folders = Path(tmp_path, "kept").glob("step-*")
    return {int(path.name.removeprefix("step-")) for path in folders}


def test_only_the_chiefs_copy_is_kept(tmp_path):
    store = _store(tmp_path, is_chief=False)
    _save(store, 1)
    assert store.steps() == []


@pytest.fixture
def small_disk(tmp_path):
    """A folder of 100 kB."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=100k", "none", str(folder)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("cannot mount a small file system here (not root)")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_is_reported_and_the_earlier_checkpoint_stays(small_disk):
    store = _store(small_disk)
    _save(store, 1)
    message = r"step 2 .*no space left.* step 1 is safe"
    _save(store, 2, _model(units=10_000), waits=False)
    with pytest.raises(UserError, match=message):
        while True:
            time.sleep(0.01)
            store.raise_failure()
    with pytest.raises(UserError, match=message):
        _save(store, 2, _model(units=10_000))
    alone = Agreement(tf.distribute.get_strategy(), 1)
    keeper = Keeper(store, Cadence(steps=1), alone, Position(5), [])
    for first, raised in ((ValueError, ValueError), (Preempted, UserError)):
        with pytest.raises(raised), keeper.writing():
            _save(store, 2, _model(units=10_000), waits=False)
            raise first
    assert store.steps() == [1]
    assert [path.name for path in Path(small_disk, "kept").iterdir()] == [
        "step-0000000001"
    ]


def test_weights_of_another_model_are_rejected_with_the_difference(tmp_path):
    path = str(tmp_path / "weights")
    saved_weights.write(_model(3), path)
    message = r"dense/kernel:0 float32\[2, 4\] here, .*\[2, 3\] there; dense/bias"
    with pytest.raises(UserError, match=message):
        earlier_weights.read(_model(4), path)


def _of_keras3(rate):
    import keras

    inputs = keras.Input((2,))
    model = keras.Model(inputs, keras.layers.Dense(3)(inputs))
    model.compile(keras.optimizers.Adam(rate), "mse")
    return model


class _Subclassed(tf.keras.Model):
    """A model with an optimizer that only its `train_step` uses."""

    def __init__(self):
        super().__init__()
        self.dense = tf.keras.layers.Dense(3)
        self.second = tf.keras.optimizers.Adam(0.1)

    def call(self, inputs):
        return self.dense(inputs)

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = self.compute_loss(x, y, self(x))
        weights = [self.dense.kernel, self.dense.bias]
        of_kernel, of_bias = tape.gradient(loss, weights)
        for optimizer in (self.optimizer, self.second):
            optimizer.apply_gradients([(of_kernel, weights[0]), (of_bias, weights[1])])
        return {"loss": loss}


def _subclassed(rate):
    model = _Subclassed()
    model.compile(tf.keras.optimizers.Adam(rate), "mse")
    model(np.ones((1, 2)))
    return model


def _functional(rate):
    model = _model()
    model.compile(tf.keras.optimizers.Adam(rate), "mse")
    return model


@pytest.mark.parametrize("make", [_functional, _subclassed, _of_keras3])
def test_a_warm_start_takes_the_weights_and_nothing_of_the_optimizers(tmp_path, make):
    path, trained, new = str(tmp_path / "weights"), make(0.5), make(0.01)
    trained.fit(np.ones((4, 2)), np.ones((4, 3)), verbose=0)
    saved_weights.write(trained, path)
    assert not [name for name, _ in tf.train.list_variables(path) if "optim" in name]
    earlier_weights.read(new, path)
    for mine, theirs in zip(new.weights, trained.weights, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    fresh = make(0.01)
    fresh.set_weights(trained.get_weights())
    for each in (new, fresh):
        each.fit(np.ones((4, 2)), np.ones((4, 3)), verbose=0)
    assert float(new.optimizer.learning_rate) == pytest.approx(0.01)
    assert int(new.optimizer.iterations) == 1
    for mine, theirs in zip(new.weights, fresh.weights, strict=True):
        np.testing.assert_allclose(mine, theirs, atol=1e-7)


def test_state_changed_before_fit_sets_the_model_again_is_kept(tmp_path):
    store, position, follower = _store(tmp_path), Position(5), BestWeights("loss")
    alone = Agreement(tf.distribute.get_strategy(), 1)
    keeper = Keeper(store, Cadence(steps=1), alone, position, [follower])
    keeper.set_model(_model())
    keeper.on_train_begin()
    follower.best = 0.5  # restored, say
    keeper.set_model(_model())  # as Keras 3 does
    position.step = 5
    with keeper.writing():
        keeper.on_epoch_end(0)
    (kept,) = store.find(5).state["callback_state"]
    assert kept["set"]["best"]["tree"] == 0.5


class _OwnStep(tf.keras.Model):
    """Builds its compiled metrics in the first step."""

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            output = self(x, training=True)
            loss = self.compute_loss(x, y, output)
        self.optimizer.minimize(loss, self.trainable_variables, tape=tape)
        return self.compute_metrics(x, y, output, None)


class _Stop(tf.keras.callbacks.Callback):
    def __init__(self, position):
        super().__init__()
        self._position = position

    def on_train_batch_end(self, batch, logs=None):
        if self._position.step == 3:
            raise InterruptedError


@pytest.mark.long
@pytest.mark.parametrize("package", ["tf.keras", "keras"])
def test_metrics_built_in_the_first_step_count_the_whole_epoch(tmp_path, package):
    if package == "keras":
        import keras

        own = type("Own", (keras.Model,), {})
    else:
        keras, own = tf.keras, _OwnStep
    rows = np.random.default_rng(1).normal(size=(40, 2)).astype("float32")
    data = tf.data.Dataset.from_tensor_slices((rows, rows[:, :1] > 0)).batch(8)

    def train(folder, *, stops=False):
        keras.utils.set_random_seed(1)
        inputs = keras.Input((2,), name="x")
        model = own(inputs, keras.layers.Dense(1, activation="sigmoid")(inputs))
        model.compile("sgd", "binary_crossentropy", metrics=["accuracy", "AUC"])
        store = Checkpoints(str(tmp_path / folder), keep=1, is_chief=True)
        position = Position(5)
        alone = Agreement(tf.distribute.get_strategy(), 1)
        keeper = Keeper(store, Cadence(steps=2), alone, position, [])
        keeper.restore(model, newest(store, alone))
        seen = Recorder()
        followed = [seen, keeper, *([_Stop(position)] if stops else [])]
        hooks = Hooks(followed, model, position, 1)
        with keeper.writing():
            model.fit(
                data.skip(position.step),
                steps_per_epoch=5 - position.step,
                callbacks=[hooks] if package == "keras" else hooks,
                verbose=0,
            )
        return seen.history

    with pytest.raises(InterruptedError):
        train("stopped", stops=True)
    resumed = train("stopped")
    for name, values in train("undisturbed").items():
        assert resumed[name] == pytest.approx(values, abs=1e-6), name
