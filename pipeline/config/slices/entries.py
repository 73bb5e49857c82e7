"""Entries of `slices`: features, features in bins, and crosses."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Annotated, Any

from pydantic import BeforeValidator, Field
from pydantic_core import InitErrorDetails

from strategos.components.evaluation.slices.slicing import Slicing, part_of
from strategos.components.wording import did_you_mean
from strategos.pipeline.config.introspect import Allowed
from strategos.pipeline.config.problems import received, reject, reject_at

_PART = "a feature, or {feature: NAME, bins: [EDGE, …]}"
_ENTRY = f"{_PART}, or a list of these for a cross"
_KEYS = ("feature", "bins")


def _entry(value: Any) -> Any:
    """Rejects any value but an entry; a cross becomes a tuple."""
    if not isinstance(value, list | tuple):
        return _part(value, _ENTRY)
    if len(value) < 2:
        raise reject(
            received=received([*value]),
            expected="two features or more for a cross",
            remedy="Write a single feature without brackets.",
        )
    parts = tuple(_part(each, _PART) for each in value)
    names = Slicing.of(parts).features
    if repeated := next((x for x in names if names.count(x) > 1), ""):
        raise reject(f"the cross names `{repeated}` twice", remedy="Name it once.")
    return parts


def _part(value: Any, expected: str) -> Any:
    if isinstance(value, str) and value.strip():
        return value
    if not isinstance(value, dict):
        raise reject(received=received(value), expected=expected)
    if unknown := next((key for key in value if key not in _KEYS), None):
        remedy = did_you_mean(str(unknown), _KEYS)
        keys = " and ".join(_KEYS)
        raise reject(f"unknown key `{unknown}`", expected=keys, remedy=remedy)
    feature = value.get("feature")
    if not (isinstance(feature, str) and feature.strip()):
        raise reject(received=received(value), expected=expected)
    return {"feature": feature, "bins": _edges(value.get("bins"), feature)}


def _edges(value: Any, feature: str) -> tuple[float, ...]:
    numbers = value if isinstance(value, list | tuple) else ()
    is_number = [type(x) in (int, float) and math.isfinite(x) for x in numbers]
    if not numbers or not all(is_number):
        raise reject(
            f"the bins of `{feature}` are no numbers",
            received=received(value),
            expected="a list of the numbers where its bins meet, such as [500, 1000]",
        )
    for low, high in itertools.pairwise(numbers):
        if not low < high:
            raise reject(
                f"the bins of `{feature}` do not ascend: {high!r} follows {low!r}",
                remedy="Write each number once, the smallest first.",
            )
    return tuple(numbers)


Entries = Annotated[
    tuple[
        Annotated[
            Any,
            BeforeValidator(_entry),
            Allowed("features, `{feature: NAME, bins: [EDGE, …]}`, or lists of these"),
            Field(json_schema_extra={"type": ["string", "object", "array"]}),
        ],
        ...,
    ],
    Field(strict=False),
]


def conflicts(entries: Sequence[Any], task: Any) -> Iterator[InitErrorDetails]:
    """Yields an error for each entry that another one rules out.

    Args:
      entries: Valid ones.
      task: `evaluator.task`; None if it is not valid.
    """
    known: dict[frozenset[str], Slicing] = {}
    called: dict[str, Slicing] = {}
    for index, slicing in enumerate(map(Slicing.of, entries)):
        other = known.setdefault(frozenset(slicing.features), slicing)
        namesake = called.setdefault(slicing.name, slicing)
        if namesake.features != slicing.features:
            yield reject_at(
                (index,),
                f"`{slicing.name}` is the name of another entry, too",
                remedy="Rename a column, or remove one of the two.",
            )
        if other != slicing:
            yield reject_at(
                (index,),
                f"`{slicing.name}` is sliced by twice",
                remedy=f"Keep one of the entries of `{other.name}`; a feature can be "
                "in other crosses, too.",
            )
        part = part_of(task)
        if part and part in slicing.features and slicing != Slicing.of(part):
            what = "features" if task == "reconstruction" else "classes of the label"
            yield reject_at(
                (index,),
                f"`{part}` stands for the {what}, whose slices are neither crossed nor "
                "in bins",
                remedy=f"Remove `{part}` from the entry.",
            )
