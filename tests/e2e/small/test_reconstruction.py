"""An autoencoder of a table without a label, from the YAML to served errors."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest
import tensorflow as tf
from sklearn import metrics as stock

pytestmark = pytest.mark.long

YAML = """
name: payments
label: {reconstruct: all}
weight: importance
data: {examples: data/*.csv}
transform: {module: preprocessing}
trainer: {module: model, batch_size: 64, epochs: 3}
evaluator:
  task: reconstruction
  metrics: [mse, mae]
  slices: [shop]
  confidence_level: 0.9
  bounds:
    mse: {better_than: trivial, may_rise: 0.5, slices: {feature: {at_most: 9}}}
pusher: {to: serving}
"""

PREPROCESSING = """
import tensorflow as tf
import tensorflow_transform as tft

def preprocessing_fn(inputs):
    made = {name: tft.scale_to_z_score(inputs[name]) for name in ("amount", "hour")}
    number = tft.compute_and_apply_vocabulary(inputs["shop"], vocab_filename="shops")
    made["shop"] = tf.one_hot(number[:, 0], 3)
    return {**made, "importance": inputs["importance"]}
"""

MODEL = """
import tf_keras as keras

def build_model(context):
    inputs = context.inputs()
    values = [inputs[name] for name in context.target.columns]
    joined = keras.layers.Concatenate()(values)
    code = keras.layers.Dense(2, "tanh")(joined)
    output = keras.layers.Dense(context.label_spec.shape[0])(code)
    model = keras.Model(inputs, output)
    model.compile(keras.optimizers.Adam(0.03), "mse", weighted_metrics=["mae"])
    return model
"""


def write_rows(path):
    """Writes 600 rows in which hour and shop depend on the amount."""
    draw, rows = np.random.default_rng(0), []
    for number in range(600):
        amount = round(float(draw.normal()), 3)
        hour = round(amount * 3 + float(draw.normal(scale=0.3)), 3)
        row = {"amount": amount, "hour": hour, "shop": "abc"[(amount > 0) + number % 2]}
        rows.append({**row, "importance": 1 + number % 3})
    path.parent.mkdir(exist_ok=True)
    with path.open("w") as file:
        writer = csv.DictWriter(file, [*rows[0]])
        writer.writeheader()
        writer.writerows(rows)


@pytest.fixture(scope="module")
def payments(make_workspace, tmp_path_factory):
    """A workspace of rows without a label."""
    folder = tmp_path_factory.mktemp("payments")
    files = {"pipeline.yaml": YAML, "preprocessing.py": PREPROCESSING}
    for name, text in {**files, "model.py": MODEL}.items():
        (folder / name).write_text(text)
    write_rows(folder / "data" / "rows.csv")
    return make_workspace(folder)


def judged(folder):
    """The weights and shops of the eval split; features and answers by a version."""
    (split,) = folder.glob("runs/**/*ExampleGen/examples/*/Split-eval")
    files = [str(path) for path in split.iterdir() if path.suffix in (".gz", "")]
    records = tf.stack([*tf.data.TFRecordDataset(files, "GZIP" * (".gz" in files[0]))])
    spec = {"importance": tf.io.FixedLenFeature([], tf.int64)}
    spec["shop"] = tf.io.FixedLenFeature([], tf.string)
    rows = {k: v.numpy() for k, v in tf.io.parse_example(records, spec).items()}
    version = min(folder.glob("serving/[0-9]*"))
    signatures = tf.saved_model.load(str(version)).signatures
    made = signatures["transform_features"](examples=records)
    features = np.concatenate([made[x].numpy() for x in ("amount", "hour", "shop")], 1)
    answers = signatures["serving_default"](examples=records)
    return rows, features, {name: value.numpy() for name, value in answers.items()}


def wanted(features, answers, weight):
    given = features, answers
    return {
        "mse": stock.mean_squared_error(*given, sample_weight=weight),
        "mae": stock.mean_absolute_error(*given, sample_weight=weight),
    }


def test_an_autoencoder_is_trained_judged_pushed_and_predicts_errors(payments):
    done = payments.run()
    folder = payments.folder
    (evaluation,) = folder.glob("runs/**/summary.json")
    summary = json.loads(evaluation.read_text())
    assert summary["blessed"], summary["reason"]
    assert "the mean of each value of the features for all rows" in done.stdout
    rows, features, answers = judged(folder)
    weight, found = rows["importance"], answers["predictions"]
    assert summary["overall"] == pytest.approx(
        wanted(features, found, weight), rel=1e-5
    )
    low, high = summary["intervals"]["metrics"]["mse"]
    assert low < summary["overall"]["mse"] < high
    places = {"amount": [0], "hour": [1], "shop": [2, 3, 4]}
    assert len(summary["slices"]) == 6
    for piece in summary["slices"]:
        some, columns = slice(None), slice(None)
        if piece["feature"] == "feature":
            columns = places[piece["value"]]
        else:
            some = rows["shop"] == piece["value"].encode()
        parts = features[some][:, columns], found[some][:, columns], weight[some]
        assert piece["metrics"] == pytest.approx(wanted(*parts), rel=1e-5)
    drawn = json.loads((evaluation.parent / "answers.json").read_text())["models"]
    quantiles = {share: value for share, value, _ in drawn["candidate"]["quantiles"]}
    row = ((features - found) ** 2).mean(axis=1).repeat(weight)
    for share, value in quantiles.items():
        known = np.quantile(row, share, method="inverted_cdf")
        assert value == pytest.approx(known, rel=0.1)
    squares = ((features - found) ** 2).mean(axis=1, keepdims=True)
    np.testing.assert_allclose(answers["reconstruction_error"], squares, rtol=1e-5)
    (described,) = folder.glob("serving/*/assets.extra/serving.json")
    known = json.loads(described.read_text())
    assert known["reconstructs"] == {"amount": 1, "hour": 1, "shop": 3}
    assert "importance" not in known["features"]
    path = folder / "rows.csv"
    path.write_text("amount,hour,shop\n0.5,1.5,b\n0.5,-9,b\n")
    shown = payments.strategos("predict", str(payments.yaml), str(path), "--json")
    usual, odd = map(json.loads, shown.stdout.splitlines())
    assert [*usual["predictions"]] == [
        "amount",
        "hour",
        "shop[0]",
        "shop[1]",
        "shop[2]",
    ]
    assert odd["reconstruction_error"] > 5 * usual["reconstruction_error"]
    shown = payments.strategos("predict", str(payments.yaml), str(path), "--explain")
    because = shown.stdout.partition("     2  predictions amount ")[2].splitlines()
    assert "base of reconstruction_error" in because[1]
    assert because[2].split()[:3] == ["hour", "=", "-9.0"]
    path.unlink()


def test_a_second_model_is_compared_by_the_errors_that_each_serves(payments):
    payments.run()
    before = payments.last_run()["summary"]
    source = payments.folder / "preprocessing.py"
    text = source.read_text()
    source.write_text(text.replace("= {name: tft", "= {name: 2 * tft"))
    payments.run(expect=None)
    source.write_text(text)
    after = payments.last_run()["summary"]
    for name, value in before["overall"].items():
        assert after["baseline"][name] == pytest.approx(value, rel=1e-5)
    trivial = after["trivial"]["mse"], before["trivial"]["mse"]
    assert trivial[0] > 1.5 * trivial[1]  # the candidate's own features
