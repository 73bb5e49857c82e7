"""Metrics at a threshold and of the likeliest classes: scikit-learn's numbers."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import tensorflow_model_analysis as tfma
from sklearn import metrics as stock

from strategos.components.errors import UserError
from strategos.components.evaluation.classes import ranking
from strategos.components.evaluation.classes.entries import SliceMembership
from strategos.components.evaluation.metrics import METRICS, RANK, plain, top
from strategos.components.evaluation.sums import Sums

THRESHOLDS = ("0.3", "0.1", "0.0000001", "0.999")
MACRO = {
    "macro_precision": stock.precision_score,
    "macro_recall": stock.recall_score,
    "macro_f1": stock.f1_score,
}
SINGLE = {
    "accuracy": stock.accuracy_score,
    "precision": stock.precision_score,
    "recall": stock.recall_score,
    "f1": stock.f1_score,
}


def summed(task, names, label, score, place, weight, classes=()):
    """Metrics by value of the slice, of three parts of the rows."""
    total = None
    for part in np.split(np.arange(len(label)), [7, 160]):
        sums = Sums(names, task)
        values, code = np.unique(place[part], return_inverse=True)
        member = SliceMembership(values.tolist(), np.arange(len(part)), code)
        columns = {"prediction": score[part]}
        if task == "multi_class":
            rank = ranking.of(score[part], label[part], task)
            columns = {"right": rank, "loss": rank, RANK: rank}
        elif task == "multi_label":
            columns[RANK] = ranking.of(score[part], label[part], task)
        counted = None if weight is None else weight[part]
        sums.add(label[part], {"m": columns}, {"place": member}, counted, classes)
        total = sums if total is None else total.merge(sums)
    return {piece.name: piece.metrics for piece in total.metrics("m")}


def scores(draw, shape):
    """Scores with ties, some at a threshold and some of 1e-7."""
    odd = draw.choice(np.array([0.0, 1e-7, 0.3, 0.1, 1.0], np.float32), shape)
    return np.where(draw.random(shape) < 0.3, odd, draw.random(shape)).astype(
        np.float32
    )


@pytest.mark.parametrize("is_weighted", [False, True])
@pytest.mark.parametrize("threshold", THRESHOLDS)
def test_metrics_at_a_threshold_are_those_of_scikit_learn(threshold, is_weighted):
    draw = np.random.default_rng(0)
    label, score = (draw.random(400) < 0.3).astype(float), scores(draw, 400)
    place = draw.integers(0, 3, 400)
    weight = draw.choice([0.0, 0.5, 3.0], 400) if is_weighted else None
    names = [f"{name}@{threshold}" for name in SINGLE]
    found = summed("binary", names, label, score.astype(float), place, weight)
    for name, chosen in [("overall", place >= 0), ("place=1", place == 1)]:
        positive = score[chosen] > np.float32(threshold)
        sample = None if weight is None else weight[chosen]
        for metric, wanted in SINGLE.items():
            extra = {} if metric == "accuracy" else {"zero_division": 0}
            value = wanted(label[chosen], positive, sample_weight=sample, **extra)
            ours = np.nan_to_num(found[name][f"{metric}@{threshold}"])
            assert ours == pytest.approx(value, rel=1e-12), (name, metric)


@pytest.mark.parametrize("is_weighted", [False, True])
def test_several_labels_at_a_threshold_and_at_the_top(is_weighted):
    draw = np.random.default_rng(1)
    label = (draw.random((300, 4)) < [0.6, 0.3, 0.05, 0.5]).astype(float)
    score, place = scores(draw, (300, 4)), draw.integers(0, 2, 300)
    weight = draw.choice([0.0, 0.5, 3.0], 300) if is_weighted else None
    names = [*(f"{name}@0.3" for name in MACRO), "exact_match@0.3", "f1@0.3"]
    names += [name.replace("macro", "weighted") for name in names[:3]]
    names += ["precision@top1", "precision@top3", "recall@top3", "recall@top4"]
    classes = ("rain", "wind", "snow", "fog")
    found = summed(
        "multi_label", names, label, score.astype(float), place, weight, classes
    )
    order = np.argsort(-score, axis=1, kind="stable")
    for name, chosen in [("overall", place >= 0), ("place=1", place == 1)]:
        sample = None if weight is None else weight[chosen]
        positive, right = score[chosen] > np.float32(0.3), label[chosen]
        more = {"sample_weight": sample, "zero_division": 0}
        ours = found[name]
        for metric, wanted in MACRO.items():
            value = wanted(right, positive, average="macro", **more)
            assert ours[f"{metric}@0.3"] == pytest.approx(value, rel=1e-12)
            value = wanted(right, positive, average="weighted", **more)
            weighted = metric.replace("macro", "weighted")
            assert ours[f"{weighted}@0.3"] == pytest.approx(value, rel=1e-12)
        exact = stock.accuracy_score(right, positive, sample_weight=sample)
        assert ours["exact_match@0.3"] == pytest.approx(exact, rel=1e-12)
        for each in (x for x in names if top(x)):
            best = np.zeros_like(right)
            np.put_along_axis(best, order[chosen][:, : top(each)], 1, axis=1)
            value = SINGLE[plain(each)](right, best, average="micro", **more)
            assert ours[each] == pytest.approx(value, rel=1e-12), each
    first = np.zeros_like(label)
    np.put_along_axis(first, order[:, :3], 1, axis=1)
    of_class = stock.precision_score(
        label[:, 1], first[:, 1], sample_weight=weight, zero_division=0
    )
    assert found["class=wind"]["precision@top3"] == pytest.approx(of_class, rel=1e-12)


@pytest.mark.parametrize("is_weighted", [False, True])
def test_accuracy_of_the_likeliest_classes(is_weighted):
    draw = np.random.default_rng(2)
    label, place = draw.integers(0, 5, 300).astype(float), draw.integers(0, 2, 300)
    score = draw.random((300, 5))
    weight = draw.choice([0.0, 0.5, 3.0], 300) if is_weighted else None
    names = [f"accuracy@top{k}" for k in (1, 2, 4)]
    found = summed("multi_class", names, label, score, place, weight)
    for name, chosen in [("overall", place >= 0), ("place=1", place == 1)]:
        sample = None if weight is None else weight[chosen]
        for each in names:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # a slice may lack a class
                value = stock.top_k_accuracy_score(
                    label[chosen],
                    score[chosen],
                    k=top(each),
                    sample_weight=sample,
                    labels=range(5),
                )
            assert found[name][each] == pytest.approx(value, rel=1e-12)


def test_of_equally_likely_classes_the_first_is_likelier():
    answer = np.array([[0.2, 0.4, 0.4], [0.2, 0.4, 0.4], [np.nan, 0.5, 0.5]])
    ranks = ranking.of(answer, np.array([2.0, 1.0, 1.0]), "multi_class")
    np.testing.assert_array_equal(ranks, [1, 0, np.nan])
    several = ranking.of(answer[:2], np.zeros((2, 3)), "multi_label")
    assert several.tolist() == [[2, 0, 1]] * 2


@pytest.mark.long
def test_thresholds_are_those_of_tfma(workload, tmp_path, evaluate, stock, by_slice):
    names = ["accuracy@0.3", "precision@0.3", "recall@0.3"]
    section = {"task": "binary", "metrics": names, "slices": ["month"]}
    bounds = {"recall@0.3": {"at_least": 0.1, "slices": {"month": {"at_least": 0.99}}}}
    verdict, evaluation, _ = evaluate(workload, tmp_path, **section, bounds=bounds)
    stock(workload, tmp_path / "tfma", "binary", section, "late")
    ours = by_slice(tfma.load_eval_result(evaluation.uri))
    theirs = by_slice(tfma.load_eval_result(f"{tmp_path}/tfma"))
    assert ours.keys() == theirs.keys() and verdict["overall"].keys() == {*names}
    for name, wanted in theirs.items():
        assert ours[name] == pytest.approx(wanted, abs=2e-6), name
    assert verdict["bounds"][0]["metric"] == "recall@0.3"


def test_the_executor_ranks_classes(workload, tmp_path, evaluate):
    names = ["accuracy", "accuracy@top1", "accuracy@top2", "accuracy@top3"]
    verdict, *_ = evaluate(workload, tmp_path, task="multi_class", metrics=names)
    values = [verdict["overall"][name] for name in names]
    assert values[0] == values[1] < values[2] < values[3] == 1
    with pytest.raises(UserError, match="`accuracy@top4` is of 4 classes"):
        evaluate(workload, tmp_path, task="multi_class", metrics=["accuracy@top4"])


def test_names_with_a_parameter():
    assert METRICS["recall@0.3"].threshold == 0.3
    assert METRICS["recall"].threshold == 0.5
    assert "threshold 0.3" in METRICS["recall@0.3"].description
    for name in ("recall@0", "recall@1", "recall@top0", "auc@0.3", "f1@top2", "x@0.3"):
        assert name not in METRICS


@pytest.mark.parametrize("is_weighted", [False, True])
def test_averages_over_classes_are_those_of_scikit_learn(is_weighted):
    """Classes that a slice lacks do not count; slices have few rows, and one none."""
    draw = np.random.default_rng(3)
    label, said = (draw.integers(0, 9, 200).astype(float) for _ in range(2))
    said = np.where(draw.random(200) < 0.5, label, said)
    place = draw.integers(0, 40, 200)
    weight = draw.choice([0.0, 0.5, 3.0], 200) if is_weighted else None
    kinds = ("precision", "recall", "f1")
    names = [f"{x}_{kind}" for x in ("macro", "weighted") for kind in kinds]
    total = None
    for part in np.split(np.arange(200), [9, 120]):
        values, code = np.unique(place[part], return_inverse=True)
        member = SliceMembership(values.tolist(), np.arange(len(part)), code)
        columns = {"right": said[part], "predicted": said[part]}
        sums = Sums(names, "multi_class")
        counted = None if weight is None else weight[part]
        sums.add(label[part], {"m": columns}, {"place": member}, counted)
        total = sums if total is None else total.merge(sums)
    for piece in total.metrics("m"):
        chosen = place >= 0 if piece.feature is None else place == piece.value
        chosen &= True if weight is None else weight > 0
        if not chosen.any():
            assert all(np.isnan(value) for value in piece.metrics.values())
            continue
        sample = None if weight is None else weight[chosen]
        for name in names:
            average, _, kind = name.partition("_")
            wanted = getattr(stock, f"{kind}_score")(
                *(label[chosen], said[chosen]),
                average=average,
                sample_weight=sample,
                zero_division=0,
            )
            assert piece.metrics[name] == pytest.approx(wanted, rel=1e-12), piece.name
