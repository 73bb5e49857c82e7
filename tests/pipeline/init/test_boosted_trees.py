"""`strategos init --baseline`: trees beside scikit-learn's own on the same rows."""

from __future__ import annotations

import importlib.util

import numpy as np
import pyarrow as pa
import pytest
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
)
from sklearn.metrics import accuracy_score, mean_absolute_error, roc_auc_score

from strategos.components.records import columns, streams, write
from strategos.pipeline import cli
from strategos.pipeline.init import boosted_trees, label
from strategos.pipeline.init.columns import Column
from strategos.pipeline.init.sample import read
from strategos.pipeline.root import boosted_trees as kept

ROWS = {"train": 400, "validation": 60, "eval": 150}
CITIES = np.array(["Köln", "Bonn", "Ulm"])
NAMES = ["age", "city", "lists"]


def table(rows, seed, task):
    """age with gaps, a city, a list, and a label that depends on age and city."""
    draw = np.random.default_rng(seed)
    age, city = draw.normal(size=rows).astype(np.float32), draw.integers(3, size=rows)
    target = age + (city == 0) + draw.normal(0, 0.5, rows)
    gaps = draw.random(rows) < 0.1
    labels = {
        "regression": target.astype(np.float32),
        "binary": np.where(target > 0.3, "yes", "no"),
        "multi_class": CITIES[np.digitize(target, [-0.3, 0.8])],
    }[task]
    return {"age": np.where(gaps, np.nan, age), "city": city, "y": labels}


def write_split(folder, split, rows):
    def lists(values, kind):
        given = [None if value != value else [value] for value in values]
        return pa.array(given, pa.list_(kind))

    text = rows["y"].dtype.kind == "U"
    cities = [CITIES[each].encode() for each in rows["city"]]
    labels = [each.encode() for each in rows["y"]] if text else rows["y"].tolist()
    batch = pa.RecordBatch.from_pydict(
        {
            "age": lists(rows["age"].tolist(), pa.float32()),
            "city": lists(cities, pa.binary()),
            "lists": pa.array([[1, 2]] * len(labels), pa.list_(pa.int64())),
            "y": lists(labels, pa.binary() if text else pa.float32()),
        }
    )
    writer = columns.ColumnWriter(str(folder), 0)
    writer.write(columns.compact(batch, {"lists"}))
    place = streams.folder(split)
    write.publish(str(folder), place, writer.close(), "columns", streams.SUFFIX)


@pytest.fixture(params=["binary", "multi_class", "regression"])
def split_rows(request, tmp_path):
    """The task, the examples' folder, and the rows of each split."""
    task, folder = request.param, tmp_path / "examples"
    rows = {
        name: table(number, seed, task)
        for seed, (name, number) in enumerate(ROWS.items())
    }
    for name, each in rows.items():
        write_split(folder, name, each)
    return task, folder, rows


def stock(task, rows):
    """scikit-learn's default trees on the same rows, coded by hand."""
    both = [rows["train"], rows["validation"]]
    known = {name: np.concatenate([each[name] for each in both]) for name in both[0]}
    features, answers = (
        np.column_stack([each["age"].astype(np.float32), each["city"]])
        for each in (known, rows["eval"])
    )
    kind = (
        HistGradientBoostingRegressor
        if task == "regression"
        else HistGradientBoostingClassifier
    )
    model = kind(categorical_features=[1], random_state=0)
    model.fit(features, known["y"])
    wanted = rows["eval"]["y"]
    if task == "binary":
        chances = model.predict_proba(answers)[:, list(model.classes_).index("yes")]
        return roc_auc_score(wanted == "yes", chances)
    judge = mean_absolute_error if task == "regression" else accuracy_score
    return judge(wanted, model.predict(answers))


def label_of(task, rows, tmp_path):
    lines = ["y", *map(str, rows["train"]["y"].tolist())]
    (tmp_path / "labels.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    sample = read(str(tmp_path / "labels.csv"))
    return label.find([Column(sample, "y")], "y")


@pytest.mark.long
def test_the_metric_is_that_of_scikit_learn_on_the_same_rows(split_rows, tmp_path):
    task, folder, rows = split_rows
    found = label_of(task, rows, tmp_path)
    assert found.task == task
    value = boosted_trees.metric(str(folder), found, NAMES)
    # Codes of the categories differ, and with them the order of equal splits.
    assert value == pytest.approx(stock(task, rows), abs=0.02)


def test_rare_categories_and_new_ones_are_missing():
    many = [f"c{number % 300}".encode() for number in range(1000)]
    train = pa.chunked_array([pa.array([*many, None], pa.binary())])
    judge = pa.chunked_array([pa.array([b"c0", b"new", None], pa.binary())])
    known, found, is_category = boosted_trees._coded(train, judge)
    assert is_category
    assert np.nanmax(known) == 253 and np.isnan(known[-1])
    assert np.isnan(found[1:]).all()
    assert found[0] == known[0]


def test_a_record_stays_with_its_examples_when_the_root_moves(tmp_path):
    found = kept.Trees("y", "auc", 0.75)
    (tmp_path / "old" / ".strategos").mkdir(parents=True)
    examples = f"{tmp_path}/old/shop/ExampleGen/examples/3"
    kept.record(str(tmp_path / "old"), examples, found)
    (tmp_path / "old").rename(tmp_path / "new")
    root = str(tmp_path / "new")
    assert kept.recorded(root, f"{root}/shop/ExampleGen/examples/3") == found
    # New data, another split: other examples.
    assert kept.recorded(root, f"{root}/shop/ExampleGen/examples/4") is None
    assert kept.recorded(str(tmp_path), f"{root}/shop/ExampleGen/examples/3") is None


def test_what_cannot_be_compared_is_one_message(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.csv").write_text("a,b\n1,2\n")
    words = ("init", "rows.csv", "--label", "b", "--baseline")
    assert cli.main([*words, "--no-fit"]) == 2
    assert "leave out --no-fit" in capsys.readouterr().err
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name, *rest: None if name == "sklearn" else find(name, *rest),
    )
    assert cli.main([*words]) == 2
    err = capsys.readouterr().err
    assert "pip install 'strategos[baseline]'" in err
    assert not (tmp_path / "rows").exists()
