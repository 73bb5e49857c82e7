"""`strategos predict --explain` beside Shapley values that are known."""

from __future__ import annotations

import itertools
import json
import math

import numpy as np
import pyarrow as pa
import pytest
from google.protobuf import text_format
from hypothesis import given, settings
from hypothesis import strategies as st
from tensorflow_metadata.proto.v0 import schema_pb2

from strategos.components.data_files.values import DEFAULT_NULL_VALUES
from strategos.components.errors import BadInputError, UserError
from strategos.components.predict import explaining
from strategos.components.predict.explaining import Explainer
from strategos.components.predict.rows import Columns
from strategos.components.records import streams
from strategos.components.records.columns import ColumnWriter
from strategos.components.records.write import publish

SCHEMA = """
feature { name: "a" type: FLOAT shape { dim { size: 1 } } }
feature { name: "b" type: FLOAT value_count { min: 0 max: 1 } }
feature { name: "c" type: INT shape { dim { size: 1 } } }
feature { name: "late" type: INT shape { dim { size: 1 } } }
"""
NAMES = ("a", "b", "c")
NUMBERS = st.floats(-8, 8, width=16)
ROW = st.tuples(NUMBERS, st.none() | NUMBERS, st.integers(-8, 8))
ROWS = st.lists(ROW, min_size=1, max_size=6)


def columns(classes=()):
    schema = text_format.Parse(SCHEMA, schema_pb2.Schema())
    return Columns(
        {feature.name: feature for feature in schema.feature},
        frozenset(NAMES),
        frozenset(),
        "late",
        classes,
        DEFAULT_NULL_VALUES,
    )


def batch(rows):
    types = {"a": pa.float32(), "b": pa.float32(), "c": pa.int64()}
    arrays = {
        name: pa.array([row[i] for row in rows], types[name])
        for i, name in enumerate(NAMES)
    }
    return columns().converted(pa.RecordBatch.from_pydict(arrays))


def parsed(examples):
    """The values of a, b and c of serialized examples; a missing one is -1."""
    import tensorflow as tf

    spec = {
        "a": tf.io.FixedLenFeature([], tf.float32),
        "b": tf.io.FixedLenFeature([], tf.float32, -1.0),
        "c": tf.io.FixedLenFeature([], tf.int64),
    }
    found = tf.io.parse_example(tf.constant(examples), spec)
    return np.stack([found[name].numpy().astype(float) for name in NAMES])


def linear(values):
    return 3 * values[0] - 2 * values[1] + np.sin(values[2]) + 1


def mixed(values):
    return values[0] * values[1] + np.maximum(values[1], values[2]) * values[0]


def signature(function):
    return lambda examples: {
        "predictions": function(parsed(examples))[:, None].tolist()
    }


def explained(function, row, background):
    explainer = Explainer(signature(function), columns(), batch(background))
    facts = explainer.explain(batch([row]))["predictions"]
    parts = {each["feature"]: each["contribution"] for each in facts["contributions"]}
    return facts, np.array([parts[name] for name in NAMES])


def as_values(rows):
    return np.array([[-1.0 if x is None else x for x in row] for row in rows], float).T


def shapley(function, row, background):
    """All orders of the features, for each background row."""
    own, others = as_values([row])[:, 0], as_values(background).T
    sums = np.zeros(3)
    for other in others:
        for order in itertools.permutations(range(3)):
            values = other.copy()
            before = function(values[:, None])[0]
            for each in order:
                values[each] = own[each]
                after = function(values[:, None])[0]
                sums[each] += after - before
                before = after
    return sums / (math.factorial(3) * len(others))


@settings(max_examples=30, deadline=None)
@given(ROW, ROWS)
def test_a_linear_model_has_its_closed_form(row, background):
    facts, parts = explained(linear, row, background)
    own, others = as_values([row])[:, 0], as_values(background)
    expected = np.array(
        [
            3 * (own[0] - others[0].mean()),
            -2 * (own[1] - others[1].mean()),
            np.sin(own[2]) - np.sin(others[2]).mean(),
        ]
    )
    np.testing.assert_allclose(parts, expected, atol=1e-9)
    np.testing.assert_allclose(facts["base"], linear(others).mean(), atol=1e-9)
    np.testing.assert_allclose(parts, shapley(linear, row, background), atol=1e-9)


