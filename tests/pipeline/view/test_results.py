from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strategos.pipeline.view import results

# Of the examples as README runs them.
FLIGHTS = [0.4504, 0.4433, 0.4402, 0.4399]
DIGITS = [0.6675, 0.2829, 0.1318, 0.1315, 0.1333, 0.0902]
DIGITS += [0.0827, 0.0729, 0.0898, 0.0727, 0.0699, 0.0698]


@pytest.mark.parametrize(
    "losses",
    [FLIGHTS, DIGITS, [0.5], [0.7, 0.5, 0.4, 0.41], [0.5, 0.5], [0.4, math.nan]],
)
def test_a_loss_that_has_settled_or_rises_is_not_reported(losses):
    history = {"loss": [9.0, 1.0], "val_loss": losses}
    assert results.still_falling(history) == ""


def test_a_loss_that_still_falls_at_the_end_is_reported_with_its_figures():
    found = results.still_falling({"val_loss": [0.6949, 0.68, 0.667, 0.655, 0.644]})
    assert found.startswith("val_loss was still falling: 0.655 after 4 of 5 epochs, ")
    assert "0.644 at the end; a larger trainer.epochs" in found
    assert results.still_falling({"loss": [0.7, 0.6]}).startswith("loss was still")
    assert results.still_falling(None) == ""


@given(st.integers(6, 200), st.floats(0.01, 3))
def test_an_exponential_decay_is_reported_until_its_last_fifth_is_a_twentieth(n, rate):
    losses = [1 + math.exp(-rate * epoch) for epoch in range(n)]
    end = round(n / 5)
    share = (losses[-1 - end] - losses[-1]) / (losses[0] - losses[-1])
    if abs(share - 0.05) > 1e-9 and losses[-2] > losses[-1]:
        found = results.still_falling({"val_loss": losses})
        assert bool(found) == (share > 0.05)
