"""Points of a regression's plots beside numpy and pandas, however rows are divided."""

from __future__ import annotations

import functools

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strategos.components.evaluation.plots import cells, counts, errors, points

SEEDS = st.integers(0, 2**32 - 1)
derandomized = settings(derandomize=True, deadline=None, max_examples=40)


def drawn(seed, rows=None):
    """Labels, predictions and weights, of any scale and offset, some with outliers."""
    draw = np.random.default_rng(seed)
    rows = rows or int(draw.integers(1, 6000))
    scale = 10.0 ** draw.integers(-6, 7)
    label = draw.normal(size=rows)
    if seed % 3 == 0:
        label = np.exp(3 * label)
    label = label * scale + scale * draw.choice([0, 0, 100])
    predicted = label + scale * draw.normal(size=rows) * draw.choice([0.01, 0.5])
    if seed % 5 == 0:
        predicted[0] = 1e9 * scale
    predicted = predicted.astype(np.float32).astype(np.float64)
    return label, predicted, draw.integers(0, 4, rows).astype(np.float64)


def merged(label, predicted, weight, parts):
    """The counts of rows in parts, each told what was counted before or not."""
    found, cut = [], np.random.default_rng(len(label)).integers(0, parts, len(label))
    for part in range(parts):
        chosen = cut == part
        earlier = found[-1] if found and part % 2 else None
        own = label[chosen], predicted[chosen, None], weight[chosen]
        found.append(counts.of("regression", *own, earlier=earlier))
    return functools.reduce(errors.Errors.merge, found)


def rows_of(found):
    """Weights by the corner of their cell."""
    return dict(zip(map(tuple, found.corners.tolist()), found.sums[0], strict=True))


@derandomized
@given(SEEDS)
def test_the_division_of_the_rows_changes_no_count(seed):
    label, predicted, weight = drawn(seed)
    whole = counts.of("regression", label, predicted[:, None], weight)
    parts = merged(label, predicted, weight, 5)
    for name in ("predicted", "error", "pairs"):
        one, other = getattr(whole, name), getattr(parts, name)
        assert one.exponent == other.exponent
        for each in (one, other):
            assert len(np.unique(each.corners, axis=0)) == len(each.corners)
            assert len(each.corners) <= each.most
        assert rows_of(one) == rows_of(other)


@derandomized
@given(SEEDS)
def test_quantiles_are_those_of_numpy_up_to_the_resolution(seed):
    label, predicted, weight = drawn(seed)
    found = points.of(merged(label, predicted, weight, 3))
    each = np.repeat(predicted - label, weight.astype(int))
    if not len(each):
        assert found["quantiles"] == []
        return
    width = found["resolution"]
    for share, value, rows in found["quantiles"]:
        exact = np.quantile(each, share, method="inverted_cdf")
        assert abs(value - exact) <= width
        assert rows == np.sum(np.floor(each / width) == np.floor(exact / width))


@pytest.mark.long
@derandomized
@given(SEEDS)
def test_groups_have_the_means_and_deviations_that_pandas_finds(seed):
    label, predicted, weight = drawn(seed)
    counted = merged(label, predicted, weight, 4)
    found = points.of(counted)["groups"]
    assert len(found) <= errors.GROUPS
    kept = weight > 0
    columns = {"predicted": predicted, "label": label, "times": weight}
    frame = pd.DataFrame(columns)[kept]
    frame["error"] = frame.predicted - frame.label
    frame["cell"] = np.floor(frame.predicted / counted.predicted.width)
    frame = frame.sort_values("cell", kind="stable")
    up_to = frame.groupby("cell").times.sum().cumsum()
    ends = np.cumsum([group["rows"] for group in found])
    assert ends[-1:] == pytest.approx(up_to.iloc[-1:].to_numpy())
    frame["group"] = np.searchsorted(ends, frame.cell.map(up_to))
    assert set(frame.group) == set(range(len(found)))
    for place, rows in frame.groupby("group"):
        each = rows.loc[rows.index.repeat(rows.times.astype(int))]
        group = found[place]
        near = {"rel": 1e-6, "abs": 1e-6 * float(each.label.abs().max())}
        assert group["predicted"] == pytest.approx(each.predicted.mean(), **near)
        assert group["observed"] == pytest.approx(each.label.mean(), **near)
        assert group["error"] == pytest.approx(each.error.mean(), **near)
        assert group["deviation"] == pytest.approx(each.error.std(ddof=0), **near)


@derandomized
@given(SEEDS)
def test_squares_have_the_rows_that_numpy_counts_in_them(seed):
    label, predicted, weight = drawn(seed)
    found = points.of(merged(label, predicted, weight, 3))["squares"]
    width = found["width"]
    total = found["outside"] + sum(rows for *_, rows in found["squares"])
    assert total == weight.sum()
    for low, left, rows in found["squares"]:
        inside = (predicted >= low) & (predicted < low + width)
        inside &= (label >= left) & (label < left + width)
        assert weight[inside].sum() == rows
    for axis in (0, 1):
        lows = [each[axis] for each in found["squares"]]
        assert not lows or (max(lows) - min(lows)) / width < errors.SQUARES
    assert found["outside"] <= 0.05 * weight.sum() + 4


def test_an_outlier_does_not_make_the_cells_wide():
    label, predicted, weight = drawn(1, rows=100_000)
    before = merged(label, predicted, weight, 2)
    label[0], weight[0] = label.std() * 1e6, 1
    after = merged(label, predicted, weight, 2)
    assert after.pairs.width <= 2 * before.pairs.width
    assert after.error.width <= 2 * before.error.width


@pytest.mark.parametrize("value", [0.0, -0.0, 1e-320, -1e300, 7.5])
def test_equal_values_are_one_cell(value):
    found = cells.of(np.full((9, 1), value), np.ones((1, 9)), 4)
    assert found.sums.tolist() == [[9]]
    assert found.corners[0, 0] * found.width == pytest.approx(value, rel=1e-6)


def test_rows_that_are_not_finite_are_left_out():
    label = np.array([1.0, np.nan, 3.0, -1.7e308])
    predicted = np.array([[2.0], [1.0], [np.inf], [1.7e308]])
    found = points.of(counts.of("regression", label, predicted))
    assert [(x["predicted"], x["observed"]) for x in found["groups"]] == [(2, 1)]
    nothing = points.of(counts.of("regression", label[1:2], predicted[1:2]))
    assert nothing["groups"] == nothing["quantiles"] == []
