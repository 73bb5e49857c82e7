"""The bound that `strategos init` writes after its first fit."""

from __future__ import annotations

import types

import pytest

from strategos.pipeline.init import first_fit


@pytest.mark.parametrize("value", [0.99999, 0.9997, 0.95 + 1e-9, 0.7312])
@pytest.mark.parametrize("rows", [100, 10**9])
def test_a_bound_as_it_is_written_holds_for_the_fit(value, rows):
    label = types.SimpleNamespace(task="binary", share_of_positives=0.5)
    bound = first_fit.bound(label, {"auc": value}, {}, rows)
    kind, limit = str(bound).split(": ")
    assert kind == "at_least" and float(limit) == bound.limit
    assert bound.limit <= value and bound.holds
    assert bound.limit == pytest.approx(value - bound.interval, abs=2e-3)


@pytest.mark.parametrize("scale", [1e-6, 0.037, 1, 4321.5])
def test_a_bound_of_an_error_is_not_below_it(scale):
    label = types.SimpleNamespace(task="regression")
    metrics = {"mae": 0.99996 * scale, "rmse": 1.0 * scale}
    bound = first_fit.bound(label, metrics, {"mae": 3 * scale}, 10**9)
    assert float(str(bound).split(": ")[1]) >= metrics["mae"]
    assert bound.limit == pytest.approx(metrics["mae"] + bound.interval, rel=0.01)
