"""Bounds on the features of a span, beside pandas."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

EMPTY = {"mean": None, "values": None, "missing": None, "shares": {}}


@pytest.fixture
def judged(write, validate, gates):
    """The checks of `gates.features` on the first span: `judged(columns, bounds)`."""

    def call(columns, **bounds):
        write(1, **columns)
        gates["features"] = {name: EMPTY | each for name, each in bounds.items()}
        _, found, _ = validate([1], [])
        return [each for each in found["checks"] if each["gate"] == "features"]

    return call


@pytest.mark.parametrize("seed", range(5))
def test_figures_are_those_of_pandas(judged, seed):
    random = np.random.default_rng(seed)
    rows = int(random.integers(20, 400))
    frame = pd.DataFrame(
        {"x": random.normal(5, 3, rows).round(3), "c": random.choice(list("abc"), rows)}
    ).astype(object)
    frame[random.random(frame.shape) < 0.1] = None
    numbers = frame["x"].dropna().astype(float)
    columns = {name: [*values] for name, values in frame.items()}
    limits = {"at_least": 4.9, "at_most": 5.1}
    share = {"at_least": 0.3, "at_most": None}
    found = judged(
        columns,
        x={"mean": limits, "values": {"at_least": -3.0, "at_most": 14.0}},
        c={"missing": 0.1, "shares": {"a": share, "d": share}},
    )
    of_a = (frame["c"].dropna() == "a").mean()
    expected = [
        (
            "c",
            "share without a value",
            missing := frame["c"].isna().mean(),
            missing <= 0.1,
        ),
        ("c", "share of 'a'", of_a, of_a >= 0.3),
        ("c", "share of 'd'", 0.0, False),
        ("x", "mean", numbers.mean(), 4.9 <= numbers.mean() <= 5.1),
        ("x", "smallest number", numbers.min(), numbers.min() >= -3),
        ("x", "largest number", numbers.max(), numbers.max() <= 14),
    ]
    assert [(each["feature"], each["note"], each["ok"]) for each in found] == [
        (name, note, ok) for name, note, _, ok in expected
    ]
    assert [each["received"] for each in found] == pytest.approx(
        [value for *_, value, _ in expected], rel=1e-5
    )


def test_the_message_names_feature_figure_and_bound(judged):
    from strategos.components.data_files import span_checks

    bounds = {"mean": {"at_least": None, "at_most": 2.5}}
    (check,) = judged({"x": [1, 2, 6]}, x=bounds)
    assert span_checks.describe(check) == "`x`: 3 received, at most 2.5 allowed (mean)"


def test_a_column_that_has_no_such_figure_fails(judged):
    limits = {"at_least": 0.0, "at_most": None}
    found = judged(
        {"x": [1, 2], "c": ["a", "b"]},
        x={"shares": {"a": limits}},
        c={"mean": limits},
        gone={"missing": 0.5},
    )
    assert [(each["feature"], each["ok"], each["note"]) for each in found] == [
        ("c", False, "no numbers, which `mean` and `values` bound"),
        ("gone", False, "no such column"),
        ("x", False, "no texts, whose shares `shares` bounds"),
    ]
