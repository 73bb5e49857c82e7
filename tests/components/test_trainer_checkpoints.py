"""Checkpoints on disk: complete or not there, the newest kept, told apart by model."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from strategos.components.errors import UserError
from strategos.components.trainer import checkpoints
from strategos.components.trainer.checkpoints import Checkpoints
from strategos.components.trainer.keeper import Cadence


def _model(units=3):
    inputs = tf.keras.Input((2,))
    model = tf.keras.Model(inputs, tf.keras.layers.Dense(units, name="dense")(inputs))
    model.compile("adam", "mse")
    model.optimizer.build(model.trainable_variables)
    return model


def _store(tmp_path, keep=2, is_chief=True):
    return Checkpoints(str(tmp_path / "kept"), keep=keep, is_chief=is_chief)


def _save(store, step, model=None):
    parts = {"model": model or _model()}
    store.save(step, parts, {"patience": step}, {"best/0": np.arange(step)})


def test_a_checkpoint_gives_back_variables_state_and_arrays(tmp_path):
    store, model = _store(tmp_path), _model()
    model.fit(np.ones((4, 2)), np.ones((4, 3)), verbose=0)
    _save(store, 7, model)
    found, other = store.find(7), _model()
    checkpoints.restore(other, f"{found.path}/model")
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


def test_only_the_chiefs_copy_is_there(tmp_path):
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


def test_a_full_disk_is_said_and_the_earlier_checkpoint_stays(small_disk):
    store = _store(small_disk)
    _save(store, 1)
    with pytest.raises(UserError, match=r"step 2 .*no space left.* step 1 is safe"):
        _save(store, 2, _model(units=10_000))
    assert store.steps() == [1]
    assert [path.name for path in Path(small_disk, "kept").iterdir()] == [
        "step-0000000001"
    ]


def test_weights_of_another_model_are_refused_by_what_differs(tmp_path):
    path = str(tmp_path / "weights")
    checkpoints.write_weights(_model(3), path)
    message = r"dense/kernel:0 float32\[2, 4\] here, .*\[2, 3\] there; dense/bias"
    with pytest.raises(UserError, match=message):
        checkpoints.warm_start(_model(4), path)


def test_a_warm_start_takes_the_weights_and_not_the_optimizers_state(tmp_path):
    path, trained, new = str(tmp_path / "weights"), _model(), _model()
    trained.fit(np.ones((4, 2)), np.ones((4, 3)), verbose=0)
    checkpoints.write_weights(trained, path)
    checkpoints.warm_start(new, path)
    for mine, theirs in zip(new.variables, trained.variables, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    assert int(new.optimizer.iterations) == 0


@pytest.mark.parametrize(
    ("text", "cadence"),
    [
        ("30s", Cadence(seconds=30)),
        ("5m", Cadence(seconds=300)),
        ("1h", Cadence(seconds=3600)),
        ("200 steps", Cadence(steps=200)),
        ("1 step", Cadence(steps=1)),
    ],
)
def test_a_cadence_is_a_time_or_a_number_of_steps(text, cadence):
    assert Cadence.of(text) == cadence
