from __future__ import annotations

import csv
import gzip
import json
import math
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pyarrow.orc as po
import pyarrow.parquet as pq
import pytest
from google.protobuf import text_format
from hypothesis import given, settings
from hypothesis import strategies as st
from tensorflow_metadata.proto.v0 import schema_pb2

from strategos.components import exported
from strategos.components.data_files.values import DEFAULT_NULL_VALUES
from strategos.components.data_files.values.features import BadValueError, convert
from strategos.components.data_files.values.kinds import Kind
from strategos.components.data_files.values.numerals import Nulls
from strategos.components.errors import BadInputError
from strategos.components.predict import prediction, rows
from strategos.components.records import encode

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
    assert prediction.predict(model, rows) == [
        {"predictions": 15.5, "pair": [15.5, -15.5]},
        {"predictions": -96.0, "pair": [-96.0, 96.0]},
        {"predictions": -96.0, "pair": [-96.0, 96.0]},
    ]


def test_a_csv_may_hold_the_label_and_columns_that_are_not_used(model, tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("late,delay,hour,carrier\n1,3.5,4,AA\n,,5,UA\n")
    answers = prediction.predict(model, path)
    assert [answer["predictions"] for answer in answers] == [-94.0, -93.0]


def test_columns_that_training_did_not_have_travel_with_their_row(model, tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("id,hour,carrier,city\n0017,4,AA,Köln\n0018,5,UA,\n")
    for asked in (path, list(csv.DictReader(path.open()))):
        first, second = prediction.predict(model, asked)
        assert list(first)[:2] == ["id", "city"]
        assert (first["id"], first["city"], second["id"]) == ("0017", "Köln", "0018")
        assert (first["predictions"], second["predictions"]) == (-94.0, -93.0)


def test_a_column_that_looks_like_a_missing_one_is_rejected(model, tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("carrier,hour,tempp\nAA,1,3\n")
    with pytest.raises(BadInputError, match=r"column tempp\n +Did you mean `te"):
        prediction.predict(model, path)


def test_bad_rows_are_answered_with_their_problem(model, tmp_path, capsys):
    path = tmp_path / "rows.csv"
    hours = ["x" if n in (7, 8, 300) else "" if n == 20 else n % 24 for n in range(500)]
    lines = [f"{n},AA,{hour}" for n, hour in enumerate(hours)]
    path.write_text("\n".join(["id,carrier,hour", *lines]) + "\n")
    with pytest.raises(BadInputError, match=r"line 9: column `hour`"):
        prediction.predict(model, path)
    answers = prediction.predict(model, path, mark=True)
    assert [answer["id"] for answer in answers] == [str(n) for n in range(500)]
    assert [n for n, x in enumerate(answers) if "problem" in x] == [7, 8, 20, 300]
    assert "rows.csv: line 302: column `hour`: received 'x'" in answers[300]["problem"]
    assert answers[499]["predictions"] == 499 % 24 + 2 - 100
    prediction.show(answers, model="m")
    assert "496 rows, predicted by m; 4 rows with a problem" in capsys.readouterr().err


def test_one_number_of_two_classes_is_said_to_be_of_the_second(tmp_path, capsys):
    (tmp_path / exported.SAVED_MODEL).touch()
    described = tmp_path / exported.DESCRIPTION
    described.parent.mkdir()
    three = {"classes": ["a", "b", "c"]}
    facts = {"classes": ["no", "yes"], "heads": {"kind": three, "size": {}}}
    described.write_text(json.dumps(facts))
    of = prediction.scored(tmp_path)
    assert of == {"predictions": "yes"}
    prediction.show([{"problem": "?"}, {"predictions": 0.25, "kind": [1.0]}], of=of)
    assert "`predictions` is the score of `yes`" in capsys.readouterr().err
    prediction.show([{"predictions": {"no": 0.75, "yes": 0.25}}], of=of)
    assert "score" not in capsys.readouterr().err


def test_rows_with_a_wrong_number_of_fields_are_answered_in_their_place(
    model, tmp_path
):
    path = tmp_path / "rows.csv"
    lines = [f"{n},AA,{n % 24}" for n in range(500)]
    lines[0] = lines[7] = "AA"
    lines[8], lines[9] = '"8\n",AA,3,4', "9,AA,x"
    lines[499] += ","
    path.write_text("\n".join(["id,carrier,hour", *lines]) + "\n\n")
    with pytest.raises(BadInputError, match="line 2: expected 3 fields"):
        prediction.predict(model, path)
    answers = prediction.predict(model, path, mark=True)
    assert len(answers) == 500
    problems = {n: x["problem"] for n, x in enumerate(answers) if "problem" in x}
    assert list(problems) == [0, 7, 8, 9, 499]
    assert "rows.csv: line 9: expected 3 fields as in the header. " in problems[7]
    assert "Received: 4" in problems[8] and "line 502: " in problems[499]
    assert "rows.csv: line 12: column `hour`: received 'x'" in problems[9]
    good = [n for n in range(500) if n not in problems]
    assert [answers[n]["id"] for n in good] == list(map(str, good))
    assert answers[498]["predictions"] == 498 % 24 + 2 - 100


def test_the_newest_version_of_a_folder_is_asked(model, tmp_path):
    from pathlib import Path

    root = str(Path(model).parent)
    assert prediction._version(Path(root)).name == "10"
    with pytest.raises(BadInputError, match=r"holds no model\n.*strategos run"):
        prediction.predict(str(tmp_path), [])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "carrier,hour\nAA,x\n",
            r"rows.csv: line 2: column `hour`: received 'x'\n +Allowed: an i",
        ),
        (
            "carrier,hour,temp\nAA,1,1\nAA,1,hot\n",
            r"rows.csv: line 3: column `temp`.*\n.*a num",
        ),
        ("carrier,hour\nAA,1_0\n", r"line 2: column `hour`: received '1_0'"),
        (
            "carrier,hours\nAA,1\n",
            r"unknown column hours\n +Did you mean `ho",
        ),
        ("carrier\nAA\n", r"rows.csv: the model needs column hour"),
        ("carrier,hour\nAA,\n", r"rows.csv: line 2: column `hour`: is empty"),
        ("carrier,hour\nAA,1\nAA,NA\n", r"line 3: column `hour`: is empty"),
        ("carrier,hour\nAA,1,2\n", r"rows.csv: line 2: expected 2 fields .* 3"),
        ("carrier,hour\nAA\n", r"rows.csv: line 2: expected 2 fields .* 1"),
        ("carrier,hour,hour\nAA,1,2\n", r"rows.csv: column `hour` occurs 2 times"),
        ('hour,carrier\n1,1\n1,"a\n1,b\n', r"rows.csv: line 3: a quote opens a field"),
        ("carrier,hour\n", r"rows.csv: has a header but no row"),
        ("", r"rows.csv: is empty"),
    ],
)
def test_bad_rows_are_named_as_in_training(model, tmp_path, text, message):
    path = tmp_path / "rows.csv"
    path.write_text(text)
    with pytest.raises(BadInputError, match=message):
        prediction.predict(model, path)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("carrier,hour\nKöln,1\n".encode("latin-1"), r"rows.csv: is not UTF-8 text"),
        (b"\xff\xfec\x00\n\x00", r"rows.csv: is UTF-16 text, not UTF-8"),
        (b"PK\x03\x04", r"rows.csv: is a ZIP archive"),
    ],
)
def test_rows_that_are_no_csv_text_are_named(model, tmp_path, data, message):
    path = tmp_path / "rows.csv"
    path.write_bytes(data)
    with pytest.raises(BadInputError, match=message):
        prediction.predict(model, path)


