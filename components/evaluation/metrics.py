"""The metrics that an evaluator section may name; standard library only.

Config validation reads their descriptions without TensorFlow, `tfma.eval_config` turns
them into a TFMA EvalConfig; ours are in `formulas`.

Usage, in a package with the entry point `brier = "package.module:Brier"` in the group
`strategos.metrics`:

    class Brier(Metric):
        description, tasks, direction = "mean squared error", ("binary",), "lower"

        def sums(self, batch: Batch) -> np.ndarray:
            error = (batch.prediction - batch.label) ** 2
            return np.stack([batch.total(error), batch.total(np.ones_like(error))])

        def finish(self, sums: np.ndarray) -> np.ndarray:
            return sums[0] / sums[1]
"""

from __future__ import annotations

import abc
import copy
import functools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from strategos.components.evaluation.library import classes
from strategos.components.plugins import Registry
from strategos.components.slow_imports import np

if TYPE_CHECKING:
    from strategos.components.evaluation.trivial import OneAnswer

Columns = Mapping[str, "np.ndarray"]

RANK = "rank"
"""The column for metrics of the likeliest classes; see `Batch.columns`."""


def probability(place: int | str) -> str:
    """The name of the column with the probabilities of a class; see `Batch.columns`."""
    return f"probability {place}"


TASKS = ("binary", "multi_class", "multi_label", "regression", "reconstruction")
TRIVIAL = {
    "multi_class": "the most frequent class of `{}`",
    "multi_label": "the share of each class of `{}`",
    "reconstruction": "the mean of each value of the features",
}
"""The prediction of the trivial model, by task, with the label; of others `MEAN`."""
MEAN = "the mean of `{}`"
# Distinct scores, over all slices of a feature, up to which areas under curves are
# exact. Beyond that, areas of the largest slices come from bins, with a bound of the
# error; slices with at most `SLICE_SCORES` stay exact up to `MOST_SCORES` in all.
EXACT_SCORES = 1 << 18
SLICE_SCORES = 1 << 14
MOST_SCORES = 1 << 22
# Of one feature. Each takes memory, a line of the summary, and checks of bounds.
MOST_SLICES = 50_000


@dataclass(frozen=True)
class Batch:
    """Rows that one model has scored, each with its slice of one feature.

    For multi_label, a "row" is one class of a row, and for reconstruction one value of
    its features: `classes` of them stand together.

    Attributes:
      task: One of `TASKS`.
      label: float64 [rows].
      columns: float64 [rows] each: `prediction`; instead,
        for multi_class `right` (1 if the likeliest class is the label), `loss` (cross
        entropy) and `predicted` (the likeliest class, NaN if an answer is). If a metric
        `…@topK` is asked for, also `rank`: how many classes of the row are likelier
        than the label (multi_class) or than this class (multi_label). If a metric
        of `library` is asked for, also `probability N` of each class (multi_class).
      code: int [rows], the slice of each row.
      slices: Number of slices.
      weight: float64 [rows], all above 0: how much each row counts; None for 1.
      classes: Number of classes of a row; 1 in the slices of one class.
    """

    task: str
    label: np.ndarray
    columns: Columns
    code: np.ndarray
    slices: int
    weight: np.ndarray | None = None
    classes: int = 1

    @property
    def prediction(self) -> np.ndarray:
        """The model's answers, float64 [rows]; not for multi_class."""
        return self.columns["prediction"]

    def total(self, values: np.ndarray) -> np.ndarray:
        """The sum of values by slice, each times its row's weight; float64 [slices].

        Args:
          values: float64 [rows].
        """
        if self.weight is not None:
            values = values * self.weight
        # Of no rows, bincount makes integers.
        totals = np.bincount(self.code, values, self.slices)
        return totals.astype(np.float64, copy=False)