@settings(max_examples=30, deadline=None)
@given(ROW, ROWS)
def test_contributions_and_base_add_up_to_the_prediction(row, background):
    facts, parts = explained(mixed, row, background)
    (value,) = mixed(as_values([row]))
    np.testing.assert_allclose(facts["value"], value, atol=1e-9)
    np.testing.assert_allclose(facts["base"] + parts.sum(), value, atol=1e-9)
    sizes = [abs(each["contribution"]) for each in facts["contributions"]]
    assert sizes == sorted(sizes, reverse=True)


def test_interactions_are_shared_as_shapley_values_are():
    """The error falls with the number of orders, two for each background row."""
    draw = np.random.default_rng(3)
    row = (3.0, -2.0, 4)
    background = [
        (*draw.normal(size=2).round(2), int(x)) for x in draw.integers(5, size=4)
    ]
    expected = shapley(mixed, row, background)
    _, parts = explained(mixed, row, background * 100)
    np.testing.assert_allclose(parts, expected, atol=0.15)
    assert np.abs(expected).min() > 1
    # Two features of equal role in a product have equal values in either order.
    _, parts = explained(lambda x: x[0] * x[1], (2.0, 2.0, 0), [(1.0, 1.0, 0)])
    np.testing.assert_allclose(parts, [1.5, 1.5, 0.0])


def test_a_feature_without_effect_contributes_nothing():
    row, background = (1.0, None, 2), [(2.0, 3.0, 4), (5.0, None, 1)]
    facts, parts = explained(lambda x: x[0] ** 2, row, background)
    np.testing.assert_allclose(parts, [1 - 14.5, 0, 0])
    by_name = {each["feature"]: each["value"] for each in facts["contributions"]}
    assert by_name == {"a": 1.0, "b": None, "c": 2}


def test_of_several_classes_the_likeliest_is_explained():
    def answer(examples):
        a, b, c = parsed(examples)
        return {"predictions": np.stack([a, b, c], 1).tolist()}

    names = columns(("low", "mid", "high"))
    background = batch([(1.0, 1.0, 1)])
    facts = Explainer(answer, names, background).explain(batch([(2.0, 3.0, 9)]))
    facts = facts["predictions"]
    assert (facts["class"], facts["value"], facts["base"]) == ("high", 9.0, 1.0)
    assert facts["contributions"][0] == {
        "feature": "c",
        "value": 9,
        "contribution": 8.0,
    }


def test_each_head_is_explained_and_text_is_not():
    def answer(examples):
        a, b, c = parsed(examples)
        return {
            "price": a.tolist(),
            "rain": b[:, None].tolist(),
            "word": ["x"] * len(c),
        }

    explainer = Explainer(answer, columns(), batch([(0.0, 0.0, 0)]))
    facts = explainer.explain(batch([(2.0, 3.0, 9)]))
    assert {name: each["value"] for name, each in facts.items()} == {
        "price": 2.0,
        "rain": 3.0,
    }
    text = Explainer(
        lambda examples: {"word": ["x"] * len(examples)},
        columns(),
        batch([(0.0, 0.0, 0)]),
    )
    with pytest.raises(UserError, match="no output of numbers"):
        text.explain(batch([(2.0, 3.0, 9)]))


def test_background_rows_are_a_sample_of_the_training(tmp_path):
    writer = ColumnWriter(str(tmp_path), 0)
    table = pa.RecordBatch.from_pydict(
        {
            "a": pa.array([[float(x)] for x in range(1000)], pa.list_(pa.float32())),
            "b": pa.nulls(1000, pa.list_(pa.float32())),
            "c": pa.array([[x] for x in range(1000)], pa.list_(pa.int64())),
            "id": pa.array([[b"x"]] * 1000, pa.list_(pa.binary())),
        }
    )
    writer.write(table)
    publish(str(tmp_path), streams.folder("train"), writer.close(), "columns", ".arrow")
    found = explaining.of_training(str(tmp_path), columns())
    assert found.schema.names == [*NAMES]
    drawn = [row[0] for row in found.column("c").to_pylist()]
    assert len({*drawn}) == explaining.BACKGROUND_ROWS
    assert [[float(x)] for x in drawn] == found.column("a").to_pylist()
    assert 350 < np.mean(drawn) < 650
    assert found.column("b").null_count == len(drawn)
    with pytest.raises(BadInputError, match="--background FILE"):
        explaining.of_training(str(tmp_path / "none"), columns())


CSV = "carrier,hour,temp,id\nAA,3,40.5,a1\nKöln,17,,a2\n"