def test_long_text_is_read(model, tmp_path):
    path = tmp_path / "rows.csv"
    path.write_bytes(b"carrier,hour,temp\n" + b"A" * 200_000 + b",1,2\n")
    assert prediction.predict(model, path)[0]["predictions"] == 200_003


@pytest.mark.parametrize("missing", ["", " ", "NaN", "nan", " NA ", "null"])
def test_a_missing_number_is_spelled_as_in_training(model, tmp_path, missing):
    path = tmp_path / "rows.csv"
    path.write_text(f"carrier,hour,temp\nAA, +3,{missing}\n")
    assert prediction.predict(model, path)[0]["predictions"] == -95
    rows = [{"carrier": "AA", "hour": "3", "temp": missing}]
    assert prediction.predict(model, rows)[0]["predictions"] == -95


def test_the_model_names_the_spellings_of_a_missing_number(model, tmp_path, capsys):
    rows = [{"carrier": "AA", "hour": "3", "temp": "NaN"}]
    prediction.predict(model, rows)
    assert "does not name its data.null_values" in capsys.readouterr().err
    named = shutil.copytree(model, tmp_path / "1")
    description = named / "assets.extra" / "serving.json"
    described = json.loads(description.read_text()) | {"null_values": ["-999"]}
    description.write_text(json.dumps(described))
    (answer,) = prediction.predict(str(named), rows)
    assert math.isnan(answer["predictions"])
    (answer,) = prediction.predict(str(named), [{**rows[0], "temp": "-999"}])
    assert answer["predictions"] == -95
    assert "note" not in capsys.readouterr().err


