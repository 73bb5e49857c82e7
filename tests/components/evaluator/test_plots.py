"""Points of plots beside scikit-learn, however the rows are divided."""

from __future__ import annotations

import functools
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as sklearn_metrics

from strategos.components.evaluation.plots import FILE, counts, points
from strategos.components.evaluation.plots.counts import Counts

SEEDS = st.integers(0, 2**32 - 1)
derandomized = settings(derandomize=True, deadline=None, max_examples=20)


def drawn(seed, width=1):
    """Labels, scores and weights of some rows, many scores equal or at a border."""
    draw = np.random.default_rng(seed)
    rows = int(draw.integers(1, 400))
    score = draw.beta(*draw.uniform(0.2, 3, 2), (rows, width))
    score = np.where(draw.random(score.shape) < 0.2, draw.choice(counts.edges()), score)
    score = np.where(draw.random(score.shape) < 0.2, 0.5, score)
    label = (draw.random(score.shape) < score).astype(np.float64)
    return label, score, draw.integers(0, 4, rows).astype(np.float64)


def merged(*parts: Counts) -> Counts:
    return functools.reduce(Counts.merge, parts)


@derandomized
@given(SEEDS)
def test_each_point_is_what_scikit_learn_says_at_its_threshold(seed):
    label, score, weight = (each.reshape(-1) for each in drawn(seed))
    parts = (label[i::3] for i in range(3)), (score[i::3, None] for i in range(3))
    rows = zip(*parts, (weight[i::3] for i in range(3)), strict=True)
    (found,) = points.of(merged(*(counts.of("binary", *each) for each in rows)))[
        "scores"
    ]

    def at(threshold):
        chosen = {"labels": [0, 1], "sample_weight": weight}
        return sklearn_metrics.confusion_matrix(label, score > threshold, **chosen)

    assert found["confusion"] == at(0.5).tolist()
    if not (weight[label == 1].sum() and weight[label == 0].sum()):
        assert found["roc"] == found["precision_recall"] == []
        return
    for fall_out, recall, threshold in found["roc"]:
        (tn, fp), (fn, tp) = at(threshold if threshold else -1)
        assert [fall_out, recall] == pytest.approx([fp / (tn + fp), tp / (tp + fn)])
    for recall, precision, threshold in found["precision_recall"]:
        (_, fp), (fn, tp) = at(threshold if threshold else -1)
        assert [recall, precision] == pytest.approx([tp / (tp + fn), tp / (tp + fp)])
    assert found["roc"][0][:2] == [0, 0]
    assert found["roc"][-1][:2] == pytest.approx([1, 1])


def test_drawn_area_is_that_of_all_rows():
    draw = np.random.default_rng(3)
    score = 1 / (1 + np.exp(4 - 3 * draw.normal(size=20_000)))
    label = (draw.random(20_000) < score).astype(np.float64)
    (found,) = points.of(counts.of("binary", label, score[:, None]))["scores"]
    x, y, _ = np.array(found["roc"]).T
    area = float(np.sum((x[1:] - x[:-1]) * (y[1:] + y[:-1]) / 2))
    assert area == pytest.approx(sklearn_metrics.roc_auc_score(label, score), abs=1e-3)
    assert len(x) <= points.POINTS + 1


@derandomized
@given(SEEDS)
def test_calibration_has_each_row_once_in_order_of_scores(seed):
    label, score, weight = drawn(seed)
    (found,) = points.of(counts.of("binary", label[:, 0], score, weight))["scores"]
    groups = found["calibration"]
    total = [
        sum(group["rows"] * group.get(key, 1) for group in groups)
        for key in ("rows", "predicted", "observed")
    ]
    total[0] = sum(group["rows"] for group in groups)
    sums = weight.sum(), (weight * score[:, 0]).sum(), (weight * label[:, 0]).sum()
    assert total == pytest.approx(sums)
    assert [g["predicted"] for g in groups] == sorted(g["predicted"] for g in groups)
    assert len(groups) <= points.GROUPS


@derandomized
@given(SEEDS)
def test_classes_are_confused_as_scikit_learn_says(seed):
    draw = np.random.default_rng(seed)
    _, score, weight = drawn(seed, width=4)
    label = draw.integers(0, 4, len(score)).astype(np.float64)
    half = len(label) // 2
    parts = (
        counts.of("multi_class", label[each], score[each], weight[each], ["a", "b"])
        for each in (slice(half), slice(half, None))
    )
    found = points.of(merged(*parts))
    expected = sklearn_metrics.confusion_matrix(
        label, score.argmax(1), labels=range(4), sample_weight=weight
    )
    assert found["confusion"] == expected.tolist()
    assert found["classes"] == ["a", "b", "2", "3"]
    (confidence,) = found["scores"]
    right = (score.argmax(1) == label).astype(np.float64)
    observed = sum(g["rows"] * g["observed"] for g in confidence["calibration"])
    assert observed == pytest.approx((weight * right).sum())


def test_each_class_of_several_has_its_own_points():
    label, score, weight = drawn(5, width=3)
    found = points.of(counts.of("multi_label", label, score, weight, ["a", "b", "c"]))
    for i, each in enumerate(found["scores"]):
        alone = counts.of("binary", label[:, i], score[:, i : i + 1], weight)
        assert each == {**points.of(alone)["scores"][0], "class": "abc"[i]}


def test_many_classes_are_not_drawn_one_by_one():
    width = counts.MOST_CLASSES + 1
    label, score, _ = drawn(6, width=width)
    names = [str(i) for i in range(width)]
    several = points.of(counts.of("multi_label", label, score, None, names))
    assert [each["class"] for each in several["scores"]] == [None]
    one = points.of(counts.of("multi_class", label[:, 0], score))
    assert one.keys() == {"scores"}


def test_answers_that_are_not_finite_are_left_out():
    label, score = np.array([1.0, 0.0, 1.0]), np.array([[0.9], [np.nan], [0.2]])
    (found,) = points.of(counts.of("binary", label, score))["scores"]
    assert found["confusion"] == [[0, 0], [1, 1]]


@pytest.mark.long
def test_the_evaluator_writes_points_of_both_models(
    workload, tmp_path, evaluate, artifact
):
    from tfx.types import standard_artifacts

    production = artifact(standard_artifacts.Model, workload["binary", "baseline"])
    _, evaluation, _ = evaluate(workload, tmp_path, baseline=production)
    written = json.loads(Path(evaluation.uri, FILE).read_text())
    assert written["task"] == "binary"
    for name in ("candidate", "baseline"):
        (score,) = written["models"][name]["scores"]
        assert sum(map(sum, score["confusion"])) == workload["rows"]
    _, evaluation, _ = evaluate(workload, tmp_path / "regression", "regression")
    written = json.loads(Path(evaluation.uri, FILE).read_text())
    errors = written["models"]["candidate"]
    assert sum(group["rows"] for group in errors["groups"]) == workload["rows"]