def test_the_command_shows_and_prints_explanations(predict, tmp_path, capsys):
    (tmp_path / "rows.csv").write_text(CSV)
    (tmp_path / "others.csv").write_text(
        "carrier,hour,temp\n" + "".join(f"B6,{x % 24},{x}\n" for x in range(30))
    )
    words = ("rows.csv", "--explain", "--background", "others.csv")
    assert predict(*words, "--json") == 0
    for line in capsys.readouterr().out.splitlines():
        answer = json.loads(line)
        facts = answer["explanation"]["predictions"]
        likeliest = max(answer["predictions"], key=answer["predictions"].get)
        assert facts["class"] == likeliest
        assert facts["value"] == answer["predictions"][likeliest]
        parts = [each["contribution"] for each in facts["contributions"]]
        assert sum(parts) + facts["base"] == pytest.approx(facts["value"], abs=1e-6)
    assert predict(*words) == 0
    out = capsys.readouterr().out
    assert "temp = missing" in out and "temp = 40.5" in out
    assert out.count("base of predictions") == 2
    assert predict("rows.csv", "--background", "others.csv") == 2
    assert predict("rows.csv", "--explain", "--background", "none.csv") == 2
    assert predict("rows.csv", "--explain", "--output", "out") == 2
    assert predict("rows.csv", "--explain") == 2
    err = capsys.readouterr().err
    assert "--background needs --explain" in err
    assert "--background: received none.csv" in err
    assert "--explain cannot be combined with --output" in err
    assert "Name a file with such rows: --background FILE" in err


def test_values_are_read_from_files_by_path(predict, tmp_path, capsys):
    folder = tmp_path / "table"
    folder.mkdir()
    (folder / "name.bin").write_bytes("Köln".encode())
    (folder / "rows.csv").write_text("carrier,hour,temp\nname.bin,3,4\n")
    (folder / "same.csv").write_text("carrier,hour,temp\nKöln,3,4\n")
    assert predict("table/rows.csv", "--files", "carrier", "--json") == 0
    found = capsys.readouterr().out
    assert predict("table/same.csv", "--json") == 0
    assert capsys.readouterr().out == found
    (folder / "rows.csv").write_text("carrier,hour,temp\nname.bin,3,4\nno.bin,3,4\n")
    assert predict("table/rows.csv", "--files", "carrier") == 2
    err = capsys.readouterr().err
    assert "rows.csv: line 3: column `carrier`: received 'no.bin'; the file" in err
    assert predict("table/rows.csv", "--files", "hour") == 2
    assert "--files: received hour" in capsys.readouterr().err


def test_a_json_document_is_rows(predict, tmp_path, capsys):
    rows = [{"carrier": "AA", "hour": 3, "temp": 40.5}, {"carrier": "B6", "hour": 5}]
    answers = {}
    lines = "".join(f"{json.dumps(row)}\n" for row in rows)
    for name, text in {
        "lines.jsonl": lines,
        "list.json": json.dumps(rows),
        "indented.json": json.dumps(rows, indent=2),
    }.items():
        (tmp_path / name).write_text(text)
        assert predict(name, "--json") == 0
        answers[name] = capsys.readouterr().out
    assert len({*answers.values()}) == 1
    (tmp_path / "row.json").write_text(json.dumps(rows[0], indent=2))
    assert predict("row.json", "--json") == 0
    assert capsys.readouterr().out == answers["list.json"].splitlines(True)[0]
    rows[1]["hour"] = "x"
    (tmp_path / "list.json").write_text(json.dumps(rows))
    assert predict("list.json") == 2
    assert "list.json: row 2: column `hour`: received 'x'" in capsys.readouterr().err
    assert predict("list.json", "--json", "--bad-rows", "mark") == 0
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert "problem" not in first
    assert second["problem"].startswith("list.json: row 2: column `hour`: received 'x'")
    (tmp_path / "others.json").write_text(json.dumps(rows[:1]))
    words = ("lines.jsonl", "--explain", "--json", "--background")
    assert predict(*words, "others.json") == 0
    answers = list(map(json.loads, capsys.readouterr().out.splitlines()))
    (base,) = {each["explanation"]["predictions"]["base"] for each in answers[:1]}
    assert base == answers[0]["explanation"]["predictions"]["value"]


@pytest.mark.parametrize(
    ("unit", "shown"), [(1, ["0.2500", "+0.1250"]), (1e-6, ["2.50e-07", "+1.25e-07"])]
)
def test_contributions_of_any_size_are_shown(unit, shown):
    part = {"feature": "size", "value": 3.0, "contribution": unit / 8}
    explanation = {"output": {"base": unit / 4, "contributions": [part]}}
    found = [line.split()[-1] for line in explaining.lines(explanation)]
    assert found == shown
