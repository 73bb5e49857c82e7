"""A model of two heads, from the YAML to the pushed model and its answers."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest
import tensorflow as tf
from sklearn import metrics as stock

pytestmark = pytest.mark.long

YAML = """
name: animals
label: {kind: species, size: amount}
weight: importance
data: {examples: data/*.csv}
transform: {module: preprocessing}
trainer: {module: model, batch_size: 64, epochs: 3}
evaluator:
  task: {kind: multi_class, size: regression}
  metrics: [kind.accuracy, kind.log_loss, size.mae, size.rmse]
  slices: [place]
  bounds:
    kind.log_loss: {better_than: trivial, slices: {place: {at_most: 9}}}
    size.mae: {better_than: trivial, may_rise: 0.5}
pusher: {to: serving}
"""

PREPROCESSING = """
import tensorflow as tf
import tensorflow_transform as tft

def preprocessing_fn(inputs):
    numbers = {name: tf.cast(inputs[name], tf.float32) for name in "ab"}
    kind = tft.compute_and_apply_vocabulary(inputs["species"], vocab_filename="kinds")
    kept = ("amount", "importance")
    return {**numbers, "species": kind, **{name: inputs[name] for name in kept}}
"""

MODEL = """
import tf_keras as keras

def build_model(context):
    inputs = context.inputs()
    joined = keras.layers.Concatenate()([*inputs.values()])
    hidden = keras.layers.Dense(16, "relu")(joined)
    kind = keras.layers.Dense(3, name="kind")(hidden)
    size = keras.layers.Dense(1, name="size")(hidden)
    model = keras.Model(inputs, [kind, size])
    rate = context.hyperparameters.get("rate", 0.03)
    cross = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(rate), {"kind": cross, "size": "mse"},
                  weighted_metrics={"size": ["mae"]})
    return model
"""

SPECIES = ("ant", "bee", "cat")


def write_rows(path):
    """Writes 600 rows whose first two columns tell the species and the amount."""
    draw, rows = np.random.default_rng(0), []
    for number in range(600):
        a, b = draw.normal(size=2).round(3)
        species = SPECIES[int(a > 0) + int(a > 0.8)]
        amount = round(3 * b + draw.normal(scale=0.1), 3)
        row = {"a": a, "b": b, "species": species, "amount": amount}
        row["importance"], row["place"] = 1 + number % 3, "NS"[number % 2]
        rows.append(row)
    path.parent.mkdir(exist_ok=True)
    with path.open("w") as file:
        writer = csv.DictWriter(file, [*rows[0]])
        writer.writeheader()
        writer.writerows(rows)
    return rows


@pytest.fixture(scope="module")
def animals(make_workspace, tmp_path_factory):
    """A workspace of the two heads."""
    folder = tmp_path_factory.mktemp("animals")
    files = {"pipeline.yaml": YAML, "preprocessing.py": PREPROCESSING}
    for name, text in {**files, "model.py": MODEL}.items():
        (folder / name).write_text(text)
    write_rows(folder / "data" / "rows.csv")
    return make_workspace(folder)


def judged(folder):
    """The rows of the eval split as the pushed model answers them, by column."""
    (split,) = folder.glob("runs/**/*ExampleGen/examples/*/Split-eval")
    files = [str(path) for path in split.iterdir() if path.suffix in (".gz", "")]
    records = [
        *tf.data.TFRecordDataset(files, "GZIP" if files[0][-3:] == ".gz" else "")
    ]
    spec = {name: tf.io.FixedLenFeature([], tf.string) for name in ("species", "place")}
    spec |= {"amount": tf.io.FixedLenFeature([], tf.float32)}
    spec |= {"importance": tf.io.FixedLenFeature([], tf.int64)}
    rows = {k: v.numpy() for k, v in tf.io.parse_example(records, spec).items()}
    (version,) = (folder / "serving").glob("[0-9]*")
    model = tf.saved_model.load(str(version))
    answers = model.signatures["serving_default"](examples=tf.stack(records))
    return rows, {name: value.numpy() for name, value in answers.items()}


def wanted(rows, answers, classes, chosen):
    """The metrics as scikit-learn computes them, of some of the rows."""
    kind = np.array([classes.index(each.decode()) for each in rows["species"]])[chosen]
    weight, size = rows["importance"][chosen], answers["size"][chosen, 0]
    scores = tf.nn.softmax(answers["kind"][chosen]).numpy().astype(float)
    scores /= scores.sum(1, keepdims=True)
    amount = rows["amount"][chosen]
    squared = stock.mean_squared_error(amount, size, sample_weight=weight)
    likeliest = scores.argmax(1)
    return {
        "kind.accuracy": stock.accuracy_score(kind, likeliest, sample_weight=weight),
        "kind.log_loss": stock.log_loss(
            kind, scores, sample_weight=weight, labels=range(3)
        ),
        "size.mae": stock.mean_absolute_error(amount, size, sample_weight=weight),
        "size.rmse": np.sqrt(squared),
    }


def test_heads_are_trained_judged_pushed_and_predicted(animals):
    done = animals.run()
    folder = animals.folder
    (evaluation,) = folder.glob("runs/**/summary.json")
    summary = json.loads(evaluation.read_text())
    assert summary["blessed"], summary["reason"]
    (described,) = folder.glob("serving/*/assets.extra/serving.json")
    heads = json.loads(described.read_text())["heads"]
    assert heads["kind"]["from_logits"] and heads["size"]["from_logits"] is None
    assert sorted(heads["kind"]["classes"]) == [*SPECIES]
    rows, answers = judged(folder)
    classes = heads["kind"]["classes"]
    found = wanted(rows, answers, classes, slice(None))
    assert summary["overall"] == pytest.approx(found, rel=1e-5)
    assert len(summary["slices"]) == 2
    for piece in summary["slices"]:
        chosen = rows["place"] == piece["value"].encode()
        found = wanted(rows, answers, classes, chosen)
        assert piece["metrics"] == pytest.approx(found, rel=1e-5)
    shown = json.loads((evaluation.parent / "answers.json").read_text())["heads"]
    kind = [classes.index(each.decode()) for each in rows["species"]]
    weights = {"sample_weight": rows["importance"]}
    confused = stock.confusion_matrix(kind, answers["kind"].argmax(1), **weights)
    drawn = shown["kind"]["models"]["candidate"]
    assert (drawn["confusion"], drawn["classes"]) == (confused.tolist(), classes)
    groups = shown["size"]["models"]["candidate"]["groups"]
    errors = [each["error"] for each in groups], [each["rows"] for each in groups]
    error = answers["size"][:, 0] - rows["amount"]
    mean = np.average(error, weights=rows["importance"])
    assert sum(errors[1]) == rows["importance"].sum()
    assert np.average(errors[0], weights=errors[1]) == pytest.approx(mean, rel=1e-4)
    assert "the most frequent class of `species`" in done.stdout
    assert "the mean of `amount`" in done.stdout
    path = folder / "rows.csv"
    write_rows(path)
    answer = animals.strategos("predict", str(animals.yaml), str(path), "--json")
    first = json.loads(answer.stdout.splitlines()[0])
    assert {*first["kind"]} == {*SPECIES} and isinstance(first["size"], float)


def test_a_changed_bound_is_judged_without_scoring_again(animals):
    animals.run()
    before = animals.last_run()
    yaml = animals.yaml.read_text()
    animals.yaml.write_text(yaml.replace("at_most: 9", "at_most: 8"))
    done = animals.run()
    animals.yaml.write_text(yaml)
    after = animals.last_run()
    assert "no row is scored again" in done.stdout + done.stderr
    assert after["summary"]["overall"] == before["summary"]["overall"]
    assert after["summary"]["slices"] == before["summary"]["slices"]
    limits = {each["required"] for each in after["summary"]["bounds"]}
    assert 8.0 in limits and 9.0 not in limits


def test_a_second_model_is_compared_with_production_by_head(animals):
    animals.run()
    rows, answers = judged(animals.folder)
    top, pearson = "SparseTopKCategoricalAccuracy", "size.SquaredPearsonCorrelation"
    metrics = "kind.accuracy, kind.log_loss, size.mae, size.rmse"
    metrics += f", {{class: {top}, head: kind, config: {{k: 2}}}}, {pearson}"
    sets = "--set", f"evaluator.metrics=[{metrics}]", "--set", "trainer.epochs=1"
    done = animals.run(*sets, expect=None)
    by_time = sorted(
        animals.folder.glob("runs/**/summary.json"), key=lambda x: x.stat().st_mtime
    )
    before, after = (json.loads(each.read_text()) for each in (by_time[0], by_time[-1]))
    by_class = {f"kind.{top}(k=2)", pearson}
    assert {*after["baseline"]} == {*before["overall"], *by_class}
    for name, value in before["overall"].items():
        assert after["baseline"][name] == pytest.approx(value, rel=1e-6)
    (described,) = animals.folder.glob("serving/*/assets.extra/serving.json")
    classes = json.loads(described.read_text())["heads"]["kind"]["classes"]
    kind = [classes.index(each.decode()) for each in rows["species"]]
    weight = rows["importance"]
    wanted = stock.top_k_accuracy_score(
        kind, answers["kind"], k=2, sample_weight=weight, labels=range(3)
    )
    assert after["baseline"][f"kind.{top}(k=2)"] == pytest.approx(wanted, rel=1e-5)
    cross = np.cov(rows["amount"], answers["size"][:, 0], aweights=weight)
    wanted = cross[0, 1] ** 2 / cross[0, 0] / cross[1, 1]
    assert after["baseline"][pearson] == pytest.approx(wanted, rel=1e-4)
    (check,) = [each for each in after["bounds"] if each["bound"] == "may_rise"]
    risen = after["overall"]["size.mae"] - before["overall"]["size.mae"]
    assert check["metric"] == "size.mae"
    assert check["received"] == pytest.approx(risen, abs=1e-6)
    assert check["ok"] == (risen <= 0.5) == (done.returncode == 0)
    import tensorflow_model_analysis as tfma

    result = tfma.load_eval_result(str(by_time[-1].parent), model_name="candidate")
    ((_, stored),) = [each for each in result.slicing_metrics if not each[0]]
    for name, value in after["overall"].items():
        head, metric = name.split(".")
        assert stored[head][""][metric] == {"doubleValue": pytest.approx(value)}


def test_a_warm_start_moves_the_classes_of_each_head(animals):
    """More cats change the order of the vocabulary; a rate of 0 keeps the weights."""
    animals.run()
    classes = [described(animals.folder)]
    rows = animals.folder / "data" / "rows.csv"
    head, *lines = rows.read_text().splitlines()
    cats = [line for line in lines if ",cat," in line] * 9
    more = rows.with_name("more.csv")
    more.write_text("\n".join([head, *cats, ""]))
    sets = "trainer.warm_start=latest", "trainer.hyperparameters.rate=0.0"
    animals.run(*(x for each in sets for x in ("--set", each)))
    more.unlink()
    classes.append(described(animals.folder))
    assert sorted(classes[0]) == sorted(classes[1]) and classes[0] != classes[1]
    summary = animals.last_run()["summary"]
    assert summary["overall"] == pytest.approx(summary["baseline"], rel=1e-6)


def described(folder):
    """The classes of the head `kind` of the newest version."""
    newest = max(folder.glob("serving/[0-9]*"), key=lambda path: int(path.name))
    facts = json.loads((newest / "assets.extra" / "serving.json").read_text())
    return facts["heads"]["kind"]["classes"]
