"""Metrics by class, beside TFMA's own run on the same rows and scikit-learn."""

from __future__ import annotations

import contextlib
import json
import math
import pickle
import re
from concurrent import futures
from pathlib import Path

import numpy as np
import pytest
import tensorflow_model_analysis as tfma
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as stock_metrics

from strategos.components import events
from strategos.components.errors import UserError
from strategos.components.evaluation.classes.entries import SliceMembership
from strategos.components.evaluation.intervals import resampling
from strategos.components.evaluation.library import by_class, classes, names, rehearsal
from strategos.components.evaluation.metrics import (
    METRICS,
    Batch,
    measured,
    plain,
)
from strategos.components.evaluation.sums import Sums

BY_TASK = {
    "binary": [
        "MatthewsCorrelationCoefficient",
        "RecallAtPrecision(precision=0.6)",
        "BinaryIoU",
    ],
    "multi_class": ["SparseTopKCategoricalAccuracy(k=2)", "ExactMatch"],
    "regression": [
        "SquaredPearsonCorrelation",
        "MeanAbsolutePercentageError",
        "CosineSimilarity",
    ],
}


def rows_of(draw, count=300):
    rows = []
    for _ in range(count):
        x = draw.normal(size=2)
        rows.append(
            {
                "x": [float(value) for value in x],
                "late": int(x.sum() + draw.normal() > 0.5),
                "grade": int(np.argmax([*x, draw.normal()])),
                "delay": float(2 + x[0] + draw.normal()),
                "month": int(draw.integers(1, 4)),
                "w": float(draw.choice([0.5, 1.0, 3.0])),
            }
        )
    return rows


@pytest.mark.parametrize(
    "task",
    [
        pytest.param("binary", marks=pytest.mark.long),
        pytest.param("multi_class", marks=pytest.mark.long),
        "regression",
    ],
)
def test_values_are_those_of_tfma(
    workload, tmp_path, evaluate, stock, by_slice, artifact, eval_split, task
):
    """With weights and slices, beside the model in production."""
    from tfx.types import standard_artifacts

    examples = eval_split(rows_of(np.random.default_rng(4)), files=3)
    section = {"task": task, "metrics": BY_TASK[task], "slices": ["month"]}
    first = BY_TASK[task][0]
    bounds = {first: {"may_drop": 1e9, "slices": {"month": {"at_least": 1e9}}}}
    before = artifact(standard_artifacts.Model, workload[task, "baseline"])
    events.open_sink(str(tmp_path / "events.jsonl"))
    verdict, evaluation, _ = evaluate(
        *(workload, tmp_path),
        **(section | {"bounds": bounds, "weight": "w"}),
        baseline=before,
        examples=examples,
    )
    events.open_sink(None)
    note = json.loads((tmp_path / "events.jsonl").read_text().splitlines()[0])
    assert note["message"].startswith(f"Evaluator: {first}")
    assert note["message"].endswith("are computed by TFMA, row by row")
    label = {"binary": "late", "multi_class": "grade", "regression": "delay"}[task]
    stock(
        *(workload, tmp_path / "tfma", task, section, label),
        baseline=True,
        examples=examples,
        weight="w",
    )
    load = tfma.load_eval_result
    for model in ("candidate", "baseline"):
        ours = by_slice(load(evaluation.uri, model_name=model))
        theirs = by_slice(load(f"{tmp_path}/tfma", model_name=model))
        assert ours.keys() == theirs.keys()
        for name, wanted in theirs.items():
            assert ours[name] == pytest.approx(wanted, rel=1e-5, nan_ok=True), name
    judged = {(x["slice"], x["bound"]): x["ok"] for x in verdict["bounds"]}
    assert judged == {
        ("overall", "may_drop"): True,
        **{(f"month={month}", "at_least"): False for month in (1, 2, 3)},
    }


def summed(task, asked, label, columns, code, weight, cuts):
    """The metrics of rows that workers have divided."""
    total = None
    for part in np.split(np.arange(len(label)), sorted(cuts)):
        values, own = np.unique(code[part], return_inverse=True)
        member = SliceMembership(values.tolist(), np.arange(len(part)), own)
        sums = Sums(asked, task)
        scores = {name: column[part] for name, column in columns.items()}
        counted = None if weight is None else weight[part]
        sums.add(label[part], {"m": scores}, {"f": member}, counted)
        sums.compact()
        sums = pickle.loads(pickle.dumps(sums))
        total = sums if total is None else sums.merge(total)
    return {piece.name: piece.metrics for piece in total.metrics("m")}


