"""The type of `label`: a column, several, one for each output, or features."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field

from strategos.components.targets.label import ALL, RECONSTRUCT, Label
from strategos.pipeline.config.introspect import Allowed
from strategos.pipeline.config.problems import received, reject
from strategos.pipeline.config.types import not_empty


def _label(value: Any) -> Any:
    """A label as `Label.text`; a value of another kind stays for pydantic to reject."""
    if isinstance(value, dict):
        is_reconstruction = [*value] == [RECONSTRUCT]
        return _features(value[RECONSTRUCT]) if is_reconstruction else _heads(value)
    if not isinstance(value, list | tuple):
        return value
    return Label(_names(value, "names of columns")).text


def _names(value: Any, expected: str) -> tuple[str, ...]:
    names = tuple(value) if isinstance(value, list | tuple) else ()
    if not names or not all(isinstance(name, str) and name for name in names):
        raise reject(received=received(value), expected=expected)
    repeated = next((name for name in names if names.count(name) > 1), "")
    if repeated:
        raise reject(f"`{repeated}` is named twice", remedy="Name it once.")
    return names


def _features(value: Any) -> str:
    """A label of features to reconstruct as `Label.text`."""
    if value == ALL:
        return Label((), reconstructs=True).text
    expected = f"`{RECONSTRUCT}: {ALL}`, or a list of features that "
    expected += "`preprocessing_fn` returns"
    return Label(_names(value, expected), reconstructs=True).text


def _heads(value: dict[Any, Any]) -> str:
    """A label of several heads as `Label.text`."""
    expected = "two heads or more, `{OUTPUT: COLUMN, …}`: outputs of the model, and "
    expected += "the column that each learns; or, without a label, `{reconstruct: all}`"
    for output, column in value.items():
        if not (isinstance(output, str) and re.fullmatch(r"[A-Za-z_][\w-]*", output)):
            raise reject(received=received(output), expected="the name of an output")
        if isinstance(column, list):
            _names(column, "names of columns")
        elif not (isinstance(column, str) and column):
            raise reject(received=f"{output}: {received(column)}", expected=expected)
    if len(value) < 2:
        remedy = "For a model with one output, write its column alone."
        raise reject(received=received(value), expected=expected, remedy=remedy)
    return Label.of(value).text


LabelText = Annotated[
    str,
    BeforeValidator(_label),
    Allowed(
        "a column, a list of columns, a mapping of outputs to columns, or "
        "`{reconstruct: all}`"
    ),
    AfterValidator(not_empty),
    Field(json_schema_extra={"type": ["string", "array", "object"]}),
]
