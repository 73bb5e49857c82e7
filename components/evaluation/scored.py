"""Mergeable results of scored rows; numpy only."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from strategos.components.errors import UserError
from strategos.components.evaluation.inputs.numbering import Numbering
from strategos.components.evaluation.plots.counts import Counts
from strategos.components.evaluation.plots.errors import Errors
from strategos.components.evaluation.sums import Sums

_NEARLY_ALL = 0.9
_FEW = 10  # numbers besides 0; of fewer, all may be changed by clipping them


@dataclass(frozen=True)
class Learned:
    """Compares raw labels with the labels that the candidate has learned.

    Attributes:
      rows: Rows that were compared.
      changed: Rows where the two labels differ.
      numbers: Rows with a raw label other than 0.
      changed_numbers: Rows with a raw label other than 0 where the two differ.
      example: The first two labels that differ, raw and learned; () if none do.
    """

    rows: int = 0
    changed: int = 0
    numbers: int = 0
    changed_numbers: int = 0
    example: tuple[float, ...] = ()

    def merge(self, later: Learned) -> Learned:
        """The comparison of these and of other rows."""
        return Learned(
            self.rows + later.rows,
            self.changed + later.changed,
            self.numbers + later.numbers,
            self.changed_numbers + later.changed_numbers,
            self.example or later.example,
        )

    def describe(self, label: str) -> str:
        """How preprocessing changes the label, as a clause; only if labels differ.

        Args:
          label: Name of the label.
        """
        raw, learned = self.example
        return (
            f"`preprocessing_fn` changes `{label}` in {self.changed:,} of "
            f"{self.rows:,} examples, the first time from {raw:g} to {learned:g}: the "
            "model predicts changed values, but is judged by the raw column"
        )

    def error(self, label: str) -> UserError:
        """The error for a label that differs from the label the model learned."""
        return UserError(
            self.describe(label),
            key="label",
            remedy="Make the column that the model learns before the data are read, "
            "for example by `data.prepare`, and return it unchanged. A number can be "
            "scaled within the model instead, by its last layer.",
        )

    @property
    def nearly_all(self) -> bool:
        """Whether nearly all labels differ, or nearly all labels other than 0."""
        numbers = max(self.numbers, _FEW)
        return (
            self.changed >= _NEARLY_ALL * max(self.rows, 1)
            or self.changed_numbers >= _NEARLY_ALL * numbers
        )


@dataclass(frozen=True)
class Range:
    """The range of each output of a model over all rows.

    Attributes:
      low: float64 [k]; NaN if a prediction is.
      high: float64 [k].
    """

    low: np.ndarray
    high: np.ndarray

    def merge(self, later: Range) -> Range:
        """The range over these and other rows."""
        low, high = np.minimum(self.low, later.low), np.maximum(self.high, later.high)
        return Range(low, high)

    @property
    def is_finite(self) -> bool:
        """Whether all answers are finite."""
        return bool(np.isfinite([self.low, self.high]).all())

    @property
    def is_constant(self) -> bool:
        """Whether all answers are the same, to the digits of single precision."""
        size = np.maximum(np.abs(self.low), np.abs(self.high))
        return bool((self.high - self.low <= np.finfo(np.float32).eps * size).all())


@dataclass(frozen=True)
class Queries:
    """The queries of the rows, for metrics by query.

    Attributes:
      files: Files with their rows, from `by_query.rows`, until these are added up.
      number: Number of queries with a row that counts, once these are added up.
      ranked: Number of queries with two such rows or more.
      relevant: Number of queries with a label above 0.
      without_query: Number of rows without a query.
    """

    files: tuple[str, ...] = ()
    number: int = 0
    ranked: int = 0
    relevant: int = 0
    without_query: int = 0

    def merge(self, later: Queries) -> Queries:
        """The queries of these and of other rows; each query in one of both."""
        return Queries(
            (*self.files, *later.files),
            self.number + later.number,
            self.ranked + later.ranked,
            self.relevant + later.relevant,
            self.without_query + later.without_query,
        )


@dataclass
class Scored:
    """Results of scored rows.

    Attributes:
      sums: Sums by slice and model.
      learned: Raw labels compared with labels after the candidate's preprocessing.
      ranges: The range of a model's answers, by name of the model.
      plots: Counts of a model's answers, by name of the model.
      unusable: Why an optional model cannot be scored, by name of the model.
      heads: Results by head of a model with several; then `sums` only count rows.
      queries: The queries, if there are metrics by query.
      positive: The names of class 1 of the candidate and of the model in production, if
        the two classes have changed places.
      numbering: The numbers of classes without known names, by the model in production
        and by the candidate; empty once all rows are merged.
    """

    sums: Sums
    learned: Learned = Learned()
    ranges: dict[str, Range] = field(default_factory=dict)
    unusable: dict[str, str] = field(default_factory=dict)
    plots: dict[str, Counts | Errors] = field(default_factory=dict)
    heads: dict[str, Scored] = field(default_factory=dict)
    queries: Queries = Queries()
    positive: tuple[str, ...] = ()
    numbering: Numbering = field(default_factory=Numbering)

    @property
    def by_head(self) -> dict[str, Scored]:
        """The results of each head; of a model with one head, under ""."""
        return self.heads or {"": self}

    def widen(self, name: str, answer: np.ndarray) -> None:
        """Adds answers to the range of a model.

        Args:
          name: Name of the model.
          answer: float64 [rows, k].
        """
        seen = Range(answer.min(axis=0), answer.max(axis=0))
        known = self.ranges.get(name)
        self.ranges[name] = known.merge(seen) if known else seen

    def count(self, name: str, counts: Counts | Errors) -> None:
        """Adds counts of answers to those of a model.

        Args:
          name: Name of the model.
          counts: Counts of other rows.
        """
        known = self.plots.get(name)
        self.plots[name] = known.merge(counts) if known else counts  # type: ignore[arg-type]

    def merge(self, later: Scored) -> Scored:
        """Adds other rows, and returns itself.

        Args:
          later: Results of other rows; must not be used again.
        """
        ranges = {**self.ranges, **later.ranges}
        for name in self.ranges.keys() & later.ranges.keys():
            ranges[name] = self.ranges[name].merge(later.ranges[name])
        learned = self.learned.merge(later.learned)
        unusable = {**later.unusable, **self.unusable}
        for name, counts in later.plots.items():
            self.count(name, counts)
        heads = {
            head: self.heads[head].merge(theirs) if head in self.heads else theirs
            for head, theirs in later.heads.items()
        }
        sums = self.sums.merge(later.sums)
        queries = self.queries.merge(later.queries)
        parts = self.plots, heads, queries, self.positive or later.positive
        numbering = self.numbering.merge(later.numbering)
        return Scored(sums, learned, ranges, unusable, *parts, numbering)
