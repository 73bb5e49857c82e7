"""Areas of more scores than are kept one by one: close, within their bound, small."""

from __future__ import annotations

import itertools
import pickle

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from strategos.components.evaluation import curves, sums
from strategos.components.evaluation.classes.entries import SliceMembership
from strategos.components.evaluation.curves import Curves, precision_recall, roc

derandomized = settings(derandomize=True, deadline=None, max_examples=60)
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


def limit(patch, scores, of_slice=1):
    """Keeps `scores` scores one by one, and `of_slice` of each slice beyond that."""
    patch.setattr(curves, "EXACT_SCORES", scores)
    patch.setattr(curves, "SLICE_SCORES", of_slice)


def exact(data, area, slices):
    """Areas of scores that are kept one by one, whatever the limit."""
    with pytest.MonkeyPatch.context() as patch:
        limit(patch, 1 << 40)
        found, errors = counted(*data).areas(area, slices)
        assert not errors.any()
        return found


@pytest.mark.parametrize("area", AREAS.values(), ids=AREAS)
@pytest.mark.parametrize("rare", [False, True])
def test_areas_from_bins_are_within_their_bound(monkeypatch, area, rare):
    limit(monkeypatch, 2000)
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
    limit(monkeypatch, 2000)
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
    limit(monkeypatch, 500)
    (found,), (error,) = counted(*data).areas(roc, 1)
    assert abs(found - expected) <= error + 1e-12


def test_bins_depend_neither_on_the_cut_nor_on_the_order(monkeypatch):
    limit(monkeypatch, 500)
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


@pytest.mark.parametrize("count", [300_000, 3_000_000])
def test_areas_of_slices_below_ten_thousand_rows_are_exact(count):
    """Beside a large slice, which counts in bins; some against scikit-learn."""
    slices = max(200, count // 9_000)
    code, score, label = rows(count, slices)
    code = np.where(code < slices // 4, 0, code - slices // 4)
    score = score.astype(np.float32).astype(np.float64)
    found, errors = counted(code, score, label, batch=100_000).areas(roc, slices)
    small = np.bincount(code, minlength=slices) < 10_000
    assert not errors[small].any() and not small[0] and errors[0] > 0
    for each in range(1, slices * 3 // 4, 40):
        rows_of = code == each
        expected = roc_auc_score(label[rows_of], score[rows_of])
        assert found[each] == pytest.approx(expected, abs=1e-12)


def test_twenty_thousand_tiny_slices_are_exact():
    code, score, label = rows(300_000, 20_000)
    _, errors = counted(code, score, label, batch=50_000).areas(roc, 20_000)
    assert not errors.any()


def test_all_scores_together_stay_below_the_most(monkeypatch):
    limit(monkeypatch, 500, of_slice=64)
    monkeypatch.setattr(curves, "MOST_SCORES", 2000)
    data = rows(60_000, slices=1000)
    expected = exact(data, roc, 1000)
    found = counted(*data)
    found.compact()
    assert found._entries <= 2000
    areas, errors = found.areas(roc, 1000)
    assert (np.abs(areas - expected) <= errors + 1e-12).all()


def test_errors_that_are_roundoff_are_none(monkeypatch):
    """Every bin has rows of one class only: the order within it does not matter."""
    limit(monkeypatch, 500)
    score = np.random.default_rng(0).random(5000)
    label = (score > 0.5).astype(np.float64)
    found = counted(np.zeros(5000, np.int64), score, label)
    for area in AREAS.values():
        (value,), (error,) = found.areas(area, 1)
        assert value == pytest.approx(1.0, abs=1e-9) and error == 0.0


@derandomized
@given(data=st.data(), sizes=st.lists(st.integers(1, 40), min_size=1, max_size=8))
def test_bins_of_unequal_slices_do_not_depend_on_the_merging(data, sizes):
    """Small slices are exact beside large ones in bins, in any order of merging."""
    code = np.repeat(np.arange(len(sizes)), np.square(sizes))
    draw = np.random.default_rng(sum(sizes))
    order = draw.permutation(len(code))
    code, score = code[order], draw.random(len(code))
    label = (draw.random(len(code)) < score).astype(np.float64)
    exact_scores, of_slice, most = data.draw(
        st.sampled_from([(8, 4, 64), (50, 16, 200), (500, 64, 1000), (100, 1, 100)])
    )
    cuts = sorted(data.draw(st.lists(st.integers(0, len(code)), max_size=5)))
    with pytest.MonkeyPatch.context() as patch:
        limit(patch, exact_scores, of_slice)
        patch.setattr(curves, "MOST_SCORES", most)
        found = []
        for ends in ([0, len(code)], [0, *cuts, len(code)]):
            parts = []
            for a, b in itertools.pairwise(ends):
                seen, own = np.unique(code[a:b], return_inverse=True)
                part = counted(own.reshape(-1), score[a:b], label[a:b], batch=30)
                parts.append((part, seen))
            whole = Curves()
            for part, seen in data.draw(st.permutations(parts)):
                if data.draw(st.booleans()):
                    part.compact()
                whole.merge(part, seen)
            values, errors = whole.areas(roc, len(sizes))
            found.append((values.tobytes(), errors.tobytes(), whole._bins))
    assert found[0] == found[1]


def test_sums_do_not_grow_with_the_rows(monkeypatch):
    """What a worker sends is of the same size for 40,000 and for 400,000 rows."""
    limit(monkeypatch, 1000)
    sizes = []
    for count in (40_000, 400_000):
        found = sums.Sums(["auc", "accuracy"], "binary")
        for start in range(0, count, 10_000):
            code, score, label = rows(10_000, slices=20, seed=start)
            member = SliceMembership(list(range(20)), np.arange(10_000), code)
            scores = {"candidate": {"prediction": score}}
            found.add(label, scores, {"carrier": member})
        found.compact()
        sizes.append(len(pickle.dumps(found)))
    assert sizes[1] < 1.3 * sizes[0]
    assert sizes[1] < 400_000


def test_feature_with_too_many_values_keeps_nothing(monkeypatch):
    monkeypatch.setattr(sums, "MOST_SLICES", 1000)
    found = sums.Sums(["auc"], "binary")
    for start in range(0, 5000, 100):
        _, score, label = rows(100, seed=start)
        ids = np.arange(100)
        member = SliceMembership([f"id{start + i}" for i in ids], ids, ids)
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
    limit(monkeypatch, exact_scores)
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


@settings(derandomized, max_examples=15)
@given(seed=st.integers(0, 1000), slices=st.integers(1, 30), block=st.integers(1, 300))
def test_areas_of_many_slices_are_those_of_each_alone(seed, slices, block):
    """ROC beside scikit-learn; the other curve of the largest slice beside Keras."""
    code, score, label = rows(400, slices, seed)
    code, score = code**2 % slices, score.round(2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(curves, "_BLOCK", block)
        found = counted(code, score, label)
        (areas, _), (others, _) = (found.areas(area, slices) for area in AREAS.values())
    for each in range(slices):
        truth, answers = label[code == each], score[code == each]
        if len(set(truth)) == 2:
            expected = roc_auc_score(truth, answers)
            assert areas[each] == pytest.approx(expected, abs=1e-12)
        else:
            assert np.isnan([areas[each], others[each]]).all()
    largest = np.bincount(code).argmax()
    keras = tf.keras.metrics.AUC(curve="PR", thresholds=np.arange(100) / 100 + 0.005)
    keras.update_state(label[code == largest], score[code == largest])
    assert others[largest] == pytest.approx(float(keras.result()), abs=1e-6)
