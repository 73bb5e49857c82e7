"""Entries of `evaluator.metrics`: names, and classes of TFMA and Keras with arguments.

An entry `{class: RecallAtPrecision, config: {precision: 0.8}}` becomes the name
`RecallAtPrecision(precision=0.8)`, which holds all that makes the metric.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any

from pydantic import BeforeValidator, Field
from pydantic_core import InitErrorDetails

from strategos.components.evaluation.library import classes, names
from strategos.components.evaluation.metrics import METRICS, bare
from strategos.components.wording import did_you_mean
from strategos.pipeline.config.introspect import Allowed
from strategos.pipeline.config.problems import received, reject, reject_at
from strategos.pipeline.config.types import finite

_KEYS = ("class", "config", "head")
_ENTRY = "the name of a metric, or {class: NAME, config: {ARGUMENT: VALUE, …}}"

_BY_QUERY = {"NDCG": "ndcg@10", "MinLabelPosition": "mrr"}
"""Metrics of ours in place of TFMA's classes that need a query."""

_LIST = "a list of one metric or more"


def _entry(value: Any) -> Any:
    """The name of a metric that is given by its class."""
    if not isinstance(value, dict):
        return value
    if unknown := next((key for key in value if key not in _KEYS), None):
        remedy = did_you_mean(str(unknown), _KEYS)
        keys = ", ".join(_KEYS)
        raise reject(f"unknown key `{unknown}`", expected=keys, remedy=remedy)
    name, config, head = (value.get(key) for key in _KEYS)
    if not (isinstance(name, str) and name):
        raise reject(received=received(value), expected=_ENTRY)
    if not isinstance(config, dict | None) or not all(
        isinstance(key, str) for key in config or {}
    ):
        raise reject(
            f"the config of `{name}` is no mapping of arguments to values",
            received=received(config),
        )
    if config and "name" in config:
        rest = {key: value for key, value in config.items() if key != "name"}
        raise reject(
            f"the config of `{name}` has a `name`, and bounds and reports name it by "
            "its class",
            remedy=f"Remove it: the metric is called `{names.spelled(name, rest)}`.",
        )
    finite(config or {})
    spelled = names.spelled(name, config or {})
    return f"{head}.{spelled}" if head else spelled


Entries = Annotated[
    tuple[
        Annotated[
            str,
            Field(min_length=1),
            BeforeValidator(_entry),
            Allowed("the name of a metric, or `{class: NAME, config: {…}}`"),
            Field(json_schema_extra={"type": ["string", "object"]}),
        ],
        ...,
    ],
    # Not `min_length`, which also counts entries that are rejected.
    Field(strict=False, json_schema_extra={"minItems": 1}),
    Allowed(_LIST),
]


def check_some(metrics: tuple[str, ...]) -> None:
    """Rejects an empty list of metrics."""
    if not metrics:
        raise reject(received=received([]), expected=_LIST)


def check_query(query: str | None, metrics: Sequence[str]) -> None:
    """Rejects metrics by query without `evaluator.query`, and the key without these.

    Args:
      query: `evaluator.query`.
      metrics: Valid names.
    """
    by_query = [name for name in metrics if METRICS[bare(name)].by_query]
    if by_query and not query:
        raise reject(
            f"`{by_query[0]}` ranks the rows of a query, and no column says which rows "
            "these are",
            remedy="Name it: `query: COLUMN`.",
        )
    if query and not by_query:
        raise reject(
            "no metric ranks the rows of a query",
            received=query,
            remedy="Add `ndcg@10` or `mrr` to `metrics`, or remove `query`.",
        )


def class_problems(
    loc: tuple[str | int, ...], name: str, ours: str | None
) -> Iterator[InitErrorDetails]:
    """Yields an error for a metric by a class that cannot be the right one.

    Args:
      loc: Where the name is.
      name: The name, `CLASS` or `CLASS(ARGUMENT=VALUE, …)`.
      ours: The metric of ours that is the class without arguments; or None.
    """
    class_name, config = names.parsed(name) or names.Named(name, {})
    if class_name not in classes.known():
        near = did_you_mean(class_name, classes.known())
        yield reject_at(
            loc,
            f"`{class_name}` is no metric of TFMA or Keras",
            expected="a class of `tfma.metrics` or `tf.keras.metrics`, but no plot",
            remedy=near,
        )
        return
    if ours and not config:
        yield reject_at(
            loc,
            f"`{class_name}` is a metric of Strategos, which is faster than TFMA's",
            remedy=f"Write `{ours}`.",
        )
    if instead := _BY_QUERY.get(class_name):
        yield reject_at(
            loc,
            f"`{class_name}` reads all rows of a query together, which TFMA's classes "
            "cannot do here",
            remedy=f"Write `{instead}`, and the column of the queries as `query`.",
        )
    known = classes.arguments(class_name)
    for argument in config:
        if known is not None and argument not in known:
            yield reject_at(
                loc,
                f"`{class_name}` has no argument `{argument}`",
                expected=", ".join(each for each in known if each != "name"),
                remedy=did_you_mean(argument, known),
            )
