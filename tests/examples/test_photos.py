"""The photos: pieces as JPEGs, and pictures that depend on the seed of a row."""

from __future__ import annotations

import io
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow.parquet as pq
import pytest
import tensorflow as tf
from PIL import Image
from sklearn.datasets import load_sample_images

from strategos.components.user_code import modules

FOLDER = str(Path(__file__).parents[2] / "examples" / "photos")


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    folder = tmp_path_factory.mktemp("photos")
    modules.load(FOLDER, "data").prepare(folder)
    return pq.read_table(folder / "data" / "photos" / "photos.parquet").to_pylist()


def test_pieces_are_those_of_the_photographs_as_jpegs(rows):
    assert len(rows) == 320
    assert len({row["piece"] for row in rows}) == 320
    assert sum(row["flower"] for row in rows) == 160
    first = np.asarray(Image.open(io.BytesIO(rows[0]["image"])), np.float32)
    china = load_sample_images().images[0][:40, :40]
    assert first.shape == (40, 40, 3)
    assert np.abs(first - china).mean() < 5  # a JPEG is not exact


def test_pictures_are_cut_by_the_seeds_of_their_rows_and_in_the_centre_when_served(
    rows,
):
    jpegs = tf.constant([[row["image"]] for row in rows[:4]])
    seeds = tf.constant([[1, 0], [1, 1], [1, 2], [1, 3]], tf.int64)
    context = SimpleNamespace(row_seeds=lambda x: seeds[: tf.shape(x)[0]])
    layer = modules.load(FOLDER, "model").Pictures(context)
    drawn = layer(jpegs, training=True).numpy()
    np.testing.assert_array_equal(layer(jpegs[:2], training=True), drawn[:2])
    centre = layer(jpegs).numpy()
    assert drawn.shape == centre.shape == (4, 32, 32, 3)
    assert (drawn != centre).any(axis=(1, 2, 3)).all()
    whole = tf.io.decode_jpeg(rows[0]["image"]).numpy()
    np.testing.assert_array_equal(centre[0], whole[4:36, 4:36])