@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    cuts=st.lists(st.integers(1, 79), max_size=3),
    is_weighted=st.booleans(),
)
def test_values_are_those_of_scikit_learn_however_rows_are_divided(
    seed, cuts, is_weighted
):
    draw = np.random.default_rng(seed)
    code = draw.integers(0, 2, 80)
    weight = draw.choice([0.0, 0.5, 3.0], 80) if is_weighted else None
    label, score = draw.integers(0, 2, 80).astype(float), draw.random(80)
    asked = ["MatthewsCorrelationCoefficient"]
    columns = {"prediction": score}
    found = summed("binary", asked, label, columns, code, weight, cuts)
    for name, some in (("overall", code >= 0), ("f=0", code == 0), ("f=1", code == 1)):
        sample = None if weight is None else weight[some]
        wanted = stock_metrics.matthews_corrcoef(
            label[some], score[some] > 0.5, sample_weight=sample
        )
        value = found[name]["MatthewsCorrelationCoefficient"]
        assert value == pytest.approx(wanted, rel=1e-5, abs=1e-6), name
    number, guess = draw.normal(5, 1, 80), draw.normal(5, 1, 80)
    asked = ["SquaredPearsonCorrelation", "MeanAbsolutePercentageError"]
    columns = {"prediction": guess}
    found = summed("regression", asked, number, columns, code, weight, cuts)["overall"]
    share = np.cov(number, guess, aweights=weight)
    pearson = share[0, 1] ** 2 / (share[0, 0] * share[1, 1])
    assert found["SquaredPearsonCorrelation"] == pytest.approx(pearson, abs=1e-4)
    percent = 100 * stock_metrics.mean_absolute_percentage_error(
        number, guess, sample_weight=weight
    )
    assert found["MeanAbsolutePercentageError"] == pytest.approx(percent, rel=1e-4)


def test_a_prediction_that_is_not_finite_leaves_it_undefined():
    columns = {"prediction": np.array([0.1, math.nan, 0.7])}
    code, label = np.array([0, 1, 0]), np.array([0.0, 1.0, 1.0])
    found = summed("binary", ["BinaryIoU"], label, columns, code, None, [])
    assert math.isnan(found["overall"]["BinaryIoU"])
    assert math.isnan(found["f=1"]["BinaryIoU"])
    assert found["f=0"]["BinaryIoU"] == 1


def test_classes_of_a_row_stand_together():
    """Each row of multi_label is one vector, and a class by itself one number."""
    draw = np.random.default_rng(2)
    label, score = draw.integers(0, 2, (50, 3)).astype(float), draw.random((50, 3))
    sums = Sums(["CosineSimilarity"], "multi_label")
    sums.add(label, {"m": {"prediction": score}}, {}, None, ["a", "b", "c"])
    found = {piece.name: piece.metrics for piece in sums.metrics("m")}
    lengths = np.linalg.norm(label, axis=1) * np.linalg.norm(score, axis=1)
    dots = (label * score).sum(axis=1)
    wanted = np.divide(dots, lengths, out=np.zeros(50), where=lengths > 0).mean()
    value = found["overall"]["CosineSimilarity"]
    assert value == pytest.approx(wanted, rel=1e-5)
    assert found["class=b"]["CosineSimilarity"] == pytest.approx(label[:, 1].mean())


