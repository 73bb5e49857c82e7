"""Heads whose rows have several classes, beside one that learns a number."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tensorflow as tf
from sklearn import metrics as stock
from sklearn.datasets import make_multilabel_classification

pytestmark = pytest.mark.long

SKY, TAGS = ("rain", "wind", "snow"), ("snow", "rain", "wind")

YAML = """
name: weather
label: {sky: [rain, wind, snow], tags: tags, size: amount}
weight: importance
data: {examples: data/*.parquet}
transform: {module: preprocessing}
trainer: {module: model, batch_size: 64, epochs: 3}
evaluator:
  task: {sky: multi_label, tags: multi_label, size: regression}
  metrics: [sky.auc, sky.log_loss, sky.macro_f1, tags.auc, size.mae]
  slices: [place]
  bounds:
    sky.log_loss: {better_than: trivial, slices: {class: {at_most: 5}}}
    tags.auc: {may_drop: 0.5, slices: {class: {at_least: 0.1}}}
pusher: {to: serving}
"""

PREPROCESSING = """
import tensorflow as tf

def preprocessing_fn(inputs):
    tags = tf.sparse.to_dense(inputs["tags"], default_value="")
    found = [tf.reduce_any(tags == name, axis=1) for name in ("snow", "rain", "wind")]
    numbers = {name: tf.cast(inputs[name], tf.float32) / 20 for name in "abcd"}
    kept = ("rain", "wind", "snow", "importance", "amount")
    learned = {"tags": tf.cast(tf.stack(found, axis=1), tf.int64)}
    return {**numbers, **learned, **{name: inputs[name] for name in kept}}
"""

MODEL = """
import tf_keras as keras

def build_model(context):
    inputs = context.inputs()
    joined = keras.layers.Concatenate()([*inputs.values()])
    hidden = keras.layers.Dense(8, "relu")(joined)
    sky = keras.layers.Dense(3, name="sky")(hidden)
    tags = keras.layers.Dense(3, "sigmoid", name="tags")(hidden)
    size = keras.layers.Dense(1, name="size")(hidden)
    model = keras.Model(inputs, [sky, tags, size])
    cross = keras.losses.BinaryCrossentropy
    losses = {"sky": cross(from_logits=True), "tags": cross(), "size": "mse"}
    model.compile(keras.optimizers.Adam(0.02), losses)
    return model
"""


def write_rows(folder):
    """Writes 600 rows whose tags are the names of their classes."""
    values, classes = make_multilabel_classification(
        n_samples=600, n_features=4, n_classes=3, n_labels=2, random_state=0
    )
    columns = {name: values[:, i].astype(float) for i, name in enumerate("abcd")}
    columns |= {name: classes[:, i] for i, name in enumerate(SKY)}
    columns["tags"] = [
        [n for n, x in zip(SKY, row, strict=True) if x] for row in classes
    ]
    columns["importance"] = [1 + number % 3 for number in range(600)]
    columns["place"] = ["NS"[number % 2] for number in range(600)]
    columns["amount"] = values @ [0.1, 0.2, -0.1, 0.05]
    folder.mkdir()
    pq.write_table(pa.table(columns), folder / "rows.parquet")


@pytest.fixture(scope="module")
def weather(make_workspace, tmp_path_factory):
    folder = tmp_path_factory.mktemp("weather")
    files = {"pipeline.yaml": YAML, "preprocessing.py": PREPROCESSING}
    for name, text in {**files, "model.py": MODEL}.items():
        (folder / name).write_text(text)
    write_rows(folder / "data")
    return make_workspace(folder)


def judged(folder):
    """The rows of the eval split, and the answers of the first version to them."""
    (split,) = folder.glob("runs/**/*ExampleGen/examples/*/Split-eval")
    files = [str(path) for path in split.iterdir() if path.suffix in (".gz", "")]
    zipped = "GZIP" if files[0].endswith(".gz") else ""
    records = [*tf.data.TFRecordDataset(files, zipped)]
    spec = {name: tf.io.FixedLenFeature([], tf.int64) for name in (*SKY, "importance")}
    spec |= {"place": tf.io.FixedLenFeature([], tf.string)}
    rows = {k: v.numpy() for k, v in tf.io.parse_example(records, spec).items()}
    version = min((folder / "serving").glob("[0-9]*"), key=lambda path: int(path.name))
    model = tf.saved_model.load(str(version))
    answers = model.signatures["serving_default"](examples=tf.stack(records))
    return rows, {name: value.numpy() for name, value in answers.items()}


def wanted(rows, answers, chosen, names=SKY):
    """The metrics of some rows and classes, as scikit-learn computes them."""
    weight = rows["importance"][chosen]
    scores = {
        "sky": (tf.sigmoid(answers["sky"]).numpy(), SKY),
        "tags": (answers["tags"], TAGS),
    }
    found = {}
    for head, (score, order) in scores.items():
        label = np.stack([rows[name][chosen] for name in names], 1).ravel()
        score = np.stack([score[chosen, order.index(name)] for name in names], 1)
        weights = {"sample_weight": weight.repeat(len(names))}
        found[f"{head}.auc"] = stock.roc_auc_score(label, score.ravel(), **weights)
        if head == "sky":
            loss = stock.log_loss(label, score.ravel().astype(float), **weights)
            found["sky.log_loss"] = loss
    return found


def test_heads_of_several_classes_are_judged_by_class(weather):
    done = weather.run()
    (path,) = weather.folder.glob("runs/**/summary.json")
    summary = json.loads(path.read_text())
    assert summary["blessed"], summary["reason"]
    rows, answers = judged(weather.folder)
    every = np.ones(len(rows["place"]), bool)
    own = wanted(rows, answers, every)
    assert {x: summary["overall"][x] for x in own} == pytest.approx(own, rel=1e-5)
    places = 0
    for piece in summary["slices"]:
        if piece["feature"] == "place":
            places += 1
            own = wanted(rows, answers, rows["place"] == piece["value"].encode())
            assert "size.mae" in piece["metrics"]
        else:
            own = wanted(rows, answers, every, [piece["value"]])
            assert "size.mae" not in piece["metrics"]
        found = {name: piece["metrics"][name] for name in own}
        assert found == pytest.approx(own, rel=1e-5), piece
    assert (places, len(summary["slices"])) == (2, 5)
    # Of each of two heads: three classes, and a bound over all rows.
    assert len(summary["bounds"]) == 2 * 3 + 2
    answer = weather.strategos(
        "predict",
        str(weather.yaml),
        str(weather.folder / "data/rows.parquet"),
        "--json",
    )
    first = json.loads(answer.stdout.splitlines()[0])
    assert (tuple(first["sky"]), tuple(first["tags"])) == (SKY, TAGS)
    assert "class=wind" in done.stdout


def test_production_may_have_the_classes_of_a_head_in_another_order(weather):
    weather.run()
    before = weather.last_run()["summary"]
    label = "label={sky: [snow, rain, wind], tags: tags, size: amount}"
    weather.run("--set", label, "--set", "trainer.epochs=1", expect=None)
    summaries = weather.folder.glob("runs/**/summary.json")
    newest = max(summaries, key=lambda path: path.stat().st_mtime)
    after = json.loads(newest.read_text())
    assert after["baseline"] == pytest.approx(before["overall"], rel=1e-6)
