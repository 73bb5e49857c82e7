"""The digits' data preparation: images keep their pixels, MNIST its division."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from PIL import Image
from sklearn.datasets import load_digits

from strategos.components.data_files.splitting import Splitter
from strategos.components.user_code import modules

FOLDER = Path(__file__).parents[2] / "examples" / "digits"


@pytest.fixture
def data():
    return modules.load(str(FOLDER), "data")


@pytest.fixture
def mnist(tmp_path, monkeypatch):
    """A file of the form of mnist.npz: digits of 28 x 28 pixels, in two parts."""
    images = np.kron(load_digits().images[:40], np.ones((3, 3)))
    images = np.pad(images * 15, [(0, 0), (2, 2), (2, 2)]).astype(np.uint8)
    labels = load_digits().target[:40].astype(np.uint8)
    arrays = {"x_train": images[:30], "x_test": images[30:]}
    arrays |= {"y_train": labels[:30], "y_test": labels[30:]}
    path = tmp_path / "mnist.npz"
    np.savez_compressed(path, **arrays)
    monkeypatch.setenv("MNIST", str(path))
    return arrays


def _pixels(png: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(png)))


def test_bundled_digits_keep_their_pixels_and_labels(data, tmp_path):
    data.prepare(tmp_path)
    (file,) = tmp_path.glob("data/digits/*")
    table = pq.read_table(file)
    assert table.column_names == ["index", "image", "label"]
    assert table.num_rows == 1797
    assert table["label"].to_pylist() == load_digits().target.tolist()
    image = _pixels(table["image"][7].as_py())
    assert image.shape == (8, 8)
    assert (np.rint(image / 255 * 16) == load_digits().images[7]).all()


def test_mnist_keeps_its_two_parts(data, mnist, tmp_path):
    data.prepare_mnist(tmp_path)
    table = pq.read_table(tmp_path / "data" / "mnist" / "mnist.parquet")
    assert table["part"].to_pylist() == ["train"] * 30 + ["test"] * 10
    test = table.slice(30)
    assert test["label"].to_pylist() == mnist["y_test"].tolist()
    assert (_pixels(test["image"][3].as_py()) == mnist["x_test"][3]).all()


def test_mnist_trains_on_its_training_part_and_is_judged_on_the_other():
    overlay = yaml.safe_load((FOLDER / "mnist.yaml").read_text())
    splitter = Splitter.from_json(json.dumps(overlay["data"]["split"]), spans=[0])
    parts = pa.RecordBatch.from_pydict({"part": ["train", "test"]})
    found = splitter.masks(parts, span=0, file="mnist.parquet", row=0)
    assert found["train"].tolist() == [True, False]


@pytest.mark.parametrize("value", ["", "no/such/file.npz"])
def test_missing_mnist_names_the_variable_to_set(data, tmp_path, monkeypatch, value):
    monkeypatch.setenv("MNIST", value)
    with pytest.raises(SystemExit, match=r"environment variable MNIST.*mnist\.npz"):
        data.prepare_mnist(tmp_path)
    assert not (tmp_path / "data").exists()


def test_wrong_arrays_are_named(data, mnist, tmp_path, monkeypatch):
    np.savez(tmp_path / "other.npz", x_train=np.zeros(3))
    monkeypatch.setenv("MNIST", str(tmp_path / "other.npz"))
    with pytest.raises(SystemExit, match="y_train"):
        data.prepare_mnist(tmp_path)
    np.savez(tmp_path / "flat.npz", **{**mnist, "x_train": np.zeros((30, 784))})
    monkeypatch.setenv("MNIST", str(tmp_path / "flat.npz"))
    with pytest.raises(SystemExit, match=r"x_train is float64 \[30, 784\]"):
        data.prepare_mnist(tmp_path)
