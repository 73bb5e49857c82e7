"""A model that ranks the rows of a query, from the YAML to the report."""

from __future__ import annotations

import csv
import json
import shutil

import numpy as np
import pytest
import tensorflow as tf
from sklearn.metrics import ndcg_score

from strategos.components.records import read

pytestmark = pytest.mark.long

YAML = """
name: hotels
label: clicks
data:
  examples: data/*.csv
  split: {by: hash, keys: [session]}
transform: {module: search}
trainer: {module: search, batch_size: 64, epochs: 3}
evaluator:
  task: regression
  metrics: [ndcg@5, mse]
  query: session
  slices: [country]
  bounds:
    ndcg@5: {better_than: trivial, may_drop: 0.05, slices: {country: {at_least: 0.1}}}
pusher: {to: serving}
"""

SEARCH = """
import tensorflow as tf
import tf_keras as keras

def preprocessing_fn(inputs):
    numbers = {name: tf.cast(inputs[name], tf.float32) for name in ("price", "stars")}
    return {**numbers, "clicks": inputs["clicks"]}

def build_model(context):
    inputs = context.inputs()
    joined = keras.layers.Concatenate()([*inputs.values()])
    model = keras.Model(inputs, keras.layers.Dense(1)(joined))
    model.compile(keras.optimizers.Adam(0.02), "mse")
    return model
"""


def rows_of(sessions):
    """Rows of sessions, mixed; the grade is above 0 for the best two."""
    draw = np.random.default_rng(0)
    rows = []
    for session in range(sessions):
        size = draw.integers(2, 12)
        price, stars = draw.normal(size=size), draw.integers(1, 6, size)
        order = np.argsort(price - stars + draw.normal(size=size))
        grade = np.where(order[order] < 1, 3, 0)
        grade[order[:2]] = (3, 1)
        country = ("de", "fr")[session % 2]
        named = dict(session=f"s{session}", country=country)
        for i in range(size):
            found = dict(price=f"{price[i]:.3f}", stars=stars[i], clicks=grade[i])
            rows.append({**named, **found})
    draw.shuffle(rows)
    return rows


@pytest.fixture(scope="module")
def hotels(make_workspace, tmp_path_factory):
    folder = tmp_path_factory.mktemp("hotels")
    (folder / "data").mkdir()
    (folder / "pipeline.yaml").write_text(YAML)
    (folder / "search.py").write_text(SEARCH)
    with (folder / "data" / "rows.csv").open("w") as file:
        writer = csv.DictWriter(
            file, ["session", "country", "price", "stars", "clicks"]
        )
        writer.writeheader()
        writer.writerows(rows_of(300))
    return make_workspace(folder)


def sessions_in(files):
    """The sessions in TFRecord files."""
    spec = {"session": tf.io.FixedLenFeature([], tf.string)}
    return {
        session.decode()
        for batch in read.batches(files, 1000)
        for session in tf.io.parse_example(batch, spec)["session"].numpy()
    }


def test_a_model_is_judged_by_how_it_ranks_and_judged_again_without_scoring(hotels):
    assert "blessed" in hotels.run().stdout
    (path,) = hotels.folder.glob("runs/**/summary.json")
    summary = json.loads(path.read_text())
    eval_split = hotels.folder.glob("runs/**/ExampleGen/**/Split-eval/*.gz")
    evaluated = sessions_in(sorted(map(str, eval_split)))
    data, copy = hotels.folder / "data" / "rows.csv", hotels.folder / "rows.csv"
    shutil.copy(data, copy)
    answer = hotels.strategos("predict", str(hotels.yaml), str(copy), "--json")
    gains, scores = {}, {}
    for row, line in zip(
        csv.DictReader(data.open()), answer.stdout.splitlines(), strict=True
    ):
        session, score = row["session"], json.loads(line)["predictions"]
        gains.setdefault(session, []).append(2 ** int(row["clicks"]) - 1)
        scores.setdefault(session, []).append(float(np.ravel(score)[0]))
    found = [ndcg_score([gains[x]], [scores[x]], k=5) for x in evaluated]
    assert summary["overall"]["ndcg@5"] == pytest.approx(np.mean(found), rel=1e-6)
    assert summary["queries"]["number"] == len(evaluated) < 300
    again = hotels.run("--set", "evaluator.bounds.ndcg@5.at_least=0.999", expect=3)
    assert "its sums are judged" in again.stderr
    assert "ndcg@5, overall: at least 0.999 required" in again.stdout
    assert f"{len(evaluated)} values of `session`" in again.stdout


def test_a_split_that_divides_queries_is_rejected_before_the_run(hotels):
    sets = "--set", "data.split={by: ratio, keys: []}"
    done = hotels.strategos("validate", str(hotels.yaml), *sets, expect=2)
    assert "evaluator.query: ranks all rows of a value of `session`" in done.stderr