@pytest.mark.parametrize(
    ("name", "task", "message"),
    [
        ('NDCG(gain_key="g")', "regression", "reads all rows of a query together"),
        ("R2Score", "regression", "`R2Score` does not merge: ValueError: "),
        ("Specificity", "regression", "computed for the task regression: ValueError"),
        ("IoU", "binary", "missing 2 required positional arguments"),
        ("BooleanFlipRates", "binary", "the predictions of two models at once"),
        ("MeanAttributions", "binary", "reads attributions"),
        ("Precision(thresholds=[0.3, 0.5])", "binary", "and a metric is one number"),
        ('AUC(curve="XY")', "binary", "'XY' is not a valid AUCCurve"),
        ("SparseCategoricalAccuracy(bad=1)", "multi_class", "cannot be made"),
        ("CategoricalAccuracy", "regression", None),
        ("TopKCategoricalAccuracy(k=2)", "multi_class", None),
    ],
)
def test_a_class_that_cannot_be_computed_is_rejected_before_data_are_read(
    name, task, message
):
    for weighted in (False, True):
        if message is None:
            rehearsal.check(name, task, weighted=weighted)
            continue
        with pytest.raises(UserError) as error:
            rehearsal.check(name, task, weighted=weighted)
        assert message in str(error.value)
        assert "received {}" not in str(error.value)


def test_what_does_not_merge_is_rejected(monkeypatch):
    from strategos.components.evaluation.library.by_class import Accumulators

    def forget(self, later, place):
        self._slices = later._slices

    monkeypatch.setattr(Accumulators, "merge", forget)
    with pytest.raises(UserError, match="`MeanAbsolutePercentageError` does not merge"):
        rehearsal.check("MeanAbsolutePercentageError", "regression", weighted=True)


@settings(deadline=None)
@given(
    config=st.dictionaries(
        st.from_regex("[a-z_][a-z0-9_]{0,9}", fullmatch=True),
        st.recursive(
            st.integers()
            | st.floats(allow_nan=False, allow_infinity=False)
            | st.text(),
            lambda each: st.lists(each, max_size=3),
        ),
        max_size=3,
    )
)
def test_a_name_holds_class_and_arguments(config):
    spelled = names.spelled("AUC", config)
    assert names.parsed(spelled) == ("AUC", config)
    assert spelled in METRICS and plain(spelled) == spelled
    assert measured(["rows", spelled, "auc"]) == ["auc", spelled]


def test_names_of_other_kinds_are_none_by_class():
    for name in (
        "auc",
        "late.auc",
        "Late.auc",
        "AUC(",
        "AUC()",
        "AUC(a)",
        "AUC(a=1, )",
    ):
        assert (names.parsed(name) is None and name not in METRICS) or name == "auc"
    assert "Nothing" not in METRICS and names.parsed("Nothing")
    assert METRICS.version("CosineSimilarity") == ""


def test_classes_are_those_that_tfma_and_keras_export():
    import tf_keras

    kinds = tfma.metrics.Metric, tf_keras.metrics.Metric
    for name in classes.known():
        mine = getattr(tfma.metrics, name, None) or getattr(tf_keras.metrics, name)
        assert issubclass(mine, kinds), name
        declared = classes.arguments(name)
        assert declared is None or "self" not in declared
    assert {"NDCG", "AUC", "CosineSimilarity", "R2Score"} <= classes.known().keys()
    assert "precision" in classes.arguments("RecallAtPrecision")


def test_rows_in_no_slice_and_batches_of_no_rows_add_nothing():
    draw, asked = np.random.default_rng(3), ["MeanAbsolutePercentageError"]
    label, guess = draw.normal(5, 1, 9), draw.normal(5, 1, 9)
    sums, nothing = Sums(asked, "regression"), np.zeros(0, np.int64)
    for first, end in ((0, 4), (4, 4), (4, 9)):
        scores = {"prediction": guess[first:end]}
        member = {"f": SliceMembership([], nothing, nothing)}
        sums.add(label[first:end], {"m": scores}, member)
    (overall,) = sums.metrics("m")
    wanted = 100 * stock_metrics.mean_absolute_percentage_error(label, guess)
    assert overall.metrics[asked[0]] == pytest.approx(wanted, rel=1e-5)


def test_a_resample_without_rows_of_a_slice_has_no_value():
    """TFMA's is 0, and would be the end of an interval."""
    sums = Sums(["CosineSimilarity"], "regression", resampled="slices")
    ones, code = np.ones(9), np.array([0, *[1] * 8])
    member = SliceMembership(["rare", "usual"], np.arange(9), code)
    times = np.ones((9, resampling.RESAMPLES), np.int64)
    times[0, 3:] = 0
    scores = {"m": {"prediction": ones}}
    sums.add(ones, scores, {"s": member}, times=times)
    found = sums.of_resamples("m")
    values = {x: found["s", x]["CosineSimilarity"] for x in ("rare", "usual")}
    np.testing.assert_array_equal(np.isnan(values["rare"]), times[0] == 0)
    assert values["usual"] == pytest.approx(1.0)