class Metric(abc.ABC):
    """One metric: sums over rows, and the number computed from these sums.

    Attributes:
      description: One line for messages and documentation.
      tasks: The tasks that the metric is defined for, out of `TASKS`.
      direction: `higher` or `lower`: which values are better; None if neither.
      target: The best value of a metric without a better direction (calibration: 1).
      shows_learning: Whether only a model that has learned something is better than the
        trivial model. False e.g. for recall: always predicting 1 has a recall of 1.
      reads_answers: Whether the metric depends on the model's answers, and so is
        undefined if an answer is not finite.
      undefined_by_labels: Labels on which the metric is undefined for any model.
      undefined_by_answers: Answers on which the metric is undefined.
      shares: A name for `sums` that several metrics have; computed once for all.
      tfma: Class in TFMA or Keras that computes the same number, or the class by task;
        "" for none.
      tfma_config: Arguments of that class.
      threshold: Number above which a probability is a positive answer; None for a
        metric without one.
      tfma_threshold: The argument of that class for the threshold.
      by_query: Whether the metric ranks the rows of a query; only ours do.
    """

    description: ClassVar[str]
    tasks: ClassVar[Sequence[str]]
    direction: ClassVar[Literal["higher", "lower"] | None] = None
    target: ClassVar[float | None] = None
    shows_learning: ClassVar[bool] = True
    reads_answers: ClassVar[bool] = True
    undefined_by_labels: ClassVar[str] = ""
    undefined_by_answers: ClassVar[str] = ""
    shares: ClassVar[str] = ""
    tfma: ClassVar[str | Mapping[str, str]] = ""
    tfma_config: ClassVar[Mapping[str, Any]] = {}
    threshold: float | None = None
    tfma_threshold: ClassVar[str] = ""
    by_query: ClassVar[bool] = False

    @abc.abstractmethod
    def sums(self, batch: Batch) -> Any:
        """Sums over rows, by slice.

        Args:
          batch: Some of the rows.

        Returns:
          float64 [..., slices]; or, for numbers that no sum by slice can hold, an
          object with the methods of `curves.Curves`: `empty`, `merge` and `compact`.
        """

    def merge(self, mine: np.ndarray, theirs: np.ndarray) -> np.ndarray:
        """Both sums together; by default adds them. Any order gives the same metric.

        Args:
          mine: float64 [..., slices].
          theirs: float64 [..., slices], of the same slices.
        """
        return mine + theirs

    @abc.abstractmethod
    def finish(self, sums: Any) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
        """The metric by slice.

        Args:
          sums: From `sums` or `merge`, over all rows.

        Returns:
          float64 [slices], NaN where undefined. A metric that is not exact returns the
          largest error of each value, too.
        """

    def trivial(self, one: OneAnswer) -> np.ndarray | None:
        """The metric of the trivial model, float64 [slices]; by default unknown.

        Args:
          one: The trivial model.
        """
        return None

    def at(self, threshold: str) -> Metric:
        """The metric at another threshold.

        Args:
          threshold: A number between 0 and 1, as in the metric's name.
        """
        other = copy.copy(self)
        other.threshold = float(threshold)
        for text in ("description", "undefined_by_answers"):
            setattr(other, text, getattr(self, text).replace("0.5", threshold))
        if self.shares:  # sums of another threshold are other sums
            other.shares = f"{self.shares}@{threshold}"  # type: ignore[misc]
        other.tasks = [each for each in self.tasks if each != "multi_class"]  # type: ignore[misc]
        argument = {self.tfma_threshold: other.threshold} if self.tfma_threshold else {}
        other.tfma_config = {**self.tfma_config, **argument}  # type: ignore[misc]
        return other

    @property
    def is_compared(self) -> bool:
        """Whether the metric can show that a model beats the trivial model."""
        known = type(self).trivial is not Metric.trivial
        return known and self.shows_learning and self.direction is not None

    def is_better(self, value: float, other: float) -> bool:
        """Whether a value is better than another value, by more than roundoff.

        Args:
          value: A value of the metric; NaN is not better.
          other: Another value.
        """
        differs = not math.isclose(value, other, rel_tol=1e-9, abs_tol=1e-12)
        return differs and self.badness(value) < self.badness(other)

    def badness(self, value: float) -> float:
        """A number that is larger for worse values; 0 if no value is worse.

        Args:
          value: A value of the metric.
        """
        if self.target is not None:
            return abs(value - self.target)
        return {"higher": -value, "lower": value, None: 0.0}[self.direction]


class _Metrics(Registry[Metric]):
    """Metrics by name, with a parameter (`recall@0.3`), or by class (`library`)."""

    def __getitem__(self, name: str) -> Metric:
        """Imports a metric; see `Registry`."""
        if classes.is_known(name):
            kind: Any = _MADE["by_class"]
            return kind(name)
        base, at, parameter = name.partition("@")
        if not at:
            return super().__getitem__(name)
        if base not in self.own:
            raise KeyError(name)
        metric = _parametrized(base, parameter)
        if metric is None:
            raise KeyError(name)
        return metric

    def __contains__(self, name: object) -> bool:
        if classes.is_known(str(name)):
            return True
        base, at, parameter = str(name).partition("@")
        if not at:
            return super().__contains__(name)
        return base in self.own and _parametrized(base, parameter) is not None

    def version(self, name: str) -> str:
        """See `Registry`; the stack's versions stand for classes of TFMA and Keras."""
        return "" if classes.is_known(name) else super().version(name)


