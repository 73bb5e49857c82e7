"""Splits of numbers of fixed size, which are kept parsed in a temporary file."""

from __future__ import annotations

import dataclasses
import os
import shutil
import subprocess
import tempfile

import numpy as np
import pytest
import tensorflow as tf

from strategos.components import events
from strategos.components.files import storage
from strategos.components.trainer.data import column_files, dataset, stored

ROWS = 1003
SPEC = {
    "x": tf.io.FixedLenFeature([], tf.int64),
    "image": tf.io.FixedLenFeature([2, 3], tf.float32),
    "code": tf.io.FixedLenFeature([2], tf.int64),
    "y": tf.io.FixedLenFeature([1], tf.float32),
}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("numbers")
    paths = []
    for part, rows in enumerate(np.array_split(np.arange(ROWS), 3)):
        paths.append(str(folder / f"part-{part}"))
        with tf.io.TFRecordWriter(paths[-1]) as writer:
            for row in map(int, rows):
                example = tf.train.Example()
                feature = example.features.feature
                feature["x"].int64_list.value.append(row)
                feature["image"].float_list.value.extend(row + np.arange(6) / 8)
                feature["code"].int64_list.value.extend([-row, 1 << 62])
                feature["y"].float_list.value.append(row / 10)
                writer.write(example.SerializeToString())
    return paths


@pytest.fixture(scope="module")
def in_memory(files):
    found = dataset.read(files, SPEC, "y")
    assert found.columns is not None
    return found


@pytest.fixture(scope="module")
def split(files):
    found = dataset.read(files, SPEC, "y", 4096)
    assert found.stored is not None
    assert found.stored.block_batches(16) == 1
    return found


def _listed(batches):
    return [
        ({name: value.numpy().tolist() for name, value in features.items()}, label)
        for features, label in (
            (features, label.numpy().tolist()) for features, label in batches
        )
    ]


def _order(batches):
    return [features["x"].numpy().ravel().tolist() for features, _ in batches]


@pytest.mark.parametrize(
    "first_step",
    [
        0,
        pytest.param(1, marks=pytest.mark.long),
        62,
        pytest.param(63, marks=pytest.mark.long),
        100,
    ],
)
def test_batches_are_those_of_examples_in_memory(split, in_memory, first_step):
    feed = {"seed": 3, "epochs": 2, "first_step": first_step}
    found = _listed(split.shuffled(16, **feed))
    assert found == _listed(in_memory.shuffled(16, **feed))
    assert len(found) == 126 - first_step
    features, label = found[-1]
    rows = np.ravel(features["x"])
    expected = rows[:, None] + np.arange(6) / 8
    assert np.array_equal(np.reshape(features["image"], (-1, 6)), expected)
    assert np.array_equal(np.ravel(label), np.float32(rows / 10))
    assert np.array_equal(features["code"], [[-row, 1 << 62] for row in rows])


@pytest.mark.parametrize(
    ("replicas", "share"),
    [
        pytest.param(3, range(1, 3), marks=pytest.mark.long),
        (4, range(4)),
        pytest.param(4, range(1, 3), marks=pytest.mark.long),
        (2, range(1, 2)),
        pytest.param(1, range(1), marks=pytest.mark.long),
    ],
)
@pytest.mark.parametrize("first_step", [pytest.param(0, marks=pytest.mark.long), 7])
@pytest.mark.parametrize("drop_last", [False, True])
def test_replicas_get_the_batches_of_examples_in_memory(
    split, in_memory, replicas, share, first_step, drop_last
):
    feed = {"seed": 3, "epochs": 2, "replicas": replicas, "share": share}
    feed |= {"first_step": first_step, "drop_last": drop_last}
    found = _listed(split.shuffled(100, **feed))
    assert found == _listed(in_memory.shuffled(100, **feed))
    steps = 2 * (10 if drop_last else 11) - first_step
    assert len(found) == steps * len(share)


def test_evaluation_gets_the_rows_in_order(split, in_memory):
    assert _listed(split.ordered(17)) == _listed(in_memory.ordered(17))
    assert sum(_order(split.ordered(17)), []) == list(range(ROWS))
    assert split.sample(3)[0]["image"].shape == (3, 2, 3)
    shared = {"replicas": 2, "share": range(1, 2)}
    assert _listed(split.ordered(16, **shared)) == _listed(
        in_memory.ordered(16, **shared)
    )


def test_both_ends_are_those_of_examples_in_memory(split, in_memory):
    found, expected = split.ends(20), in_memory.ends(20)
    assert np.ravel(found["x"]).tolist() == [*range(20), *range(ROWS - 20, ROWS)]
    for name in expected:
        assert np.array_equal(found[name], expected[name])


