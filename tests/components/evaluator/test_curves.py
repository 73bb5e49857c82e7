"""Areas of more scores than are kept one by one: close, within their bound, small."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from strategos.components.evaluator import curves, sums
from strategos.components.evaluator.curves import Curves, precision_recall, roc

AREAS = {"roc": roc, "precision_recall": precision_recall}


def rows(count, slices=1, seed=0, rare=False):
    """Slices, scores and labels; rare labels have scores that are mostly near 0."""
    draw = np.random.default_rng(seed)
    score = draw.beta(1, 300, count) if rare else draw.random(count)
    label = (draw.random(count) < score).astype(np.float64)
    return draw.integers(0, slices, count), score, label


def counted(code, score, label, batch=1000):
    found = Curves()
    for start in range(0, len(code), batch):
        part = slice(start, start + batch)
        found.add(code[part], score[part], label[part])
    return found


def exact(data, area, slices):
    """Areas of scores that are kept one by one, whatever the limit."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(curves, "EXACT_SCORES", 1 << 40)
        found, errors = counted(*data).areas(area, slices)
        assert not errors.any()
        return found


@pytest.mark.parametrize("area", AREAS.values(), ids=AREAS)
@pytest.mark.parametrize("rare", [False, True])
def test_areas_from_bins_are_within_their_bound(monkeypatch, area, rare):
    monkeypatch.setattr(curves, "EXACT_SCORES", 2000)
    data = rows(60_000, slices=3, rare=rare)
    expected = exact(data, area, 3)
    found, errors = counted(*data).areas(area, 3)
    assert (errors > 0).all() and (errors < 0.02).all()
    assert (np.abs(found - expected) <= errors).all()


@pytest.mark.parametrize("rare", [False, True])
def test_areas_of_a_million_rows_are_right_to_five_digits(rare):
    data = rows(1_000_000, rare=rare)
    expected = exact(data, roc, 1)
    found, errors = counted(*data, batch=50_000).areas(roc, 1)
    assert 0 < errors[0] < (1e-4 if rare else 1e-5)
    assert abs(found[0] - expected[0]) < 1e-6


def test_a_few_distinct_scores_stay_exact_for_any_number_of_rows(monkeypatch):
    monkeypatch.setattr(curves, "EXACT_SCORES", 2000)
    code, score, label = rows(60_000, slices=3)
    data = code, score.round(2), label
    found, errors = counted(*data).areas(roc, 3)
    assert not errors.any()
    assert found == pytest.approx(exact(data, roc, 3), abs=1e-12)


SCORES = {
    "equal": lambda draw: np.full(5000, 0.3),
    "zeros and ones": lambda draw: draw.choice([0.0, -0.0, 1.0], 5000),
    "unknown": lambda draw: np.where(
        draw.random(5000) < 0.1, np.nan, draw.random(5000)
    ),
    "tiny": lambda draw: draw.random(5000) * 1e-310,
    "within one bin": lambda draw: 0.5 + draw.random(5000) * 1e-7,
    "outside of 0 to 1": lambda draw: draw.normal(size=5000),
    "outside, in four bytes": lambda draw: draw.normal(size=5000).astype(np.float32),
}


@pytest.mark.parametrize("scores", SCORES.values(), ids=SCORES)
def test_areas_of_odd_scores_are_within_their_bound_of_scikit_learn(
    monkeypatch, scores
):
    draw = np.random.default_rng(0)
    score = scores(draw)
    late = score > np.nanmedian(score)
    label = (draw.random(5000) < 0.3 + 0.3 * late).astype(np.float64)
    expected = roc_auc_score(label[~np.isnan(score)], score[~np.isnan(score)])
    data = np.zeros(5000, np.int64), score, label
    assert exact(data, roc, 1) == pytest.approx(expected, abs=1e-12)
    monkeypatch.setattr(curves, "EXACT_SCORES", 500)
    (found,), (error,) = counted(*data).areas(roc, 1)
    assert abs(found - expected) <= error + 1e-12


def test_bins_depend_neither_on_the_cut_nor_on_the_order(monkeypatch):
    monkeypatch.setattr(curves, "EXACT_SCORES", 500)
    data = rows(20_000, slices=40)
    found = set()
    for batch, turned in ((100, False), (3000, True), (20_000, False)):
        parts = [
            counted(*(column[start : start + batch] for column in data))
            for start in range(0, 20_000, batch)
        ]
        first, *others = reversed(parts) if turned else parts
        for part in others:
            first.merge(part, np.arange(40))
        values, errors = first.areas(roc, 40)
        found.add((values.tobytes(), errors.tobytes()))
    assert len(found) == 1


def test_sums_do_not_grow_with_the_rows(monkeypatch):
    """What a worker sends is of the same size for 40,000 and for 400,000 rows."""
    monkeypatch.setattr(curves, "EXACT_SCORES", 1000)
    sizes = []
    for count in (40_000, 400_000):
        found = sums.Sums(["auc", "accuracy"], "binary")
        for start in range(0, count, 10_000):
            code, score, label = rows(10_000, slices=20, seed=start)
            member = sums.Membership(list(range(20)), np.arange(10_000), code)
            scores = {"candidate": {"prediction": score}}
            found.add(label, scores, {"carrier": member})
        sizes.append(len(pickle.dumps(found)))
    assert sizes[1] < 1.3 * sizes[0]
    assert sizes[1] < 400_000


def test_feature_with_too_many_values_keeps_nothing(monkeypatch):
    monkeypatch.setattr(sums, "MOST_SLICES", 1000)
    found = sums.Sums(["auc"], "binary")
    for start in range(0, 5000, 100):
        _, score, label = rows(100, seed=start)
        ids = np.arange(100)
        member = sums.Membership([f"id{start + i}" for i in ids], ids, ids)
        later = sums.Sums(["auc"], "binary")
        later.add(label, {"candidate": {"prediction": score}}, {"id": member})
        found.merge(later)
    assert found.too_many == {"id"} and found.examples == 5000
    assert [piece.feature for piece in found.metrics("candidate")] == [None]
    assert len(pickle.dumps(found)) < 150_000


@pytest.mark.parametrize("exact_scores", [1 << 18, 1000])
def test_scores_of_single_precision_give_the_same_areas_in_half_the_bytes(
    exact_scores, monkeypatch
):
    monkeypatch.setattr(curves, "EXACT_SCORES", exact_scores)
    code, score, label = rows(5000, slices=3)
    score = score.astype(np.float32).astype(np.float64)
    single = counted(code, score, label)
    apart = np.append(score, np.pi / 4)  # not exact in single precision
    double = counted(np.append(code, 3), apart, np.append(label, 1.0), batch=5001)
    for area in AREAS.values():
        ours, theirs = single.areas(area, 3), double.areas(area, 4)
        for mine, other in zip(ours, theirs, strict=True):
            assert np.array_equal(mine, other[:3])


def test_rows_take_few_bytes_on_their_way():
    code, score, label = rows(10_000, slices=9)
    found = counted(code, score.astype(np.float32).astype(np.float64), label)
    assert len(pickle.dumps(found)) < 8 * 10_000  # slice, score, rows, positive rows
