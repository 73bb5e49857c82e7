"""A row of several classes, from the YAML to the pushed model and its answers."""

from __future__ import annotations

import csv
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn import metrics as stock
from sklearn.datasets import make_multilabel_classification

pytestmark = pytest.mark.long

LABEL = ("rain", "wind", "snow")

YAML = """
name: weather
label: [rain, wind, snow]
weight: importance
data: {examples: data/*.csv, unlabelled: drop}
transform: {module: preprocessing}
trainer: {module: model, batch_size: 64, epochs: 3}
evaluator:
  task: multi_label
  metrics: [auc, macro_auc, macro_f1, exact_match, log_loss]
  bounds:
    log_loss: {better_than: trivial, slices: {class: {at_most: 5}}}
    macro_auc: {may_drop: 0.9}
pusher: {to: serving}
"""

PREPROCESSING = """
import tensorflow as tf

def preprocessing_fn(inputs):
    numbers = {name: tf.cast(inputs[name], tf.float32) / 20 for name in "abcd"}
    kept = ("rain", "wind", "snow", "importance")
    return {**numbers, **{name: inputs[name] for name in kept}}
"""

LISTED = """
import tensorflow as tf

def preprocessing_fn(inputs):
    tags = tf.sparse.to_dense(inputs["tags"], default_value="")
    found = [tf.reduce_any(tags == name, axis=1) for name in ("snow", "rain", "wind")]
    numbers = {name: tf.cast(inputs[name], tf.float32) / 20 for name in "abcd"}
    return {**numbers, "tags": tf.cast(tf.stack(found, axis=1), tf.int64)}
"""

MODEL = """
import tf_keras as keras

def build_model(context):
    inputs = context.inputs()
    joined = keras.layers.Concatenate()([*inputs.values()])
    hidden = keras.layers.Dense(8, "relu")(joined)
    outputs = keras.layers.Dense(len(context.target.columns))(hidden)
    model = keras.Model(inputs, outputs)
    loss = keras.losses.BinaryCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.02), loss)
    return model
"""


def write_rows(path, changed=()):
    """Writes 600 rows; `changed` has a row, a column and its value."""
    values, classes = make_multilabel_classification(
        n_samples=600, n_features=4, n_classes=3, n_labels=2, random_state=0
    )
    rows = [
        dict(zip("abcd", map(int, own), strict=True))
        | {"importance": 1 + number % 3}
        | dict(zip(LABEL, of, strict=True))
        for number, (own, of) in enumerate(zip(values, classes, strict=True))
    ]
    for number, name, value in changed:
        rows[number][name] = value
    path.parent.mkdir(exist_ok=True)
    with path.open("w") as file:
        writer = csv.DictWriter(file, [*rows[0]])
        writer.writeheader()
        writer.writerows(rows)
    return rows


@pytest.fixture(scope="module")
def weather(make_workspace, tmp_path_factory):
    """A workspace whose first row has no value of one label."""
    folder = tmp_path_factory.mktemp("weather")
    files = {"pipeline.yaml": YAML, "preprocessing.py": PREPROCESSING}
    for name, text in {**files, "model.py": MODEL}.items():
        (folder / name).write_text(text)
    write_rows(folder / "data" / "rows.csv", [(0, "wind", "")])
    return make_workspace(folder)