def test_metrics_of_keras_are_not_converted_for_graphs(monkeypatch):
    """Which takes 9 ms for each slice and resample."""
    from tensorflow.python.autograph.impl import api

    converted: list[str] = []
    actual = api._convert_actual
    monkeypatch.setattr(
        api, "_convert_actual", lambda x, *of: converted.append(x) or actual(x, *of)
    )
    sums = Sums(["CosineSimilarity"], "regression")
    sums.add(np.ones(9), {"m": {"prediction": np.ones(9)}}, {})
    sums.compact()
    assert sums.metrics("m")[0].metrics == pytest.approx({"CosineSimilarity": 1.0})
    assert converted == []


def test_threads_compute_what_one_thread_computes():
    """The threads of an engine share the metric of Keras that adds up their rows."""
    draw = np.random.default_rng(5)
    parts = [(draw.normal(5, 1, 2500), draw.normal(5, 1, 2500)) for _ in range(6)]

    def value(part):
        label, guess = part
        batch = Batch(
            "regression", label, {"prediction": guess}, np.zeros(2500, int), 1
        )
        metric = METRICS["LogCoshError"]
        return metric.finish(metric.sums(batch))[0]

    with futures.ThreadPoolExecutor(6) as pool:
        found = list(pool.map(value, parts))
    assert found == [value(part) for part in parts]


_PAGE = Path(__file__).parents[3] / "docs" / "configuration" / "metric_classes.md"
_NEEDED = {
    "RecallAtPrecision": {"precision": 0.6},
    "PrecisionAtRecall": {"recall": 0.6},
    "SensitivityAtSpecificity": {"specificity": 0.6},
    "SpecificityAtSensitivity": {"sensitivity": 0.6},
    "IoU": {"num_classes": 2, "target_class_ids": [1]},
    "MeanIoU": {"num_classes": 2},
    "OneHotIoU": {"num_classes": 2, "target_class_ids": [1]},
    "OneHotMeanIoU": {"num_classes": 2},
    "MeanRelativeError": {"normalizer": [2.0]},
    "NDCG": {"gain_key": "gain"},
}


def tables():
    """The rows of each table of the page, by the heading above it."""
    found = {}
    for part in _PAGE.read_text().split("\n## ")[1:]:
        rows = re.findall(r"^\| (.*?) \| (.*) \|$", part, re.M)[1:]
        found[part.partition("\n")[0]] = rows
    return found


def test_the_page_names_each_class_and_the_metric_that_replaces_it():
    found = tables()
    rows = found["Classes by task"], found["Rejected classes"]
    listed = [
        *(name for _, names in rows[0] for name in re.findall("`(.*?)`", names)),
        *(name for names, _ in rows[1] for name in re.findall("`(.*?)`", names)),
    ]
    assert sorted(listed) == sorted(classes.known())
    ours = {}
    for name in METRICS.own:
        kinds = METRICS[name].tfma
        for task in METRICS[name].tasks:
            if kind := kinds if isinstance(kinds, str) else kinds[task]:
                ours.setdefault((f"`{kind}`", f"`{name}`"), []).append(task)
    listed = [(kind, *rest.split(" ", 1)) for kind, rest in found["Ours instead"]]
    wanted = [(*pair, f"({', '.join(tasks)})") for pair, tasks in ours.items()]
    assert sorted(listed) == sorted(wanted)


@pytest.mark.long
def test_the_page_names_the_tasks_that_each_class_is_computed_for():
    listed = {
        name: tasks
        for tasks, names in tables()["Classes by task"]
        for name in re.findall("`(.*?)`", names)
    }
    for name in classes.known():
        computed = []
        for task in by_class.ByClass.tasks:
            with contextlib.suppress(UserError):
                called = names.spelled(name, _NEEDED.get(name, {}))
                rehearsal.check(called, task, weighted=True)
                computed.append(task)
        assert ", ".join(computed) == listed.get(name, ""), name
