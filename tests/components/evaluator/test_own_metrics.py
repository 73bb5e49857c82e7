"""A metric that is a plug-in: it merges in its own way, in any order, by slice."""

from __future__ import annotations

import itertools
import math
import pickle

import numpy as np
import pytest

from strategos.components.evaluation import trials
from strategos.components.evaluation.classes.entries import SliceMembership
from strategos.components.evaluation.metrics import METRICS
from strategos.components.evaluation.sums import Sums
from strategos.components.evaluator.tfma import eval_config

SOURCE = """
import numpy as np
from strategos.components.evaluation.metrics import Batch, Metric

class Worst(Metric):
    description, tasks, direction = "largest error", ("regression",), "lower"

    def sums(self, batch: Batch) -> np.ndarray:
        found = np.full(batch.slices, -np.inf)
        np.fmax.at(found, batch.code, np.abs(batch.prediction - batch.label))
        return found

    def merge(self, mine, theirs):
        return np.fmax(mine, theirs)

    def finish(self, sums):
        return sums
"""
POINTS = "[strategos.metrics]\nworst = worst:Worst\n"
COUNTING = """
import numpy as np
from strategos.components.evaluation.metrics import Batch, Metric

class Far(Metric):
    description, tasks, direction = "share of large errors", ("regression",), "lower"

    def total(self, batch, values):
        return np.bincount(batch.code, values, batch.slices)

    def sums(self, batch: Batch) -> np.ndarray:
        far = (np.abs(batch.prediction - batch.label) > 0.3).astype(float)
        return np.stack([self.total(batch, far), self.total(batch, np.ones_like(far))])

    def finish(self, sums):
        return sums[0] / sums[1]

class Weighed(Far):
    def total(self, batch, values):
        return batch.total(values)
"""
TWO = "[strategos.metrics]\nfar = far:Far\nweighed = far:Weighed\n"


@pytest.fixture(autouse=True)
def worst(install):
    install("worst", SOURCE, POINTS)


def test_a_metric_that_counts_rows_of_any_weight_alike_is_found(install):
    install("far", COUNTING, TWO)
    asked = ["worst", "mae", "far", "weighed"]
    assert trials.unweighted(asked, "regression") == ["far"]


WRONG = """
import numpy as np
from strategos.components.evaluation.metrics import Batch, Metric

class Mean(Metric):
    description, tasks = "mean error of each part", ("binary", "multi_label")

    def sums(self, batch: Batch) -> np.ndarray:
        error = np.abs(batch.prediction - batch.label)
        return batch.total(error) / batch.total(np.ones_like(error))

    def finish(self, sums):
        return sums

class Broken(Mean):
    def sums(self, batch: Batch) -> np.ndarray:
        return batch.columns["score"]

class Right(Mean):
    def sums(self, batch: Batch) -> np.ndarray:
        error = np.abs(batch.prediction - batch.label)
        return np.stack([batch.total(error), batch.total(np.ones_like(error))])

    def finish(self, sums):
        return sums[0] / sums[1]
"""
THREE = "[strategos.metrics]\nmean = mean:Mean\nbroken = mean:Broken\n"
THREE += "right = mean:Right\n"


@pytest.mark.parametrize("task", ["binary", "multi_label"])
def test_a_metric_that_does_not_merge_is_found(install, task):
    install("mean", WRONG, THREE)
    found = trials.unmerged(["auc", "mean", "broken", "right"], task)
    assert {*found} == {"mean", "broken"}
    if task == "binary":
        assert found["mean"].startswith("does not merge: 0.5 from 8 rows at once")
    assert found["broken"] == "fails on a few rows: KeyError: 'score'"
    assert trials.unmerged(["worst"], "regression") == {}


def test_a_metric_may_merge_in_its_own_way():
    draw = np.random.default_rng(0)
    label, code = draw.normal(size=90), draw.integers(0, 5, 90)
    answer = draw.normal(size=90)
    parts = []
    for first, last in ((0, 9), (9, 10), (10, 60), (60, 90)):
        rows = slice(first, last)
        seen, own = np.unique(code[rows], return_inverse=True)
        member = SliceMembership(
            seen.tolist(), np.arange(last - first), own.reshape(-1)
        )
        part = Sums(["worst", "mae"], "regression")
        part.add(label[rows], {"c": {"prediction": answer[rows]}}, {"f": member})
        parts.append(pickle.dumps(part))
    error = np.abs(answer - label)
    for order in itertools.permutations(parts):
        whole, *others = map(pickle.loads, order)
        for other in others:
            whole = whole.merge(other)
        for piece in whole.metrics("c"):
            chosen = slice(None) if piece.feature is None else code == piece.value
            assert piece.metrics["worst"] == error[chosen].max()
            assert piece.metrics["mae"] == pytest.approx(error[chosen].mean())
            assert "worst" not in piece.trivial.metrics


def test_an_answer_that_is_not_finite_leaves_it_undefined():
    sums = Sums(["worst"], "regression")
    sums.add(np.zeros(2), {"c": {"prediction": np.array([1.0, math.nan])}}, {})
    assert math.isnan(sums.metrics("c")[0].metrics["worst"])


def test_tfma_is_told_where_its_class_is():
    section = {"task": "regression", "metrics": ["worst", "mae"]}
    _, own, ours = eval_config.build(section, "label").metrics_specs[0].metrics
    assert (own.class_name, own.module) == ("Worst", "worst")
    assert (ours.class_name, ours.module) == ("MeanAbsoluteError", "")
    assert not METRICS["worst"].is_compared
