"""How far a column of text drifts, beside TFDV and the formulas."""

from __future__ import annotations

import numpy as np
import pytest


@pytest.fixture
def drift(write, validate):
    """The drift of a text column between two spans."""

    def call(before, after):
        write(1, s=before)
        write(2, s=after)
        _, _, checks = validate([2], [1])
        return checks["drift", "s"]

    return call


def test_a_distance_that_chance_explains_is_within_the_bound(
    write, validate, gates, monkeypatch
):
    notes = []
    monkeypatch.setattr(
        "strategos.components.events.emit", lambda kind, **event: notes.append(event)
    )
    gates["drift"] = {"at_most": 0.1, "features": {}}
    write(1, s=["a", "b", "c", "d"] * 125, t=["a", "b", "c", "d"] * 125)
    write(2, s=["a", "b", "b", "b", "c", "d"] * 2, t=["x", "y", "z", "w"] * 3)
    _, _, checks = validate([2], [1])
    check = checks["drift", "s"]
    assert check["received"] == pytest.approx(0.25) and check["ok"]
    assert check["required"] > 0.25
    assert (
        "samples of 12 and 500 rows of one distribution differ by up to"
        in (check["note"])
    )
    assert "0.25 is beyond the bound (0.1), and is not judged as drift" in check["note"]
    assert [check["note"] in each["message"] for each in notes if "message" in each][
        -1:
    ] == [True]
    assert not checks["drift", "t"]["ok"]
    assert checks["drift", "t"]["required"] < 0.8


def test_a_column_whose_values_are_all_new_drifts_by_one(drift):
    names = [f"name {i}" for i in range(50)] * 10
    check = drift(names, [name.upper() for name in names])
    assert check["received"] == 1 and not check["ok"]


def test_new_values_count_together(drift):
    names = [f"n{i}" for i in range(50)] * 10
    check = drift(names, names[:250] + [f"m{i}" for i in range(50)] * 5)
    assert check["received"] == pytest.approx(0.5)


def test_one_value_that_vanishes_is_measured_as_tfdv_does(drift):
    check = drift(["a", "b", "c", "c"] * 50, ["a", "c", "c", "c"] * 50)
    assert check["received"] == pytest.approx(0.25)


def test_values_that_occur_once_are_expected_to_be_new(drift):
    ids = [f"id{i}" for i in range(2000)]
    check = drift(ids[:1000], ids[1000:])
    assert check["received"] == pytest.approx(0.001) and check["ok"]


@pytest.mark.parametrize("seed", range(4))
def test_rare_values_of_the_same_data_are_no_drift(tmp_path, seed):
    """Two samples of one distribution with a long tail, as of tail numbers."""
    from strategos.components.span_validator import checks
    from strategos.components.span_validator.measure import Values

    random = np.random.default_rng(seed)
    samples = []
    for _ in range(2):
        drawn = np.minimum(random.zipf(1.3, 5000), 10**6).tolist()
        counts = {str(v): float(drawn.count(v)) for v in set(drawn)}
        samples.append(Values(counts, 5000.0, complete=True))
    new = sum(n for v, n in samples[1].counts.items() if v not in samples[0].counts)
    assert new / 5000 > 0.03
    assert checks._new_share(samples[1], samples[0]) < 0.015


def test_more_values_than_tfdv_ranks_are_compared(drift):
    names = [f"name {i}" for i in range(3000)] * 4
    check = drift(names, [name.upper() for name in names])
    assert check["received"] == 1


def test_of_too_many_values_single_ones_are_compared(drift, monkeypatch):
    from strategos.components.span_validator import measure

    monkeypatch.setattr(measure, "RANKED", 40)
    names = [f"name {i}" for i in range(50)] * 10
    check = drift(names, [name.upper() for name in names])
    assert check["received"] == pytest.approx(1 / 40)  # TFDV: of the ranked ones