def test_rows_are_written_as_those_of_the_training(model, tmp_path):
    named = shutil.copytree(model, tmp_path / "1")
    description = named / "assets.extra" / "serving.json"
    form = {"csv": {"delimiter": ";", "decimal": ",", "encoding": "utf-16"}}
    described = json.loads(description.read_text()) | {"reading": form}
    description.write_text(json.dumps(described))
    rows = tmp_path / "rows.csv"
    rows.write_text("carrier;hour;temp\nAA;3;0,5\n", encoding="utf-16")
    plain = tmp_path / "plain.csv"
    plain.write_text("carrier,hour,temp\nAA,3,0.5\n")
    expected = prediction.predict(model, plain)
    assert prediction.predict(str(named), rows) == expected
    texts = [{"carrier": "AA", "hour": "3", "temp": "0.5"}]
    assert prediction.predict(str(named), texts) == expected


def test_a_bad_line_of_json_is_marked_in_its_place(model, tmp_path):
    rows = tmp_path / "rows.jsonl"
    good = ['{"carrier": "AA", "hour": 3, "temp": 0.5}', '{"carrier": "B", "hour": 4}']
    rows.write_text("\n".join([good[0], "{oops", good[1], '{"hour": 1, "carrier": 2']))
    with pytest.raises(BadInputError, match=r"rows.jsonl: line 2: is not a JSON"):
        prediction.predict(model, rows)
    first, second, third, fourth = prediction.predict(model, rows, mark=True)
    assert (first["predictions"], third["predictions"]) == (5.5, -95)
    assert "rows.jsonl: line 2: " in second["problem"]
    assert "rows.jsonl: line 4: " in fourth["problem"]


def write_orc(path):
    columns = {"carrier": ["AA", "B"], "hour": [3, 4], "temp": [0.5, None]}
    po.write_table(pa.table(columns), path)


def write_json(path):
    path.write_text(
        '{"carrier": "AA", "hour": 3, "temp": 0.5, "id": 7}\n'
        '{"hour": 4, "carrier": "B"}\n'
    )


def write_parquet(path):
    columns = {"carrier": ["AA", "B"], "hour": [3, 4], "temp": [0.5, None]}
    pq.write_table(pa.table(columns), path)


def write_gzip(path):
    with gzip.open(path, "wt") as file:
        file.write("carrier,hour,temp\nAA,3,0.5\nB,4,\n")


@pytest.mark.parametrize("write", [write_parquet, write_gzip, write_orc, write_json])
@pytest.mark.parametrize("named", [True, False])
def test_formats_are_known_by_name_or_content(model, tmp_path, write, named):
    suffix = {write_parquet: ".parquet", write_orc: ".orc", write_json: ".jsonl"}.get(
        write, ".csv.gz"
    )
    path = tmp_path / f"rows{suffix if named or write is write_gzip else ''}"
    write(path)
    assert [a["predictions"] for a in prediction.predict(model, path)] == [5.5, -95]


