"""Metrics of several classes a row: scikit-learn's numbers, whatever the shards."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pytest
from sklearn import metrics as stock

from strategos.components.evaluation import metrics
from strategos.components.evaluation.classes.entries import SliceMembership
from strategos.components.evaluation.slices import slicing
from strategos.components.evaluation.sums import Sums

CLASSES = ("rain", "wind", "snow", "fog")


def rows(count=400, seed=0):
    draw = np.random.default_rng(seed)
    label = (draw.random((count, 4)) < [0.6, 0.3, 0.05, 0.5]).astype(float)
    score = np.clip(0.6 * draw.random((count, 4)) + 0.3 * label, 0, 1).round(2)
    return label, score, draw.integers(0, 3, count), draw.integers(0, 4, count) * 0.5


def summed(label, score, place, weight, shards):
    """Sums of rows that are cut into shards and merged, also through pickling."""
    total = Sums(metrics.names("multi_label"), "multi_label")
    for some in np.array_split(np.arange(len(label)), shards):
        part = Sums(metrics.names("multi_label"), "multi_label")
        member = SliceMembership([0, 1, 2], np.arange(len(some)), place[some])
        scores = {"candidate": {"prediction": score[some]}}
        own = None if weight is None else weight[some]
        part.add(label[some], scores, {"place": member}, own, CLASSES)
        part.compact()
        total.merge(pickle.loads(pickle.dumps(part)))
    return total


def wanted(label, score, weight):
    """The metrics by scikit-learn; precision-recall areas are TFMA's, not its."""
    answer, loss = (score > 0.5).astype(float), 0.0
    flat = None if weight is None else weight.repeat(label.shape[1])
    kept = {"sample_weight": weight, "zero_division": 0}
    found = {}
    for prefix, average in (("", "micro"), ("macro_", "macro")):
        for name in ("precision", "recall", "f1"):
            of = getattr(stock, f"{name}_score")
            found[prefix + name] = of(label, answer, average=average, **kept)
        area = stock.roc_auc_score
        found[f"{prefix}auc"] = area(
            label, score, average=average, sample_weight=weight
        )
    p = np.clip(score, 1e-7, 1 - 1e-7)
    loss = -(label * np.log(p) + (1 - label) * np.log(1 - p)).mean(axis=1)
    found["log_loss"] = np.average(loss, weights=weight)
    found["exact_match"] = stock.accuracy_score(label, answer, sample_weight=weight)
    hamming = stock.hamming_loss(label, answer, sample_weight=weight)
    found |= {"hamming_loss": hamming, "accuracy": 1 - hamming}
    found["mean_label"] = np.average(label.ravel(), weights=flat)
    found["mean_prediction"] = np.average(score.ravel(), weights=flat)
    found["calibration"] = found["mean_prediction"] / found["mean_label"]
    return found


@pytest.mark.parametrize("weighted", [False, True])
def test_metrics_are_those_of_scikit_learn_however_rows_are_cut(weighted):
    label, score, place, weight = rows()
    weight = weight if weighted else None
    whole, cut = (summed(label, score, place, weight, n) for n in (1, 7))
    for one, other in zip(
        whole.metrics("candidate"), cut.metrics("candidate"), strict=True
    ):
        assert (one.name, one.examples) == (other.name, other.examples)
        assert one.metrics == pytest.approx(other.metrics, rel=1e-12, nan_ok=True)
        theirs = pytest.approx(other.trivial.metrics, rel=1e-12, nan_ok=True)
        assert one.trivial.metrics == theirs
    for piece in whole.metrics("candidate"):
        chosen = np.ones(len(label), bool)
        columns = slice(None)
        if piece.feature == "place":
            chosen = place == piece.value
        if piece.feature == slicing.CLASS:
            columns = [CLASSES.index(piece.value)]
        own = None if weight is None else weight[chosen]
        oracle = wanted(label[chosen][:, columns], score[chosen][:, columns], own)
        if piece.feature == slicing.CLASS:  # scikit-learn takes one column as classes
            oracle = one_class(label[:, columns], score[:, columns], weight)
        found = {name: piece.metrics[name] for name in oracle}
        assert found == pytest.approx(oracle, rel=1e-9), piece.name
        assert piece.examples == chosen.sum()


def one_class(label, score, weight):
    """Binary metrics of one class; its mean over classes is itself."""
    label, score = label[:, 0], score[:, 0]
    answer = score > 0.5
    kept = {"sample_weight": weight, "zero_division": 0}
    found = {
        name: getattr(stock, f"{name}_score")(label, answer, **kept)
        for name in ("precision", "recall", "f1")
    }
    found["auc"] = stock.roc_auc_score(label, score, sample_weight=weight)
    found |= {f"macro_{name}": value for name, value in found.items()}
    found["log_loss"] = stock.log_loss(
        label, np.clip(score, 1e-7, 1 - 1e-7), sample_weight=weight
    )
    right = stock.accuracy_score(label, answer, sample_weight=weight)
    return found | {"accuracy": right, "exact_match": right, "hamming_loss": 1 - right}


def test_the_trivial_model_predicts_the_share_of_each_class():
    label, score, place, weight = rows()
    overall = summed(label, score, place, weight, 3).metrics("candidate")[0]
    shares = np.average(label, axis=0, weights=weight)
    oracle = wanted(label, np.tile(shares, (len(label), 1)), weight)
    known = overall.trivial.metrics
    assert "exact_match" not in known  # its joint distribution is not counted
    del oracle["exact_match"]
    assert {name: known[name] for name in oracle} == pytest.approx(oracle, rel=1e-9)
    assert overall.trivial.answer == pytest.approx(shares.mean())


def test_a_class_of_one_label_leaves_only_its_own_areas_undefined():
    label, score, place, _ = rows()
    label[:, 2] = 0
    pieces = summed(label, score, place, None, 2).metrics("candidate")
    by_name = {piece.name: piece.metrics for piece in pieces}
    assert np.isnan(by_name["overall"]["macro_auc"])
    assert np.isnan(by_name["class=snow"]["auc"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        micro = stock.roc_auc_score(label, score, average="micro")
    assert by_name["overall"]["auc"] == pytest.approx(micro)
    assert not np.isnan(by_name["class=rain"]["auc"])


def test_an_answer_that_is_not_finite_leaves_its_class_undefined():
    label, score, place, _ = rows()
    score[5, 1] = np.nan
    pieces = summed(label, score, place, None, 2).metrics("candidate")
    undefined = {piece.name for piece in pieces if np.isnan(piece.metrics["f1"])}
    assert undefined == {"overall", "class=wind", f"place={place[5]}"}
