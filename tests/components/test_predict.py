from __future__ import annotations

import csv
import json

import pytest

from strategos.components import predict
from strategos.components.errors import BadInputError

SCHEMA = """
feature { name: "carrier" type: BYTES shape { dim { size: 1 } } }
feature { name: "hour" type: INT shape { dim { size: 1 } } }
feature { name: "temp" type: FLOAT value_count { min: 0 max: 1 } }
feature { name: "delay" type: FLOAT shape { dim { size: 1 } } }
feature { name: "late" type: INT shape { dim { size: 1 } } }
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """hour + length of carrier + temp (-100 where missing), and a pair."""
    import tensorflow as tf

    spec = {
        "carrier": tf.io.FixedLenFeature([1], tf.string),
        "hour": tf.io.FixedLenFeature([1], tf.int64),
        "temp": tf.io.FixedLenFeature([1], tf.float32, -100.0),
    }

    def answer(examples):
        raw = tf.io.parse_example(examples, spec)
        length = tf.strings.length(raw["carrier"])
        total = tf.cast(raw["hour"], tf.float32) + tf.cast(length, tf.float32)
        total += raw["temp"]
        return {"predictions": total, "pair": tf.concat([total, -total], 1)}

    module = tf.Module()
    wanted = tf.TensorSpec([None], tf.string, name="examples")
    module.answer = tf.function(answer, input_signature=[wanted])
    root = tmp_path_factory.mktemp("serving")
    for version in ("9", "10"):
        folder = root / version
        tf.saved_model.save(
            module, str(folder), signatures={"serving_default": module.answer}
        )
        (folder / "assets.extra").mkdir()
        (folder / "assets.extra" / "schema.pbtxt").write_text(SCHEMA)
        described = {"label": "late", "features": ["carrier", "hour", "temp"]}
        (folder / "assets.extra" / "serving.json").write_text(json.dumps(described))
    return str(root / "10")


def test_rows_of_text_are_answered_one_by_one(model):
    rows = [
        {"carrier": "AA", "hour": "3", "temp": "10.5"},
        {"carrier": "OOO", "hour": "1", "temp": ""},
        {"carrier": "B6", "hour": "2"},
    ]
    assert predict.predict(model, rows) == [
        {"predictions": 15.5, "pair": [15.5, -15.5]},
        {"predictions": -96.0, "pair": [-96.0, 96.0]},
        {"predictions": -96.0, "pair": [-96.0, 96.0]},
    ]


def test_a_csv_may_hold_the_label_and_columns_that_are_not_used(model, tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("late,delay,hour,carrier\n1,3.5,4,AA\n,,5,UA\n")
    answers = predict.predict(model, path)
    assert [answer["predictions"] for answer in answers] == [-94.0, -93.0]


def test_the_newest_version_of_a_folder_is_asked(model, tmp_path):
    from pathlib import Path

    root = str(Path(model).parent)
    assert predict._version(Path(root)).name == "10"
    with pytest.raises(BadInputError, match=r"holds no model\n.*strategos run"):
        predict.predict(str(tmp_path), [])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "carrier,hour\nAA,x\n",
            r"rows.csv:2, column hour: received 'x'\n +Allowed: an i",
        ),
        (
            "carrier,hour,temp\nAA,1,1\nAA,1,hot\n",
            r"rows.csv:3, column temp.*\n.*a num",
        ),
        (
            "carrier,hours\nAA,1\n",
            r"rows.csv:1: unknown column hours\n +Allowed: ca",
        ),
        ("carrier\nAA\n", r"rows.csv:1: the model needs column hour"),
        ("carrier,hour\nAA,\n", r"rows.csv:2, column hour: is empty"),
        ("carrier,hour\nAA,1,2\n", r"rows.csv:2: has another number of fields.* 2$"),
        ("carrier,hour\nAA\n", r"rows.csv:2: has another number of fields"),
        ("", r"rows.csv: is empty"),
    ],
)
def test_bad_rows_are_named(model, tmp_path, text, message):
    path = tmp_path / "rows.csv"
    path.write_text(text)
    with pytest.raises(BadInputError, match=message):
        predict.predict(model, path)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("carrier,hour\nKöln,1\n".encode("latin-1"), r"rows.csv: is not UTF-8 text"),
        (b"\xff\xfec\x00\n\x00", r"rows.csv: is not UTF-8 text"),
        (b"carrier,hour\n" + b"A" * 200_000 + b",1\n", r"rows.csv: is not CSV: field"),
    ],
)
def test_rows_that_are_no_csv_text_are_named(model, tmp_path, data, message):
    csv.field_size_limit(1 << 17)  # another module in this process may have raised it
    path = tmp_path / "rows.csv"
    path.write_bytes(data)
    with pytest.raises(BadInputError, match=message):
        predict.predict(model, path)


def test_a_missing_file_is_named(model, tmp_path):
    with pytest.raises(BadInputError, match=r"none.csv: No such file"):
        predict.predict(model, tmp_path / "none.csv")


def test_answers_are_shown_as_lines_or_as_json(capsys):
    answers = [{"predictions": 0.25, "pair": [1.0, 2]}]
    predict.show(answers, model="m")
    assert "1  predictions 0.2500  pair [1.0000, 2]" in capsys.readouterr().out
    predict.show(answers, as_json=True)
    assert json.loads(capsys.readouterr().out) == answers[0]
