"""What the examples' `preprocessing_fn`s make of raw rows."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import tensorflow as tf
import tensorflow_transform.beam as tft_beam
from google.protobuf import text_format
from sklearn.datasets import load_digits
from tensorflow_metadata.proto.v0 import schema_pb2
from tensorflow_transform.tf_metadata import dataset_metadata

from strategos.components.user_code import modules

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]
FLIGHTS = str(ROOT / "examples" / "flights")
DIGITS = str(ROOT / "examples" / "digits")

_TIMETABLE = {
    **{"month": 3, "day": 1, "weekday": 5, "hour": 6, "minute": 0, "arrival": 720},
    **{"carrier": b"AA", "origin": b"JFK", "dest": b"MIA", "tail_number": b"N1"},
    **{"distance": 1000, "late": 0},
}
_WEATHER = {
    **{"temp": 50.0, "dewp": 41.0, "humid": 60.0, "wind_dir": 90.0, "wind_speed": 10.0},
    **{"wind_gust": 20.0, "precip": 0.1, "pressure": 1000.0, "visib": 5.0},
}


def _row(**changes) -> dict[str, list]:
    row = {**_TIMETABLE, **_WEATHER, **changes}
    return {name: [] if value is None else [value] for name, value in row.items()}


@pytest.fixture(scope="module")
def flights(tmp_path_factory):
    """An ordinary flight, one without weather, one of an unknown carrier."""
    rows = [
        _row(),
        _row(distance=2000, **dict.fromkeys(_WEATHER)),
        _row(distance=3000, carrier=b"ZZ", origin=b"SWF"),
    ]
    schema = (ROOT / "schemas" / "flights.pbtxt").read_text()
    metadata = dataset_metadata.DatasetMetadata(
        text_format.Parse(schema, schema_pb2.Schema())
    )
    function = modules.function(FLIGHTS, "preprocessing", "preprocessing_fn")
    folder = tmp_path_factory.mktemp("tft")
    with tft_beam.Context(temp_dir=str(folder)):
        (transformed, _), _ = (
            rows,
            metadata,
        ) | tft_beam.AnalyzeAndTransformDataset(function)
    return transformed


def test_carriers_and_origins_are_indices_into_their_domains(flights):
    assert [row["carrier"][0] for row in flights] == [1, 1, 16]
    assert [row["origin"][0] for row in flights] == [1, 1, 3]
    crosses = [row["carrier_at_origin"][0] for row in flights]
    assert crosses[0] == crosses[1] != crosses[2]


def test_times_lie_on_a_circle(flights):
    assert flights[0]["day_of_year"][0] == 31 + 28 + 1
    six_o_clock, noon = (1, 0), (0, -1)
    assert flights[0]["cyclic"][:4] == pytest.approx([*six_o_clock, *noon], abs=1e-6)
    friday = 2 * math.pi * 5 / 7
    assert flights[0]["cyclic"][4:6] == pytest.approx(
        [math.sin(friday), math.cos(friday)], abs=1e-6
    )


def test_unknown_weather_is_usual_weather_and_no_wind(flights):
    known, unknown, _ = (row["cyclic"][8:] for row in flights)
    assert known == pytest.approx([1, 0], abs=1e-6)  # from the east
    assert unknown == pytest.approx([0, 0])
    assert np.isfinite([row["numeric"] for row in flights]).all()
    distance = [row["numeric"][0] for row in flights]
    assert distance == pytest.approx([-math.sqrt(1.5), 0, math.sqrt(1.5)], abs=1e-5)


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    folder = tmp_path_factory.mktemp("digits")
    modules.load(DIGITS, "data").prepare(folder)
    rows = pq.read_table(folder / "data" / "digits" / "digits.parquet").slice(0, 20)
    return {
        "image": tf.constant(rows["image"].to_pylist())[:, tf.newaxis],
        "label": tf.constant(rows["label"].to_pylist(), tf.int64)[:, tf.newaxis],
    }


def test_images_become_pixels_from_zero_to_one(images):
    function = modules.function(DIGITS, "preprocessing", "preprocessing_fn")
    outputs = function(images)
    assert outputs["image"].shape == (20, 8, 8, 1)
    expected = load_digits().images[:20, ..., np.newaxis] / 16
    assert outputs["image"].numpy() == pytest.approx(expected, abs=0.6 / 255)


def test_images_of_another_size_are_refused(images):
    function = modules.function(DIGITS, "mnist", "preprocessing_fn")
    with pytest.raises(tf.errors.InvalidArgumentError, match="28"):
        function(images)


def test_one_hot_labels_name_the_same_digits(images):
    function = modules.function(DIGITS, "onehot", "preprocessing_fn")
    labels = function(images)["label"].numpy()
    assert labels.shape == (20, 10)
    assert (labels.sum(axis=1) == 1).all()
    assert (labels.argmax(axis=1) == images["label"].numpy()[:, 0]).all()
