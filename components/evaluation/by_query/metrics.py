"""Metrics by query: the mean over the queries of how well their rows are ranked.

A query weighs the mean of its rows' weights, and counts if a label in it is above 0: of
other queries, one order is as good as another. Config validation imports this module,
so numpy is imported in functions.
"""

from __future__ import annotations

import abc
import copy
from typing import TYPE_CHECKING

from strategos.components.evaluation.metrics import Batch, Metric
from strategos.components.slow_imports import np

if TYPE_CHECKING:
    from strategos.components.evaluation.by_query.ties import Lists, Ties
    from strategos.components.evaluation.trivial import OneAnswer

MOST_RELEVANT = 31
"""The largest label: its gain, 2^label - 1, is 2 billion times that of label 1."""


class QueryMetric(Metric):
    """A mean over queries.

    Its sums over rows are 0; `totals.add` adds the sums over queries.

    Attributes:
      name: As in `evaluator.metrics`.
      top: Number of places, from the first on, that count; None for all.
    """

    tasks = ("binary", "regression")
    direction = "higher"
    by_query = True
    undefined_by_labels = "no query has a label above 0"
    name: str
    top: int | None = None

    def cut(self, top: int) -> Metric:
        """The metric of the first places.

        Args:
          top: Number of places.
        """
        other = copy.copy(self)
        other.top, other.name = top, f"{self.name}@{top}"
        return other

    def sums(self, batch: Batch) -> np.ndarray:
        """See `Metric`: of value, weight and value by chance; float64 [3, slices]."""
        return np.zeros((3, batch.slices))

    @abc.abstractmethod
    def values(self, lists: Lists, ranked: Ties) -> np.ndarray:
        """The metric of each query, float64 [queries].

        Args:
          lists: The rows of the queries, with labels of at least 0; of a query without
            a label above 0, any number may be returned.
          ranked: The same rows, as a model ranks them.
        """

    def finish(self, sums: np.ndarray) -> np.ndarray:
        """See `Metric`: NaN where no query counts."""
        return _mean(sums[0], sums[1])

    def trivial(self, one: OneAnswer) -> np.ndarray:
        """See `Metric`: the mean over all orders, as equal scores have none."""
        sums = one.by_query[self.name]
        return _mean(sums[2], sums[1])


class Ndcg(QueryMetric):
    """Discounted gains of the rows, beside those of the best order."""

    name = "ndcg"
    description = (
        "normalized discounted cumulative gain, the mean over `evaluator.query`; "
        "`ndcg@10`: of the first 10 places"
    )

    def values(self, lists: Lists, ranked: Ties) -> np.ndarray:
        """See `QueryMetric`."""
        best = lists.best.discounted_gain(self.top)
        gain = ranked.discounted_gain(self.top)
        ratio = gain / np.where(best > 0, best, 1.0)
        return np.where(np.isclose(ratio, 1.0, rtol=0, atol=1e-12), 1.0, ratio)


class Mrr(QueryMetric):
    """The place of the first relevant row."""

    name = "mrr"
    description = (
        "mean reciprocal rank: 1 / place of the first row with a label above 0, the "
        "mean over `evaluator.query`; `mrr@10`: 0 behind the first 10 places"
    )

    def values(self, lists: Lists, ranked: Ties) -> np.ndarray:
        """See `QueryMetric`."""
        return ranked.reciprocal_place(self.top)


def _mean(total: np.ndarray, weight: np.ndarray) -> np.ndarray:
    return np.where(weight > 0, total / np.where(weight > 0, weight, 1.0), np.nan)