def test_classes_are_trained_judged_pushed_and_predicted(weather):
    done = weather.run()
    assert "left out: 1 row of 600 without a label" in done.stdout
    (evaluation,) = weather.folder.glob("runs/**/summary.json")
    summary = json.loads(evaluation.read_text())
    rows = write_rows(weather.folder / "rows.csv")
    answer = weather.strategos(
        "predict", str(weather.yaml), str(weather.folder / "rows.csv"), "--json"
    )
    logits = [json.loads(line)["predictions"] for line in answer.stdout.splitlines()]
    assert [*logits[0]] == [*LABEL]
    assert "class=wind" in done.stdout and "the share of each class of" in done.stdout
    by_class = {piece["value"]: piece for piece in summary["slices"]}
    assert by_class.keys() == {*LABEL}
    assert summary["blessed"] and summary["overall"]["macro_auc"] == pytest.approx(
        np.mean([piece["metrics"]["auc"] for piece in by_class.values()])
    )
    # The eval split is a third of these rows: the model is the same on all of them.
    score = 1 / (
        1 + np.exp(-np.array([[each[name] for name in LABEL] for each in logits]))
    )
    label = np.array([[row[name] for name in LABEL] for row in rows])
    area = stock.roc_auc_score(label, score, average="macro")
    assert summary["overall"]["macro_auc"] == pytest.approx(area, abs=0.1)


def test_the_model_in_production_may_have_the_classes_in_another_order(weather):
    order = ("--set", "label=[snow, rain, wind]")
    weather.run(*order, "--set", "trainer.epochs=1")
    newest = max(
        weather.folder.glob("runs/**/summary.json"), key=lambda x: x.stat().st_mtime
    )
    first = min(
        weather.folder.glob("runs/**/summary.json"), key=lambda x: x.stat().st_mtime
    )
    before, after = (json.loads(path.read_text()) for path in (first, newest))
    # The model in production, on the same rows, has the metrics that it had.
    assert after["baseline"] == pytest.approx(before["overall"], rel=1e-6)


def test_a_label_other_than_0_or_1_is_named_with_its_column(weather):
    write_rows(weather.folder / "data" / "rows.csv", [(7, "snow", 3)])
    done = weather.run(expect=None)
    assert done.returncode != 0
    assert "the label `snow` has values from 0 to 3 in the training split" in (
        done.stdout + done.stderr
    )


def test_a_feature_of_a_label_column_is_rejected(weather):
    write_rows(weather.folder / "data" / "rows.csv")
    code = weather.folder / "preprocessing.py"
    code.write_text(
        PREPROCESSING.replace("/ 20", '/ 20 + 0 * tf.cast(inputs["snow"], tf.float32)')
    )
    done = weather.run(expect=None)
    code.write_text(PREPROCESSING)
    assert done.returncode != 0
    assert "computes a, b, c, d from the label `snow`" in done.stdout + done.stderr


def test_a_list_of_classes_becomes_a_vector_with_their_names(make_workspace, tmp_path):
    rows = write_rows(tmp_path / "rows.csv")
    numbers = {name: [float(row[name]) for row in rows] for name in "abcd"}
    tags = [[name for name in LABEL if row[name]] for row in rows]
    (tmp_path / "data").mkdir()
    pq.write_table(pa.table({**numbers, "tags": tags}), tmp_path / "data/rows.parquet")
    yaml = YAML.replace("[rain, wind, snow]", "tags").replace("*.csv", "*.parquet")
    yaml = yaml.replace("weight: importance", "").replace(", unlabelled: drop", "")
    (tmp_path / "pipeline.yaml").write_text(yaml)
    model = MODEL.replace("len(context.target.columns)", "3")
    (tmp_path / "model.py").write_text(model)
    (tmp_path / "preprocessing.py").write_text(LISTED)
    made = make_workspace(tmp_path)
    made.run()
    (found,) = tmp_path.glob("runs/**/summary.json")
    slices = json.loads(found.read_text())["slices"]
    shares = {each["value"]: each["metrics"] for each in slices}
    assert shares.keys() == {*LABEL}
    answer = made.strategos(
        "predict", str(made.yaml), str(tmp_path / "data/rows.parquet"), "--json"
    )
    logits = [json.loads(line)["predictions"] for line in answer.stdout.splitlines()]
    for name in LABEL:
        label, score = [name in each for each in tags], [row[name] for row in logits]
        area = stock.roc_auc_score(label, score)
        assert shares[name]["auc"] == pytest.approx(area, abs=0.12)
