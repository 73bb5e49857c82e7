"""Generated tables, cut anywhere and merged in any order, give the same metrics."""

from __future__ import annotations

import itertools
import math
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strategos.components.evaluation import curves, metrics
from strategos.components.evaluation.classes.entries import SliceMembership
from strategos.components.evaluation.sums import Sums

VALUES = [math.nan, 0.0, -0.5, math.inf, -math.inf, 1e20]
SCORES = st.one_of(
    st.floats(0, 1, width=32), st.sampled_from([0.0, 0.5, 1.0]), st.just(math.nan)
)
ROWS = st.lists(
    st.tuples(SCORES, st.sampled_from([0.0, 1.0]), st.sets(st.integers(0, 5))),
    max_size=30,
)
derandomized = settings(derandomize=True, deadline=None, max_examples=40)


def summed(rows, task):
    label = np.array([label for _, label, _ in rows])
    score = np.array([score for score, _, _ in rows])
    present = sorted({value for _, _, values in rows for value in values})
    pairs = [(i, value) for i, row in enumerate(rows) for value in sorted(row[2])]
    member = SliceMembership(
        [VALUES[value] for value in present],
        np.array([i for i, _ in pairs], np.int64),
        np.array([present.index(value) for _, value in pairs], np.int64),
    )
    columns = {"prediction": score}
    if task == "multi_class":
        unknown = np.where(np.isnan(score), np.nan, 0.0)
        right = (score > 0.5) + unknown
        columns = {"right": right, "loss": score, "predicted": right}
    sums = Sums(metrics.names(task), task)
    scores = {"candidate": columns, "baseline": columns}
    sums.add(label, scores, {"value": member})
    return sums


def merged(parts, data):
    """The parts, merged by a tree that hypothesis draws; each went to a worker."""
    while len(parts) > 1:
        i = data.draw(st.integers(0, len(parts) - 2))
        ours, theirs = (pickle.loads(pickle.dumps(part)) for part in parts[i : i + 2])
        for part in (ours, theirs):
            if data.draw(st.booleans()):
                part.compact()
        parts[i : i + 2] = [ours.merge(theirs)]
    return parts[0]


@pytest.mark.parametrize(
    "limit", [pytest.param(curves.EXACT_SCORES, marks=pytest.mark.long), 8]
)
@pytest.mark.parametrize(
    "task",
    [
        pytest.param(x, marks=() if x == "multi_class" else pytest.mark.long)
        for x in metrics.TASKS
    ],
)
@derandomized
@given(rows=ROWS, cuts=st.lists(st.integers(0, 30), max_size=5), data=st.data())
def test_any_cut_and_any_order_of_merging_give_the_same_metrics(
    task, limit, rows, cuts, data
):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(curves, "EXACT_SCORES", limit)
        patch.setattr(curves, "SLICE_SCORES", min(limit, curves.SLICE_SCORES))
        ends = [0, *sorted(min(cut, len(rows)) for cut in cuts), len(rows)]
        parts = [summed(rows[a:b], task) for a, b in itertools.pairwise(ends)]
        found = merged(parts, data)
        whole = summed(rows, task)
        assert found.examples == len(rows)
        assert found.without_value() == whole.without_value()
        pieces, expected = (
            sums.metrics("candidate", "baseline") for sums in (found, whole)
        )
    names = [piece.name for piece in pieces]
    assert names == [piece.name for piece in expected] and len(set(names)) == len(names)
    for piece, other in zip(pieces, expected, strict=True):
        assert piece.examples == other.examples
        assert piece.metrics == pytest.approx(other.metrics, rel=1e-9, nan_ok=True)
        assert piece.errors == other.errors
