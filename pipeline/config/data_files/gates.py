"""The section `gates`: bounds on new spans."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import Field, ValidationInfo, field_validator
from pydantic_core import InitErrorDetails

from strategos.components.files import patterns
from strategos.components.span_validator.gate import GATES
from strategos.components.wording import counted
from strategos.pipeline.config.plugins import chosen
from strategos.pipeline.config.problems import reject, reject_at
from strategos.pipeline.config.types import (
    PathText,
    Section,
    Texts,
)

_Share = Annotated[float, Field(ge=0, le=1)]
_Ratio = Annotated[float, Field(ge=0)]


class Rows(Section):
    """Bounds on the number of rows of a new span."""

    at_least: _Ratio = Field(
        0.6, description="Smallest number of rows, relative to what is usual."
    )
    at_most: _Ratio = Field(
        1.6, description="Largest number of rows, relative to what is usual."
    )

    @field_validator("at_most")
    @classmethod
    def _possible(cls, high: float, info: ValidationInfo) -> float:
        low = info.data.get("at_least", 0.0)
        if high < low:
            raise reject(f"{high:g} is less than at_least ({low:g}): nothing can pass")
        return high


class Distance(Section):
    """Bounds on the distance between two data sets, 0 to 1, as far as it is no chance.

    A distance that samples of one distribution have, too, at these numbers of rows, is
    within the bound; see `span_validator.by_chance`.
    """

    at_most: _Share = Field(
        description="Largest distance of a feature: L-infinity for text, where all "
        "values that are new count as one; Jensen-Shannon divergence for numbers. What "
        "sampling explains at these numbers of rows is allowed, too."
    )
    features: dict[str, _Share] = Field(
        default_factory=dict,
        description="Bounds of single features; 1 lets any distance pass.",
    )


def without_spans(pattern: str) -> str:
    """Rejects a pattern with placeholders of spans; returns the others."""
    if patterns.has_spans(pattern):
        raise reject(
            "the pattern has spans",
            received=pattern,
            remedy="Use a glob without placeholders.",
        )
    return pattern


class Skew(Distance):
    """Bounds on the distance between a new span and serving data."""

    serving: PathText = Field(
        description="Glob of files with the rows that the model in production was "
        "given, in any format of `data.examples`; the label may be missing."
    )

    @field_validator("serving")
    @classmethod
    def _is_one(cls, serving: str) -> str:
        return without_spans(serving)


class Between(Section):
    """A smallest and a largest value."""

    at_least: float | None = Field(None, description="Smallest value that passes.")
    at_most: float | None = Field(None, description="Largest value that passes.")

    def _problems(self) -> Iterator[InitErrorDetails]:
        low, high = self.at_least, self.at_most
        if low is None and high is None:
            yield reject_at((), "the section sets neither `at_least` nor `at_most`")
        elif low is not None and high is not None and low > high:
            message = f"{low:g} is more than at_most ({high:g}): nothing can pass"
            remedy = "Swap or correct the two bounds."
            yield reject_at(("at_least",), message, remedy=remedy)


class ShareBetween(Between):
    """A smallest and a largest share, 0 to 1."""

    at_least: _Share | None = Field(None, description="Smallest share that passes.")
    at_most: _Share | None = Field(None, description="Largest share that passes.")


class FeatureBounds(Section):
    """Bounds on one feature of a new span."""

    mean: Between | None = Field(None, description="Mean of the numbers.")
    values: Between | None = Field(
        None, description="Range that holds each of the numbers."
    )
    missing: _Share | None = Field(
        None, description="Largest share of rows without a value."
    )
    shares: dict[str, ShareBetween] = Field(
        default_factory=dict,
        description="Share of a value among the values of a text, 0 to 1, by value: "
        "`{AA: {at_least: 0.05}}`.",
    )


class Key(Section):
    """Columns that tell the rows of a span apart."""

    columns: Texts = Field(
        description="Columns whose values together are the key. A row that lacks one "
        "of the values is not checked.",
    )
    file: PathText | None = Field(
        None,
        description="Glob of files, in any format of `data.examples`, which must have "
        "each key. By default, no two rows of a new span may have the same key.",
    )
    file_columns: Texts = Field(
        (),
        description="The columns in `file`, if they have other names there.",
    )

    @field_validator("columns")
    @classmethod
    def _not_empty(cls, columns: tuple[str, ...]) -> tuple[str, ...]:
        if not columns:
            raise reject("names no column")
        return columns

    @field_validator("file")
    @classmethod
    def _is_one(cls, file: str | None) -> str | None:
        return file and without_spans(file)

    @field_validator("file_columns")
    @classmethod
    def _as_many(cls, names: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        if not names:
            return names
        if not info.data.get("file"):
            raise reject("names columns of `file`, which is not set")
        columns = info.data.get("columns", names)
        if len(names) != len(columns):
            raise reject(
                f"names {len(names)}, and the key has {counted(len(columns), 'column')}"
            )
        return names


class Gates(Section):
    """Bounds that stop a run before the rows of a new span are read."""

    rows: Rows = Field(
        default_factory=Rows,
        description="Number of rows, relative to the median of the usual spans.",
    )
    missing: _Share = Field(
        0.2,
        description="Largest rise of the share of rows without a value of a feature, "
        "above the median of the usual spans.",
    )
    drift: Distance | None = Field(
        None,
        description="Distance from the span before. By default, none is computed.",
    )
    skew: Skew | None = Field(
        None,
        description="Distance from serving data. By default, none is computed.",
    )
    features: dict[str, FeatureBounds] = Field(
        default_factory=dict,
        description="Bounds on single features of each new span, by column.",
    )
    keys: dict[str, Key] = Field(
        default_factory=dict,
        description="Keys of the rows of each new span, by a name that you choose.",
    )
    plugins: Annotated[dict[str, Any], chosen(GATES)] = Field(
        default_factory=dict,
        description="Gates of plug-ins, by name, each with its settings.",
    )

    @property
    def other_data(self) -> dict[str, str]:
        """The patterns of the files that new spans are compared with, by setting."""
        keys = self.keys.items()
        files = {f"gates.keys.{name}.file": key.file for name, key in keys}
        if self.skew:
            files["gates.skew.serving"] = self.skew.serving
        return {setting: file for setting, file in files.items() if file}

    def without_paths(self, **options: Any) -> dict[str, Any]:
        """The settings as JSON, but for the paths of `other_data`.

        Args:
          **options: Those of `model_dump`.
        """
        paths: Any = {"skew": {"serving"}, "keys": {"__all__": {"file"}}}
        return self.model_dump(mode="json", exclude=paths, **options)
