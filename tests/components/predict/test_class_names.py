"""Names of classes in answers, where some are numbers as out-of-vocabulary buckets."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
import tensorflow as tf

from strategos.components import exported
from strategos.components.predict import explaining, prediction
from strategos.components.predict.rows import Columns, of_texts

ROWS = [{"carrier": "AA", "hour": "3"}, {"carrier": "?", "hour": "17", "temp": "9"}]


@pytest.fixture
def named(project, tmp_path):
    """A copy of the model with four values a row: `named(classes)`."""

    def copy(*classes):
        folder = tmp_path / "model"
        shutil.copytree(project / "serving" / "flights" / "10", folder)
        file = folder / exported.DESCRIPTION
        described = json.loads(file.read_text())
        file.write_text(json.dumps({**described, "classes": classes}))
        return folder

    return copy


def test_buckets_have_the_index_as_their_name(named):
    for answer in prediction.predict(str(named("2", "1", "late")), ROWS):
        assert list(answer["predictions"]) == ["2", "1", "late", "3"]


def test_a_class_that_is_called_as_a_bucket_keeps_its_probability(named):
    folder = named("late", "3", "2")
    columns = Columns.of(folder)
    examples = [each.example for each in of_texts(ROWS, columns, False)]
    loaded = tf.saved_model.load(str(folder)).signatures["serving_default"]
    expected = loaded(examples=tf.constant(examples))["predictions"].numpy()
    answers = prediction.predict(
        str(folder),
        ROWS,
        background=lambda own: of_texts(ROWS, own, False)[0].features[0],
    )
    found = [answer["predictions"] for answer in answers]
    np.testing.assert_array_equal(np.array(found, np.float32), expected)
    for answer, row in zip(answers, expected, strict=True):
        explained = answer[prediction.EXPLANATION]["predictions"]
        assert explained["class"] == str(row.argmax())
        assert explained["value"] == pytest.approx(row.max())
        assert explaining.lines(answer[prediction.EXPLANATION])