def test_remote_pipelines_read_the_files_themselves(split, in_memory):
    def order(limit, seed):
        kept = dataclasses.replace(split.stored, limit=limit)
        found = dataclasses.replace(split, stored=kept)
        made = tf.function(lambda: found.remote(16, seed=seed, epochs=1))
        assert not made.get_concrete_function().captured_inputs
        return _order(made())

    whole = _order(in_memory.shuffled(16, seed=3, epochs=1))
    assert order(1 << 20, 3) == whole
    assert sorted(sum(order(4096, 3), [])) == list(range(ROWS))
    in_order = _order(in_memory.ordered(16))
    assert order(1 << 20, None) == order(4096, None) == in_order


@pytest.mark.parametrize(
    "chunks",
    [
        pytest.param(1, marks=pytest.mark.long),
        7,
        pytest.param(100, marks=pytest.mark.long),
        pytest.param(334, marks=pytest.mark.long),
    ],
)
def test_more_rows_than_are_permuted_in_memory_are_mixed_in_chunks(
    files, monkeypatch, chunks
):
    monkeypatch.setattr(stored, "CHUNKS", chunks)
    split = dataset.read(files, SPEC, "y", 4096)
    first, second = (
        sum(_order(split.shuffled(16, seed=seed, epochs=1)), []) for seed in (3, 4)
    )
    assert sorted(first) == sorted(second) == list(range(ROWS))
    assert first != second
    whole = _order(split.shuffled(16, seed=3, epochs=2))
    assert _order(split.shuffled(16, seed=3, epochs=2, first_step=70)) == whole[70:]
    if chunks == 100:  # in a random order, a row moves by a third of the pass
        assert np.abs(np.subtract(first, range(ROWS))).mean() > ROWS / 4


def test_rows_are_read_in_windows(split, in_memory, monkeypatch):
    monkeypatch.setattr(stored, "_WINDOW_BYTES", 64)
    found = _listed(split.shuffled(16, seed=3, epochs=1))
    assert found == _listed(in_memory.shuffled(16, seed=3, epochs=1))


@pytest.mark.parametrize("name, label", [("workload", "late"), ("digits", "label")])
def test_columns_beside_the_examples_hold_the_same_rows(name, label, request, tmp_path):
    import tensorflow_transform as tft

    workload = request.getfixturevalue(name)
    spec = tft.TFTransformOutput(workload.graph).transformed_feature_spec()
    examples = shutil.copytree(workload.root / "transformed", tmp_path / "examples")
    for split in ("train", "eval"):
        files = list(map(str, (examples / f"Split-{split}").iterdir()))
        assert column_files.beside(files)
        found = dataset.read(files, spec, label)
        shutil.copy(files[0], f"{files[0]}.more")
        assert not column_files.beside(files)  # the columns of more rows than these
        shutil.rmtree(examples / f"Columns-{split}")
        parsed = dataset.read(files, spec, label)
        assert found.rows == parsed.rows > 0
        kept = zip(*(tf.nest.flatten(s.columns) for s in (found, parsed)), strict=True)
        assert all(np.array_equal(mine, theirs) for mine, theirs in kept)


@pytest.fixture
def small_disk(tmp_path, monkeypatch):
    """A disk for temporary files that is smaller than the rows."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=32k", "none", str(folder)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("cannot mount a small file system here (not root)")
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_rows_that_fill_the_disk_are_streamed(files, in_memory, small_disk, tmp_path):
    events.open_sink(str(tmp_path / "events"))
    try:
        split = dataset.read(files, SPEC, "y", 4096)
    finally:
        events.open_sink(None)
    assert (split.rows, split.stored) == (ROWS, None) and split.records is not None
    (warning,) = events.recorded(str(tmp_path / "events"), "warning")
    assert f"{small_disk} has no space for parsed examples" in warning["message"]
    assert list(small_disk.iterdir()) == []
    assert _listed(split.ordered(16)) == _listed(in_memory.ordered(16))
    seen = [
        row
        for features, _ in split.shuffled(16, seed=1, epochs=1)
        for row in features["x"].numpy().ravel().tolist()
    ]
    assert seen != sorted(seen) == list(range(ROWS))


@pytest.mark.long
def test_split_that_is_larger_than_the_disk_trains(
    files, in_memory, bucket, small_disk
):
    urls = [f"{bucket}/{os.path.basename(file)}" for file in files]
    for file, url in zip(files, urls, strict=True):
        storage.put(file, url)
    assert sum(map(os.path.getsize, files)) > shutil.disk_usage(small_disk).total
    split = dataset.read(urls, SPEC, "y", 4096)
    model = tf.keras.Sequential([tf.keras.layers.Flatten(), tf.keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    rows = split.shuffled(16, seed=1, epochs=2)
    scaled = rows.map(lambda features, label: (features["image"] / ROWS, label / ROWS))
    losses = model.fit(scaled, steps_per_epoch=ROWS // 16, epochs=2).history["loss"]
    assert losses[1] < losses[0]
    assert _listed(split.ordered(16)) == _listed(in_memory.ordered(16))


@pytest.mark.long
def test_all_workers_stream_if_the_disk_of_one_is_full(files):
    split = dataset.read(files, SPEC, "y", 4096, lambda full: not full)
    assert (split.rows, split.stored) == (ROWS, None) and split.records is not None