_MADE: Registry[Metric] = Registry(
    "strategos.metrics.made",
    Metric,
    {
        name: f"strategos.components.evaluation.{kind}"
        for name, kind in {
            "accuracy": "classes.top:TopAccuracy",
            "precision": "classes.top:TopPrecision",
            "recall": "classes.top:TopRecall",
            "by_class": "library.by_class:ByClass",
        }.items()
    },
    classes=True,
)
"""Metrics of the likeliest classes, by the name before `@top`, and metrics by class."""


@functools.cache
def _parametrized(name: str, parameter: str) -> Metric | None:
    """The metric with the parameter behind `@`; None if there is none."""
    if top := re.fullmatch("top([1-9][0-9]{0,5})", parameter):
        kind: Any = _MADE[name] if name in _MADE.own else None
        return kind(int(top[1])) if kind else None
    metric: Any = METRICS[name]
    if metric.by_query and re.fullmatch("[1-9][0-9]{0,5}", parameter):
        return metric.cut(int(parameter))
    is_share = re.fullmatch(r"0\.[0-9]{1,9}", parameter) and float(parameter) > 0
    return metric.at(parameter) if is_share and metric.threshold else None


def _class_of(name: str) -> str:
    """The class of a metric of ours: `PrAuc` of `pr_auc`."""
    return name.title().replace("_", "")


METRICS: Registry[Metric] = _Metrics(
    "strategos.metrics",
    Metric,
    {
        name: f"strategos.components.evaluation.{module}:{_class_of(name)}"
        for module, names in {
            "formulas": (
                *("auc", "pr_auc", "accuracy", "precision", "recall", "log_loss"),
                *("calibration", "mean_label", "mean_prediction", "mae", "mse", "rmse"),
            ),
            "classes.formulas": (
                *("f1", "macro_auc", "macro_precision", "macro_recall", "macro_f1"),
                *("weighted_precision", "weighted_recall", "weighted_f1"),
                *("exact_match", "hamming_loss"),
            ),
            "by_query.metrics": ("ndcg", "mrr"),
        }.items()
        for name in names
    },
)
"""Metrics by name, as in `evaluator.metrics`; iterating yields those without `@`."""


def names(task: str) -> list[str]:
    """Our metrics that are defined for a task, in the table's order.

    Args:
      task: One of `TASKS`.
    """
    return [name for name in METRICS.own if task in METRICS[name].tasks]


def badness(name: str, value: float) -> float:
    """`Metric.badness`; 0 for a recorded metric that is not installed here.

    Args:
      name: Name of a metric.
      value: A value of the metric.
    """
    known = bare(name)
    return METRICS[known].badness(value) if known in METRICS else 0.0


def bare(name: str) -> str:
    """The name in `METRICS` of a metric that may be `HEAD.METRIC`.

    Args:
      name: As in `evaluator.metrics`.
    """
    return name if name in METRICS else name.partition(".")[2] or name


def plain(name: str) -> str:
    """The name of a metric without its head and its parameter: `recall`.

    Args:
      name: As in `evaluator.metrics`, such as `late.recall@0.3`.
    """
    known = bare(name)
    return known if classes.is_known(known) else known.partition("@")[0]


def top(name: str) -> int:
    """The number of classes of a metric `…@topK`; 0 for other metrics.

    Args:
      name: As in `evaluator.metrics`.
    """
    digits = name.rpartition("@top")[2] if "@top" in name else ""
    return int(digits) if digits.isdigit() else 0


def measured(names: Iterable[str]) -> list[str]:
    """The metrics among names, in the table's order.

    Args:
      names: Names of properties of an evaluation.
    """
    places = {name: place for place, name in enumerate(METRICS)}
    metrics = [name for name in names if bare(name) in METRICS]
    return sorted(metrics, key=lambda name: places.get(plain(name), len(places)))


def metric_names(evaluator: Mapping[str, Any]) -> list[str]:
    """The metrics to compute: the configured ones, then others named by bounds.

    Args:
      evaluator: The section: task, metrics, slices, bounds.
    """
    return list(
        dict.fromkeys([*evaluator["metrics"], *(evaluator.get("bounds") or {})])
    )
