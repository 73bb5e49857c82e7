"""Mergeable sums over evaluated rows, by slice; numpy only.

The sums take memory for slices, not for rows. However the rows are divided, merged sums
give the same metrics, in any order (floats but for their last digits).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from strategos.components.evaluation.classes import entries
from strategos.components.evaluation.classes.entries import SliceMembership
from strategos.components.evaluation.intervals import resampling
from strategos.components.evaluation.intervals.resampling import Resampled
from strategos.components.evaluation.metrics import METRICS, MOST_SLICES, Batch, Columns
from strategos.components.evaluation.slices import slicing
from strategos.components.evaluation.slices.groups import (
    Arrays,
    Features,
    Groups,
    ModelSums,
)
from strategos.components.evaluation.slices.measured import SliceMetrics, Trivial
from strategos.components.evaluation.slices.slicing import Slicing
from strategos.components.evaluation.trivial import Labels

Place: TypeAlias = tuple[str | None, Any]
"""The name of a slicing, and the value of a slice; (None, None) for all rows."""

_Values: TypeAlias = dict[str, tuple[np.ndarray, np.ndarray]]
"""Values and errors by metric, float64 [slices] each."""


class Sums:
    """Sums over evaluated rows: over all, and by value of each sliced feature.

    Args:
      metrics: Names in `metrics.METRICS`.
      task: One of `metrics.TASKS`, for which `metrics` are defined.
      slicings: The slicings; features that are not among these are sliced by value.
      resampled: Which sums are resampled, if `add` is told how often rows count.

    Attributes:
      examples: Number of rows, those of weight 0 included.
      weighted: Sum of the rows' weights; None without weights.
      labels: Sum of the labels of the rows that count.
    """

    def __init__(
        self,
        metrics: Sequence[str],
        task: str,
        slicings: Sequence[Slicing] = (),
        resampled: Resampled = "rows",
    ):
        self.examples = 0
        self.weighted: float | None = None
        self.labels = 0.0
        self._resamples = Features(slicing.MOST_RESAMPLED * resampling.RESAMPLES)
        self._metrics, self._task = tuple(metrics), task
        self._slicings = {each.name: each for each in slicings}
        self._resampled = resampled
        self._features = Features(MOST_SLICES)
        self._part = slicing.part_of(task)
        self._names: tuple[str, ...] = ()

    def add(
        self,
        label: np.ndarray,
        scores: Mapping[str, Columns],
        slices: Mapping[str, SliceMembership],
        weight: np.ndarray | None = None,
        classes: Sequence[str] = (),
        times: np.ndarray | None = None,
    ) -> None:
        """Adds rows.

        Args:
          label: float64 [rows], the rows' labels; multi_label: [rows, classes], and
            reconstruction: [rows, values].
          scores: Columns of scores by model.
          slices: The rows of each slice, by name of the slicing.
          weight: float64 [rows], finite and not negative: how much each row counts. A
            row of weight 0 only counts among the examples. None for 1.
          classes: Names of the classes of multi_label, or the feature of each value of
            reconstruction; each of these gets a slice.
          times: From `resampling.times`; None for no resamples.
        """
        self.examples += len(label)
        self.labels += float(label.sum() if weight is None else label[weight > 0].sum())
        self._add_weights(None if weight is None else float(weight.sum()))
        members = entries.everything(len(label), slices, classes, self._part)
        self._names = tuple(classes)
        label = label.reshape(-1)
        for feature, member in members.items():
            is_part = bool(classes) and feature == self._part
            lookup = entries.of(member, classes, weight, is_part=is_part)
            labels = Labels(self._task == "multi_class", lookup.classes)
            if not (is_part and self._pools):
                counted = None if weight is None else weight[lookup.row]
                labels.add(lookup.code, label[lookup.index], counted)
            groups = Groups(labels, member, weight)
            rows = label, scores, weight
            groups.models = self._of_models(lookup, len(member.values), *rows)
            self._features.add(feature, groups)
            if times is not None and (feature is None or self._resampled == "slices"):
                lookup = entries.resampled(lookup, times)
                groups = Groups(labels.empty(), resampling.slices(member.values))
                groups.rows = np.bincount(lookup.code, minlength=len(groups.codes))
                groups.models = self._of_models(lookup, len(groups.codes), *rows)
                self._resamples.add(feature, groups)

    def _add_weights(self, weighted: float | None) -> None:
        if weighted is not None:
            self.weighted = (self.weighted or 0.0) + weighted

    def merge(self, later: Sums) -> Sums:
        """Adds the sums over other rows, and returns itself.

        Args:
          later: Over other rows, with the same metrics; not to be used again.
        """
        self.examples += later.examples
        self._add_weights(later.weighted)
        self.labels += later.labels
        self._names = self._names or later._names
        self._features.merge(later._features)
        self._resamples.merge(later._resamples)
        return self

    def compact(self) -> None:
        """Makes the sums small and quick to merge."""
        self._features.compact()
        self._resamples.compact()

    @property
    def too_many(self) -> set[str]:
        """Features with more than `MOST_SLICES` values, which have no sums."""
        return self._features.too_many

    def selected(
        self,
        metrics: Sequence[str],
        slicings: Sequence[Slicing],
        *,
        resampled: Resampled = "",
    ) -> Sums | None:
        """The sums of some metrics and slices over the same rows.

        Args:
          metrics: Names in `metrics.METRICS`; may differ from those of these sums if
            they are computed from the same sums (`Metric.shares`).
          slicings: The slicings, in the order in which slices are reported.
          resampled: Of which sums resamples are wanted.

        Returns:
          Sums that share their arrays with these; None if there are no such sums.
        """
        known = self._slicings
        if any(known.get(x.name, Slicing.of(x.name)) != x for x in slicings):
            return None
        parts = [self._part] if self._part else []
        every: list[str | None] = [None, *(each.name for each in slicings), *parts]
        some = {"": every[:0], "rows": every[:1], "slices": every}[resampled]
        keys = {METRICS[name].shares or name for name in metrics}
        features = self._features.selected(every, keys)
        resamples = self._resamples.selected(some, keys)
        if features is None or resamples is None:
            return None
        chosen = Sums(metrics, self._task, slicings, resampled)
        chosen.examples, chosen.labels = self.examples, self.labels
        chosen.weighted, chosen._names = self.weighted, self._names
        chosen._features, chosen._resamples = features, resamples
        return chosen

    def codes(self) -> dict[str | None, Mapping[Any, int]]:
        """The index of each slice by its value, by feature."""
        groups = self._features.groups
        return {feature: each.codes for feature, each in groups.items()}

    def add_totals(
        self,
        metric: str,
        model: str,
        totals: Mapping[str | None, np.ndarray],
        resampled: Mapping[str | None, np.ndarray],
    ) -> None:
        """Adds sums of a metric that are not of single rows.

        Args:
          metric: Name of the metric.
          model: Name of the model.
          totals: float64 [..., slices] by feature, in the order of `codes`.
          resampled: float64 [..., slices · resamples] by feature in `resampled`.
        """
        for features, added in (
            (self._features, totals),
            (self._resamples, resampled),
        ):
            for feature, arrays in added.items():
                features.groups[feature].models[model].sums[metric].arrays += arrays

    @property
    def resampled(self) -> list[str | None]:
        """The features with resampled slices, and None for all rows."""
        return [*self._resamples.groups]

    def labels_vary(self) -> bool:
        """Whether the rows that count have two labels or more."""
        overall = self._features.groups[None] if self.examples else None
        return bool(overall and overall.labels.varied(1)[0])

    def without_value(self) -> dict[str, int]:
        """Number of rows in none of a feature's slices, by feature."""
        return {
            feature: self.examples - groups.covered
            for feature, groups in self._features.groups.items()
            if feature is not None
        }

    def metrics(
        self, candidate: str, baseline: str | None = None
    ) -> list[SliceMetrics]:
        """The metrics over all rows, and by value of each sliced feature.

        Args:
          candidate: Name of the model to judge.
          baseline: Name of the model to compare with, or None.

        Returns:
          The slice of all rows first, then of each slicing the values in sorted order.
        """
        slices = []
        for feature, groups in self._features.groups.items():
            ours = self._values(groups, candidate)
            theirs = self._values(groups, baseline) if baseline else None
            trivial = self._trivial(feature, groups)
            unknown, weighted = groups.models[candidate].unknown, groups.weighted
            for value in sorted(groups.codes, key=slicing.order):
                i = groups.codes[value]
                slices.append(
                    SliceMetrics(
                        feature,
                        value,
                        int(groups.rows[i]),
                        _at(i, ours),
                        None if theirs is None else _at(i, theirs),
                        _errors(i, ours, theirs),
                        trivial[i],
                        finite=not unknown[i],
                        weighted=None if weighted is None else float(weighted[i]),
                    )
                )
        return slices

    def of_resamples(self, model: str) -> dict[Place, dict[str, np.ndarray]]:
        """The metrics of the resamples of each slice, float64 [resamples] each.

        Args:
          model: Name of the model.

        Returns:
          By feature and value, those of all rows by (None, None); NaN in a resample
          without rows. Slices that are not resampled are missing.
        """
        by_place = {}
        for feature, groups in self._resamples.groups.items():
            by_metric = {}
            for name, (values, _) in self._values(groups, model).items():
                if not METRICS[name].by_query:  # some of TFMA's are 0 without rows
                    values = np.where(groups.rows > 0, values, np.nan)
                by_metric[name] = values.reshape(-1, resampling.RESAMPLES)
            for value, resample in groups.codes:
                if resample == 0:
                    i = groups.codes[value, 0] // resampling.RESAMPLES
                    of_slice = {name: each[i] for name, each in by_metric.items()}
                    by_place[feature, value] = of_slice
        return by_place

    def _of_models(
        self,
        lookup: entries.Entries,
        slices: int,
        label: np.ndarray,
        scores: Mapping[str, Columns],
        weight: np.ndarray | None,
    ) -> dict[str, ModelSums]:
        """The sums of rows by model."""
        counted = None if weight is None else weight[lookup.row]
        by_model = {}
        for model, columns in scores.items():
            at = {name: x.reshape(-1)[lookup.index] for name, x in columns.items()}
            batch = Batch(
                *(self._task, label[lookup.index], at, lookup.code, slices, counted),
                lookup.classes,
            )
            by_model[model] = self._of_model(batch)
        return by_model

    def _of_model(self, batch: Batch) -> ModelSums:
        columns = batch.columns.values()
        unknown = np.sum([~np.isfinite(each) for each in columns], axis=0)
        sums_of = ModelSums(batch.total(unknown))
        for name in self._metrics:
            key = METRICS[name].shares or name
            if key not in sums_of.sums:
                sums = METRICS[name].sums(batch)
                is_array = isinstance(sums, np.ndarray)
                sums_of.sums[key] = Arrays(name, sums) if is_array else sums
        return sums_of

    @property
    def _pools(self) -> bool:
        """Whether the slice of a part has several values of each row."""
        return self._task == "reconstruction"

    def _trivial(self, feature: str | None, groups: Groups) -> list[Trivial]:
        """The trivial model on each slice."""
        slices, labels, parts = len(groups.codes), groups.labels, None
        if self._pools and feature == self._part:
            labels = self._features.groups[None].labels
            parts = entries.places(self._names, [*groups.codes])
        model = next(iter(groups.models.values()))  # of any, the trivial sums are equal
        by_query = [name for name in self._metrics if METRICS[name].by_query]
        one = dataclasses.replace(
            labels.one_answer(self._task, slices, parts),
            by_query={name: model.sums[name].arrays for name in by_query},
        )
        trivials = ((name, METRICS[name].trivial(one)) for name in self._metrics)
        columns = {name: values for name, values in trivials if values is not None}
        varied = labels.varied(slices, parts)
        return [
            Trivial(
                float(one.answer[i]),
                {name: float(values[i]) for name, values in columns.items()},
                is_perfect=not varied[i],
            )
            for i in range(slices)
        ]

    def _values(self, groups: Groups, model: str) -> _Values:
        """Values and errors by metric, float64 [slices] each."""
        sums, slices = groups.models[model], len(groups.codes)
        by_metric = {}
        for name in self._metrics:
            metric = METRICS[name]
            kept = sums.sums[metric.shares or name]
            result = metric.finish(kept.arrays if isinstance(kept, Arrays) else kept)
            if isinstance(result, np.ndarray):  # which is exact
                result = result, np.zeros(slices)
            values, errors = result
            # Comparisons and sorting treat NaN as a number.
            if metric.reads_answers:
                values = np.where(sums.unknown > 0, np.nan, values)
            by_metric[name] = (values, errors)
        return by_metric


def _at(i: int, values: _Values) -> dict[str, float]:
    """The values of one slice, by metric."""
    return {name: float(each[i]) for name, (each, _) in values.items()}


def _errors(i: int, *models: _Values | None) -> dict[str, float]:
    """The largest error over the models of each metric that is not exact."""
    largest: dict[str, float] = {}
    for values in filter(None, models):
        for name, (_, errors) in values.items():
            if errors[i]:
                largest[name] = max(largest.get(name, 0.0), float(errors[i]))
    return largest
