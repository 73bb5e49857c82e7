"""Sums over queries, from the files of all shards; numpy and Arrow only."""

from __future__ import annotations

import contextlib
import dataclasses
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from strategos.components.evaluation.by_query import rows
from strategos.components.evaluation.by_query.ties import Lists
from strategos.components.evaluation.intervals import resampling
from strategos.components.evaluation.metrics import METRICS
from strategos.components.evaluation.scored import Queries, Scored
from strategos.components.evaluation.sums import Sums
from strategos.components.files import filesystems, storage
from strategos.components.shards import progress

ROWS_AT_ONCE = 1 << 20


def add(
    scored: Scored, metrics: Sequence[str], models: Sequence[str], folder: str
) -> None:
    """Adds the sums of the metrics by query to those of scored rows.

    Takes memory for `ROWS_AT_ONCE` rows, or those of the largest query.

    Args:
      scored: Results of all rows, with the files of their queries.
      metrics: Names of metrics by query.
      models: Names of the models; those that are not usable are left out.
      folder: The folder of the files: a path, or a URL.

    Raises:
      OSError: A file cannot be read.
    """
    files = scored.queries.files
    scored.queries = dataclasses.replace(scored.queries, files=())
    usable = [name for name in models if name not in scored.unusable]
    parts = -(-scored.sums.examples // ROWS_AT_ONCE)
    with _local(folder) as here:
        paths = [here + file.removeprefix(folder) for file in files]
        for part in range(parts if files else 0):
            progress.say(f"adding up queries: part {part + 1} of {parts}")
            some = rows.read(paths, usable, part, parts)
            if len(some.query):
                totals = _Totals(some, metrics)
                scored.queries = scored.queries.merge(totals.queries)
                totals.add_to(scored.sums)


@contextlib.contextmanager
def _local(folder: str) -> Iterator[str]:
    """The folder on this machine: itself, or a copy for the time of the block."""
    if not filesystems.is_remote(folder):
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="queries-") as copy:
        storage.get(folder, copy)
        yield copy


class _Totals:
    """The sums over some queries.

    Args:
      part: The rows of the queries.
      metrics: Names of metrics by query.

    Attributes:
      queries: Their numbers.
    """

    def __init__(self, part: rows.Part, metrics: Sequence[str]):
        self._part = part
        new = np.ones(len(part.query), bool)
        new[1:] = part.query[1:] != part.query[:-1]
        start = np.flatnonzero(new)
        self._query = part.query[start]
        self._lists = Lists(start, np.exp2(part.label) - 1)
        counts = np.maximum.reduceat(part.label, start) > 0
        weight = np.add.reduceat(part.weight, start) / self._lists.size
        self._weight = np.where(counts, weight, 0.0)
        self._metrics: dict[str, Any] = {name: METRICS[name] for name in metrics}
        self._chance = {
            name: metric.values(self._lists, self._lists.by_chance)
            for name, metric in self._metrics.items()
        }
        ranked = int((self._lists.size > 1).sum())
        self.queries = Queries((), len(start), ranked, int(counts.sum()))

    def add_to(self, sums: Sums) -> None:
        """Adds the sums of all models and metrics.

        Args:
          sums: Over all rows.
        """
        codes = sums.codes()
        every = np.arange(len(self._query))
        places: dict[str | None, tuple[np.ndarray, np.ndarray]] = {
            None: (every, np.zeros_like(every)),
            **self._places(codes),
        }
        sizes = {each: len(codes[each]) for each in sums.resampled if each in places}
        times = resampling.times_of(self._query) if sizes else None
        for model, score in self._part.scores.items():
            for metric, of_query in self._of_model(score).items():
                totals = {
                    feature: _by_slice(of_query[:, query], code, len(codes[feature]))
                    for feature, (query, code) in places.items()
                }
                resampled = {
                    feature: _by_resample(of_query, times, *places[feature], n)
                    for feature, n in sizes.items()
                }
                sums.add_totals(metric, model, totals, resampled)

    def _of_model(self, score: np.ndarray) -> dict[str, np.ndarray]:
        """Weighted value, weight and value by chance, float64 [3, queries] each."""
        lists, weight = self._lists, self._weight
        ranked = lists.ranked(score)
        known = np.logical_and.reduceat(np.isfinite(score), lists.start)
        by_metric = {}
        for name, metric in self._metrics.items():
            value = np.where(known, metric.values(lists, ranked), np.nan)
            parts = np.stack([value, np.ones(len(weight)), self._chance[name]])
            by_metric[name] = np.where(weight > 0, weight * parts, 0.0)
        return by_metric

    def _places(
        self, codes: Mapping[str | None, Mapping[object, int]]
    ) -> dict[str | None, tuple[np.ndarray, np.ndarray]]:
        """The queries of each slice: by feature, int64 [pairs] of query and slice.

        A query is in each slice that has one of its rows, whole, as in TFMA.
        """
        query = np.searchsorted(self._query, self._part.members)
        by_feature: dict[str | None, tuple[np.ndarray, np.ndarray]] = {}
        for feature, keys in rows.keys(codes).items():
            if not len(keys):
                continue
            order = np.argsort(keys)
            place = np.searchsorted(keys[order], self._part.slices)
            place = order[np.minimum(place, len(keys) - 1)]
            own = keys[place] == self._part.slices
            by_feature[feature] = query[own], place[own]
        return by_feature


def _by_slice(values: np.ndarray, code: np.ndarray, slices: int) -> np.ndarray:
    """The sums of values, float64 [n, slices], from float64 [n, pairs]."""
    return np.stack([np.bincount(code, each, slices) for each in values])


def _by_resample(
    values: np.ndarray, times: Any, query: np.ndarray, code: np.ndarray, slices: int
) -> np.ndarray:
    """The sums of each slice and resample, float64 [n, slices · resamples].

    Args:
      values: float64 [n, queries].
      times: int64 [queries, resamples].
      query: int64 [pairs], a query of a slice.
      code: int64 [pairs], the slice.
      slices: Number of slices.
    """
    by_resample = [_by_slice((values * of)[:, query], code, slices) for of in times.T]
    return np.stack(by_resample, axis=2).reshape(len(values), -1)
