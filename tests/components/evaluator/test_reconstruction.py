"""Errors of reconstructed features: scikit-learn's numbers, whatever the shards."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as stock

from strategos.components.evaluation.classes.entries import SliceMembership
from strategos.components.evaluation.plots import errors
from strategos.components.evaluation.sums import Sums

METRICS = ("mse", "mae", "rmse")
NAMES = ("age", "shop", "shop", "shop", "hour")  # the feature of each value


def summed(features, answer, place, weight, shards, names=NAMES):
    """Sums of rows that are cut into shards and merged, also through pickling."""
    total = Sums(METRICS, "reconstruction")
    for some in np.array_split(np.arange(len(features)), shards):
        part = Sums(METRICS, "reconstruction")
        member = SliceMembership([0, 1, 2], np.arange(len(some)), place[some])
        scores = {"candidate": {"prediction": answer[some]}}
        own = None if weight is None else weight[some]
        part.add(features[some], scores, {"place": member}, own, names)
        part.compact()
        total.merge(pickle.loads(pickle.dumps(part)))
    return total.metrics("candidate")


def wanted(features, answer, weight):
    given = {"sample_weight": weight}
    mse = stock.mean_squared_error(features, answer, **given)
    mae = stock.mean_absolute_error(features, answer, **given)
    return {"mse": mse, "mae": mae, "rmse": np.sqrt(mse)}


def chosen(piece, place, names):
    """The rows and the values of a slice."""
    rows, columns = np.ones(len(place), bool), np.ones(len(names), bool)
    if piece.feature == "place":
        rows = place == piece.value
    if piece.feature == "feature":
        columns = np.array(names) == piece.value
    return rows, columns


@settings(max_examples=25, deadline=None)
@given(
    widths=st.lists(st.integers(1, 4), min_size=1, max_size=4),
    rows=st.integers(20, 60),
    weighted=st.booleans(),
    seed=st.integers(0, 99),
)
def test_errors_are_those_of_scikit_learn_however_rows_are_cut(
    widths, rows, weighted, seed
):
    draw = np.random.default_rng(seed)
    names = [f"f{i}" for i, width in enumerate(widths) for _ in range(width)]
    shape = rows, len(names)
    features, answer = draw.normal(size=shape) * 3, draw.normal(size=shape)
    features[:, 0] = np.round(features[:, 0])
    place = np.arange(rows) % 3
    weight = draw.integers(0, 3, rows) * 0.5 + 1e-9 * (place == 0) if weighted else None
    whole, cut = (summed(features, answer, place, weight, n, names) for n in (1, 4))
    assert len(whole) == 1 + 3 + len(widths)
    for one, other in zip(whole, cut, strict=True):
        assert (one.name, one.examples) == (other.name, other.examples)
        some, columns = chosen(one, place, names)
        assert one.examples == some.sum()
        own = None if weight is None else weight[some]
        if own is not None and not own.sum() > 1e-6:
            continue
        mine, theirs = features[some][:, columns], answer[some][:, columns]
        oracle = wanted(mine, theirs, own)
        assert one.metrics == pytest.approx(oracle, rel=1e-6)
        assert other.metrics == pytest.approx(oracle, rel=1e-6)
        mean = np.average(mine, axis=0, weights=own)
        oracle = wanted(mine, np.tile(mean, (len(mine), 1)), own)
        assert one.trivial.metrics == pytest.approx(oracle, rel=1e-4)
        assert other.trivial.metrics == pytest.approx(oracle, rel=1e-4)


def test_the_trivial_model_of_many_rows_is_right_to_three_digits():
    draw = np.random.default_rng(1)
    names = [f"f{i}" for i in range(200)]
    features = draw.lognormal(size=(2000, 200))
    place = draw.integers(0, 3, 2000)
    overall, *_ = summed(features, features, place, None, 3, names)
    mean = features.mean(axis=0, keepdims=True).repeat(2000, axis=0)
    oracle = wanted(features, mean, None)
    assert overall.trivial.metrics["mse"] == pytest.approx(oracle["mse"], rel=1e-9)
    assert overall.trivial.metrics["mae"] == pytest.approx(oracle["mae"], rel=1e-3)


def test_an_answer_that_is_not_finite_leaves_its_feature_undefined():
    draw = np.random.default_rng(2)
    features, place = draw.normal(size=(50, 5)), draw.integers(0, 3, 50)
    answer = features + 1
    answer[7, 2] = np.nan
    pieces = summed(features, answer, place, None, 2)
    undefined = {piece.name for piece in pieces if np.isnan(piece.metrics["mse"])}
    assert undefined == {"overall", "feature=shop", f"place={place[7]}"}


def test_quantiles_of_the_errors_of_rows_are_those_of_numpy():
    draw = np.random.default_rng(3)
    features = draw.normal(size=(4000, 3))
    answer = features + draw.lognormal(sigma=2, size=(4000, 1))  # far outliers
    weight = draw.integers(0, 3, 4000).astype(float)
    total = None
    for some in np.array_split(np.arange(4000), 4):
        part = features[some], answer[some], weight[some]
        found = errors.of_rows(*part, total)
        total = total.merge(found) if total else found
    points = errors.points_of_rows(total)
    assert points["resolution"] < 0.05
    error = ((answer - features) ** 2).mean(axis=1).repeat(weight.astype(int))
    for share, value, _ in points["quantiles"]:
        wanted = np.quantile(error, share, method="inverted_cdf")
        assert value == pytest.approx(wanted, rel=points["resolution"])
