"""The `evaluator` section: metrics, slices, and the bounds that bless a model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    BeforeValidator,
    Field,
    ValidationInfo,
    field_validator,
)
from pydantic_core import InitErrorDetails

from strategos.components.evaluation.by_query.metrics import MOST_RELEVANT
from strategos.components.evaluation.heads import naming
from strategos.components.evaluation.metrics import (
    METRICS,
    MOST_SLICES,
    TASKS,
    plain,
)
from strategos.components.evaluation.slices.slicing import (
    CLASS,
    MOST_RESAMPLED,
    Slicing,
    part_of,
)
from strategos.components.wording import did_you_mean, nearest
from strategos.pipeline.config.introspect import Allowed
from strategos.pipeline.config.metrics import entries as metric_entries
from strategos.pipeline.config.metrics import named
from strategos.pipeline.config.problems import (
    is_repairing,
    raise_all,
    received,
    reject,
    reject_at,
)
from strategos.pipeline.config.slices import entries
from strategos.pipeline.config.types import NotNegative, Section, Text

_Value = TypeVar("_Value")
_TASKS = ", ".join(TASKS)


def _task(value: Any) -> Any:
    """Rejects any value but a task, or a task of each head."""
    tasks = value.values() if isinstance(value, dict) else [value]
    several = isinstance(value, dict)
    known = [name for name in TASKS if not (several and name == "reconstruction")]
    for task in tasks:
        if task not in known:
            near = did_you_mean(task, known) if isinstance(task, str) else ""
            allowed = f"{', '.join(known[:-1])} or {known[-1]}"
            raise reject(received=received(task), expected=allowed, remedy=near)
    return value


Task = Literal["binary", "multi_class", "multi_label", "regression", "reconstruction"]
Tasks = Annotated[
    Task | dict[str, Task],
    BeforeValidator(_task),
    Allowed(f"{_TASKS}, or a task of each head"),
]
_Change = Annotated[float, Field(ge=0)]


class Limits(Section):
    """Limits for the value of a metric."""

    at_least: float | None = Field(None, description="The smallest value that passes.")
    at_most: float | None = Field(None, description="The largest value that passes.")
    may_drop: _Change | None = Field(
        None, description="Largest drop below the model in production that passes."
    )
    may_rise: _Change | None = Field(
        None, description="Largest rise above the model in production that passes."
    )

    def _problems(self) -> Iterator[InitErrorDetails]:
        low, high = self.at_least, self.at_most
        if low is not None and high is not None and low > high:
            message = f"{low:g} is more than at_most ({high:g}): nothing can pass"
            remedy = "Swap or correct the two limits."
            yield reject_at(("at_least",), message, remedy=remedy)


class Judged(Limits):
    """Limits for the value of a metric of a candidate."""

    better_than: Literal["trivial"] | None = Field(
        None,
        description="The candidate must be better than one answer for all of the rows: "
        "the mean of their labels, their most frequent class, the share of each class "
        "of `multi_label`, or the mean of each value of `reconstruction`.",
    )


class Bound(Judged):
    """Limits for a metric, overall and on slices."""

    slices: dict[str, Judged] = Field(
        default_factory=dict,
        description="Limits for each slice of an entry of `slices`, by the feature's "
        "name, or the names of a cross: `origin x carrier`.",
    )
    min_examples: NotNegative = Field(
        0, description="Number of rows below which a slice is reported but not judged."
    )
    undefined: Literal["skip", "fail"] = Field(
        "skip",
        description="What happens to a slice whose labels leave the metric undefined, "
        "such as the AUC of rows of one class: `skip` reports it without judging. Over "
        "all rows, an undefined metric always fails.",
    )


class Evaluator(Section):
    """How the model is evaluated."""

    task: Tasks = Field(
        "binary",
        description="Kind of prediction; `multi_label`: a row may have several "
        "classes, each 0 or 1, and the model gives a probability for each; "
        "`reconstruction`: of features, for `label: {reconstruct: …}`. For a label "
        "of several heads, the kind of each: `{late: binary, minutes: regression}`.",
    )
    metrics: metric_entries.Entries = Field(
        examples=[["auc", "log_loss"]],
        description="Metrics to compute, see the table of metrics; at a threshold as "
        "`recall@0.3`, of the likeliest classes as `accuracy@top3`, of the first "
        "places of a query as `ndcg@10`, of a head as `HEAD.METRIC`. Any other metric "
        "of TFMA or Keras by its class: `{class: RecallAtPrecision, config: "
        "{precision: 0.8}}`, with `head` for several "
        "heads; TFMA computes it row by row.",
    )
    query: Text | None = Field(
        None,
        examples=["session"],
        description="For `ndcg`, `mrr` and these with a number of places, `ndcg@10`: "
        "the column whose values, whole numbers or texts, are the queries. The rows of "
        "a query are ranked by the model's answers; the label is their relevance, from "
        f"0 to {MOST_RELEVANT}. The model does not need the column.",
        validate_default=True,
    )
    slices: entries.Entries = Field(
        (),
        examples=[["carrier"]],
        description="Features to slice by: metrics are also computed for each of their "
        "values, or for each of their bins with `{feature: distance, bins: [500, "
        "1000]}`. A list is a cross: a slice for each combination of the values of its "
        "features. A row counts once in each value it has; a row without a value "
        f"counts overall only. An entry may have at most {MOST_SLICES:,} slices. For "
        f"`multi_label`, each class is a slice of `{CLASS}`, named or not, and for "
        "`reconstruction` each feature one of `feature`.",
    )
    bounds: dict[str, Bound] = Field(
        default_factory=dict,
        description="Conditions for a blessing, by metric.",
    )
    allow_constant: bool = Field(
        False,
        description="Whether a model is blessed that predicts the same for all rows: "
        "100 rows or more, of two labels or more.",
    )
    confidence_level: float | None = Field(
        None,
        ge=0.5,
        le=0.999,
        description="Confidence level of intervals of the metrics over all rows, and "
        "of their changes from the model in production, such as 0.95; none by default.",
    )
    slice_intervals: bool = Field(
        False,
        description="Whether the metrics of each slice have intervals, too, except for "
        f"entries of more than {MOST_RESAMPLED:,} slices. Each entry costs more "
        "than the intervals over all rows.",
        validate_default=True,
    )
    from_logits: bool | None = Field(
        None,
        description="Whether the model predicts logits, of which the Evaluator makes "
        "probabilities by sigmoid or softmax. By default, the compiled loss says so; "
        "without one (a loop of your own, a stock `run_fn`), predictions are taken for "
        "probabilities, and numbers outside of 0 to 1 are rejected.",
    )

    @field_validator("metrics")
    @classmethod
    def _known(cls, metrics: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        if is_repairing(info.context):
            return metrics
        metric_entries.check_some(metrics)
        task = info.data.get("task")
        errors = [
            error
            for index, name in enumerate(metrics)
            for error in named.errors((index,), name, task)
        ]
        return _checked(metrics, errors)

    @field_validator("query")
    @classmethod
    def _is_ranked(cls, query: str | None, info: ValidationInfo) -> str | None:
        if "metrics" in info.data and not is_repairing(info.context):
            metric_entries.check_query(query, info.data["metrics"])
        return query

    @field_validator("slice_intervals")
    @classmethod
    def _have_a_level(cls, wanted: bool, info: ValidationInfo) -> bool:
        if wanted and info.data.get("confidence_level", 1) is None:
            raise reject(
                "has no effect without a level",
                remedy="Set `evaluator.confidence_level` to one such as 0.95.",
            )
        return wanted

    @field_validator("slices")
    @classmethod
    def _apart(cls, slices: tuple[Any, ...], info: ValidationInfo) -> tuple[Any, ...]:
        if is_repairing(info.context):
            return slices
        return _checked(slices, [*entries.conflicts(slices, info.data.get("task"))])

    @field_validator("bounds")
    @classmethod
    def _measured(
        cls, bounds: dict[str, Bound], info: ValidationInfo
    ) -> dict[str, Bound]:
        errors: list[InitErrorDetails] = []
        task = info.data.get("task")
        for name, bound in bounds.items():
            metric = naming.split(name)[1] if isinstance(task, dict) else name
            errors += _direction_errors(metric, bound, (name,))
            errors += _range_errors(metric, bound, (name,))
            errors += _trivial_errors(metric, bound, (name,))
            own = task.get(naming.split(name)[0]) if isinstance(task, dict) else task
            for feature, limits in bound.slices.items():
                loc = (name, "slices", feature)
                errors += _direction_errors(metric, limits, loc)
                errors += _range_errors(metric, limits, loc)
                errors += _trivial_errors(metric, limits, loc)
                if feature != part_of(own):
                    errors += _not_among(feature, info, "slices", loc)
            wrong = list(named.errors((name,), name, task))
            errors += wrong or _not_among(name, info, "metrics", (name,))
        return _checked(bounds, errors)

    @property
    def judged(self) -> str:
        """The task; "" for several heads."""
        return self.task if isinstance(self.task, str) else ""

    @property
    def compares(self) -> bool:
        """Whether a bound compares with the model in production."""
        limits = [
            each
            for bound in self.bounds.values()
            for each in (bound, *bound.slices.values())
        ]
        return any((each.may_drop, each.may_rise) != (None, None) for each in limits)


def _checked(value: _Value, errors: list[InitErrorDetails]) -> _Value:
    if errors:
        raise_all(errors)
    return value


def _not_among(
    name: str, info: ValidationInfo, key: str, loc: tuple[str, ...]
) -> Iterator[InitErrorDetails]:
    """Yields an error if `name` is not in the valid list `evaluator.<key>`."""
    known = info.data.get(key)
    if known is None:
        return
    if key == "slices":
        known = [Slicing.of(entry).name for entry in known]
    if name in known:
        return
    near = nearest(name, known)
    yield reject_at(
        loc,
        f"a bound on `{name}`, which is not in `evaluator.{key}`",
        expected=", ".join(known),
        remedy=f"Did you mean `{near}`, or is that one misspelled?"
        if near
        else f"Add it to `{key}`.",
    )


def _direction_errors(
    metric: str, limits: Limits, loc: tuple[str, ...]
) -> Iterator[InitErrorDetails]:
    """Yields an error for a limit on an improvement, which is always a mistake."""
    direction = METRICS[metric].direction if named.usable(metric) else None
    if direction is None:
        return
    higher = direction == "higher"
    wrong, right = ("may_rise", "may_drop") if higher else ("may_drop", "may_rise")
    if getattr(limits, wrong) is not None:
        yield reject_at(
            (*loc, wrong),
            f"{metric} is better when {direction}",
            remedy=f"Use `{right}`.",
        )


def _range_errors(
    metric: str, limits: Limits, loc: tuple[str, ...]
) -> Iterator[InitErrorDetails]:
    """Yields an error for a limit that no value of the metric can reach."""
    is_own = named.usable(metric) and plain(metric) in METRICS.own
    if not is_own or METRICS[metric].direction is None:
        return
    higher = METRICS[metric].direction == "higher"
    if higher and limits.at_least is not None and limits.at_least > 1:
        message = f"{limits.at_least:g}, but {metric} is at most 1: nothing can pass"
        yield reject_at((*loc, "at_least"), message, expected="0 to 1")
    if limits.at_most is not None and limits.at_most < 0:
        message = f"{limits.at_most:g}, but {metric} is at least 0: nothing can pass"
        yield reject_at((*loc, "at_most"), message, expected="at least 0")


def _trivial_errors(
    metric: str, limits: Judged, loc: tuple[str, ...]
) -> Iterator[InitErrorDetails]:
    """Yields an error for a metric that does not show whether a model has learned."""
    if limits.better_than is None or not named.usable(metric):
        return
    if not METRICS[metric].is_compared:
        known = [name for name in METRICS.own if METRICS[name].is_compared]
        yield reject_at(
            (*loc, "better_than"),
            f"{metric} does not tell a model that has learned from a trivial one",
            expected=f"a bound on one of {', '.join(known)}",
        )
