"""The rows of queries, ranked by a score; numpy only.

Rows with equal scores stand in no order: a metric is its mean over all of their orders.
So it depends neither on the order in which rows come, nor on how they are divided.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Lists:
    """Rows of queries; the rows of a query stand together.

    Attributes:
      start: int64 [queries], the first row of each query; each has one row or more.
      gain: float64 [rows], 2^label - 1.
    """

    start: np.ndarray
    gain: np.ndarray

    @functools.cached_property
    def query(self) -> np.ndarray:
        """int64 [rows], the query of each row."""
        return np.repeat(np.arange(len(self.start)), self.size)

    @functools.cached_property
    def size(self) -> np.ndarray:
        """int64 [queries], the number of rows of each query."""
        return np.diff(self.start, append=len(self.gain))

    def ranked(self, score: np.ndarray) -> Ties:
        """The rows of each query by falling score.

        Args:
          score: float64 [rows].
        """
        order = np.lexsort((-score, self.query))
        score = score[order]
        new = np.ones(len(score), bool)
        new[1:] = score[1:] != score[:-1]
        new[self.start] = True
        return self._grouped(np.flatnonzero(new), self.gain[order])

    @functools.cached_property
    def best(self) -> Ties:
        """The rows of each query in the best order."""
        return self.ranked(self.gain)

    @functools.cached_property
    def by_chance(self) -> Ties:
        """The rows of each query, all of one score."""
        return self._grouped(self.start, self.gain)

    def _grouped(self, start: np.ndarray, gain: np.ndarray) -> Ties:
        """Rows in groups, from the first row of each group and the gains in order."""
        query = self.query[start]
        return Ties(
            first=start - self.start[query],
            size=np.diff(start, append=len(gain)),
            gain=np.add.reduceat(gain, start),
            relevant=np.add.reduceat((gain > 0).astype(np.int64), start),
            start=np.searchsorted(start, self.start),
        )


@dataclass(frozen=True)
class Ties:
    """Groups of rows of one query with equal scores, the highest score first.

    Attributes:
      first: int64 [groups], the number of rows of the query before the group.
      size: int64 [groups], number of rows.
      gain: float64 [groups], sum of the rows' gains.
      relevant: int64 [groups], number of rows with a gain.
      start: int64 [queries], the first group of each query.
    """

    first: np.ndarray
    size: np.ndarray
    gain: np.ndarray
    relevant: np.ndarray
    start: np.ndarray

    def discounted_gain(self, top: int | None) -> np.ndarray:
        """The sum of gain / log2(1 + place) over the places, from 1 on, by query.

        Args:
          top: Number of places that count; None for all.

        Returns:
          float64 [queries].
        """
        places = np.arange(1, int((self.first + self.size).max(initial=0)) + 1)
        discount = 1 / np.log2(1 + places)
        if top is not None:
            discount[top:] = 0
        sums = np.append(0.0, np.cumsum(discount))
        of_group = sums[self.first + self.size] - sums[self.first]
        return np.add.reduceat(self.gain / self.size * of_group, self.start)

    def reciprocal_place(self, top: int | None) -> np.ndarray:
        """The mean of 1 / place of the first row with a gain, by query.

        Args:
          top: Number of places that count, as in `discounted_gain`: a row behind them
            has 0.

        Returns:
          float64 [queries]; 0 for a query without such a row.
        """
        groups = len(self.first)
        known = np.where(self.relevant > 0, np.arange(groups), groups)
        group = np.minimum.reduceat(known, self.start)
        query = np.flatnonzero(group < groups)
        group = group[query]
        first, size, relevant = (
            each[group] for each in (self.first, self.size, self.relevant)
        )
        # Of `size` rows in any order, the first of `relevant` is the j-th one or not.
        orders = size - relevant + 1
        of = np.repeat(np.arange(len(group)), orders)
        j = np.arange(len(of)) - np.repeat(np.cumsum(orders) - orders, orders) + 1
        chance = np.exp(
            _log_choices(size[of] - j, relevant[of] - 1)
            - _log_choices(size[of], relevant[of])
        )
        place = first[of] + j
        counts = chance / place if top is None else (place <= top) * chance / place
        means = np.zeros(len(self.start))
        means[query] = np.bincount(of, counts, len(group))
        return means


def _log_choices(rows: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """The logarithm of the number of ways to choose some of some rows."""
    most = int(rows.max(initial=0))
    logs = np.append(0.0, np.cumsum(np.log(np.arange(1, most + 1))))
    return logs[rows] - (logs[chosen] + logs[rows - chosen])