@pytest.mark.parametrize("write", [write_parquet, write_gzip])
def test_rows_are_read_from_a_pipe(model, tmp_path, write):
    write(tmp_path / "rows")
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    content = (tmp_path / "rows").read_bytes()
    with ThreadPoolExecutor(1) as writer:
        writer.submit(pipe.write_bytes, content)
        answers = prediction.predict(model, pipe)
    assert [answer["predictions"] for answer in answers] == [5.5, -95]


def test_a_bad_row_of_standard_input_is_named(model, tmp_path, monkeypatch):
    path = tmp_path / "rows"
    path.write_text("carrier,hour\nAA,3\nAA,x\n")
    with path.open() as file:
        monkeypatch.setattr(os, "dup", lambda _: os.open(file.name, os.O_RDONLY))
        expected = "^standard input: line 3: column `hour`: received 'x'"
        with pytest.raises(BadInputError, match=expected):
            prediction.predict(model, prediction.STDIN)


CELLS = st.one_of(
    st.sampled_from(["", " ", "NA", "nan", "-NaN", "inf", "1_0", "0x1", "+ 5", "5."]),
    st.floats(allow_nan=False, width=32).map(repr),
    st.integers(-(2**63), 2**63 - 1).map(str),
    st.text("0123456789.eE+- ", max_size=6),
)


@settings(derandomize=True, deadline=None, max_examples=40)
@given(cell=CELLS, name=st.sampled_from(["hour", "temp", "carrier"]))
def test_a_cell_is_what_training_reads(cell, name):
    """Beside ExampleGen's own conversion of a CSV with this schema."""
    kind = {"hour": Kind.INT, "temp": Kind.FLOAT, "carrier": Kind.BYTES}[name]
    batch = pa.RecordBatch.from_pydict({name: pa.array([cell or None], pa.string())})
    schema = text_format.Parse(SCHEMA, schema_pb2.Schema())
    features = {feature.name: feature for feature in schema.feature}
    columns = rows.Columns(
        features, frozenset([name]), frozenset(), "late", (), DEFAULT_NULL_VALUES
    )
    try:
        converted = convert(batch, {name: kind}, Nulls(DEFAULT_NULL_VALUES))
        expected = encode.serialize(converted).to_pylist()
    except BadValueError:
        expected = None
    try:
        found = columns.serialized(batch).to_pylist()
    except BadValueError as error:
        missing = "is empty" in str(error.reason)
        assert expected is None or (missing and not converted.column(0)[0].is_valid)
    else:
        assert found == expected


def test_reading_rows_imports_no_heavy_package(tmp_path):
    (tmp_path / "rows.csv").write_text("carrier,hour\nAA,3\n")
    code = f"""
import sys
from strategos.components.predict import rows
from strategos.components.schema_file import read_schema
features = {{f.name: f for f in read_schema({str(tmp_path / "s.pbtxt")!r}).feature}}
used = frozenset(["carrier", "hour"])
columns = rows.Columns(features, used, frozenset(), "late", (), ())
assert list(rows.of_file({str(tmp_path / "rows.csv")!r}, columns))
print(sorted({{"tensorflow", "tfx", "apache_beam"}} & set(sys.modules)))
"""
    (tmp_path / "s.pbtxt").write_text(SCHEMA)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stderr


def test_a_missing_file_is_named(model, tmp_path):
    with pytest.raises(BadInputError, match=r"none.csv: No such file"):
        prediction.predict(model, tmp_path / "none.csv")


def test_answers_are_shown_as_lines_or_as_json(capsys):
    answers = [{"predictions": 0.25, "pair": [1.0, 2, -3.25e-7, 0.0]}]
    prediction.show(answers, model="m")
    shown = "1  predictions 0.2500  pair [1.0000, 2, -3.25e-07, 0.0000]"
    assert shown in capsys.readouterr().out
    prediction.show(answers, as_json=True)
    assert json.loads(capsys.readouterr().out) == answers[0]
