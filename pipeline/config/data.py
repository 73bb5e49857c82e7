"""The `data` and `gates` sections: files, the division of rows, bounds on new spans."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationInfo, field_validator
from pydantic_core import InitErrorDetails

from strategos.components.data_files.listing import Completeness, Listing
from strategos.components.data_files.sources.reading import Reading
from strategos.components.data_files.values import DEFAULT_NULL_VALUES
from strategos.components.span_validator.gate import GATES
from strategos.components.wording import counted
from strategos.pipeline.config.data_files.csv import Csv
from strategos.pipeline.config.data_files.query import Query
from strategos.pipeline.config.data_files.split import Split
from strategos.pipeline.config.plugins import chosen
from strategos.pipeline.config.problems import reject, reject_at
from strategos.pipeline.config.types import (
    Duration,
    Filling,
    Function,
    PathText,
    Section,
    Spans,
    Spellings,
    Texts,
    has_spans,
    seconds,
)

_Share = Annotated[float, Field(ge=0, le=1)]
_Ratio = Annotated[float, Field(ge=0)]


class Complete(Section):
    """When a span is complete; spans that are not complete are not read."""

    marker: PathText | None = Field(
        None,
        description="Path of a file that marks a span as complete, with the "
        "placeholders of `data.examples`: `data/span-{SPAN}/_SUCCESS`.",
    )
    quiet: Duration | None = Field(
        None,
        description="Time without a change of the span's files.",
        validate_default=True,
    )

    @field_validator("marker")
    @classmethod
    def _marks_spans(cls, marker: str | None) -> str | None:
        if marker is not None and not has_spans(marker):
            raise reject(
                "the marker has no span",
                received=marker,
                remedy="Put the placeholder of `data.examples` into it, such as "
                "`data/span-{SPAN}/_SUCCESS`.",
            )
        return marker

    @field_validator("quiet")
    @classmethod
    def _has_a_condition(cls, quiet: str | None, info: ValidationInfo) -> str | None:
        if quiet is None and info.data.get("marker", "") is None:
            raise reject("the section sets neither `marker` nor `quiet`")
        return quiet


class Data(Section):
    """The files that hold the rows, and the division of the rows."""

    examples: PathText = Field(
        examples=["data/span-{SPAN}/*.csv"],
        description="Glob of the data files, whose names end in their format, such as "
        "`.csv` or `.parquet`; or a URL, `s3://…` or `gs://…`. `{SPAN}`, "
        "`{DATE}` and `{VERSION}` in it mark the part of the path that numbers the "
        "spans.",
    )
    spans: Spans = Field("all", description="Spans to read.")
    split: Split = Field(
        default_factory=Split,
        description="Division of the rows into training, validation and evaluation.",
    )
    complete: Complete | None = Field(
        None,
        description="When a span is complete. By default, every span is.",
    )
    prepare: Function | None = Field(
        None,
        description="`module:function` that makes missing data (by default function "
        "`prepare`), called with the folder of the YAML.",
    )
    query: Query | None = Field(
        None,
        description="A database whose rows become the files of `data.examples`.",
    )
    csv: Csv = Field(
        default_factory=Csv,
        description="How CSV files are written.",
    )
    null_values: Spellings = Field(
        DEFAULT_NULL_VALUES,
        description="Spellings of a missing value in columns whose other values are "
        "numbers, or that the schema declares as numbers. Text columns keep them. An "
        "empty field is missing in every column.",
    )
    missing: dict[str, Filling] = Field(
        default_factory=dict,
        description="By raw column, the value that `preprocessing_fn` gets in place of "
        'a missing one: `{shop: "", age: -1}`. Such a column is always dense, '
        "whether or not a cell is empty today, and may be missing in requests. "
        "Statistics and gates still count the missing values.",
    )
    unlabelled: Literal["keep", "drop"] = Field(
        "keep",
        description="What happens to a row without a value of the label: `drop` leaves "
        "it out of all splits and counts it; `keep` suits a label that "
        "`preprocessing_fn` makes. No model is trained on a missing label.",
    )
    on_bad_row: Literal["fail", "quarantine"] = Field(
        "fail",
        description="What happens to a row of CSV, JSON lines or TFRecord that cannot "
        "be parsed, or, with a schema, to one of any format with a value that is not "
        "of its column's type. `quarantine` leaves it out and writes it, with file, "
        "line and reason, to the folder `Rejected` of the examples.",
    )
    max_bad_fraction: _Share = Field(
        0.01,
        description="Largest share of rows that `on_bad_row: quarantine` may reject.",
    )
    extra_columns: Literal["fail", "ignore"] = Field(
        "fail",
        description="What happens to a column that the schema does not declare or, "
        "without a schema, that not all files have. `ignore` leaves it out.",
    )

    @field_validator("spans")
    @classmethod
    def _there_are_spans(cls, spans: str, info: ValidationInfo) -> str:
        pattern = info.data.get("examples")
        if pattern and spans not in ("all", "latest") and not has_spans(pattern):
            raise reject(
                "`data.examples` has no spans",
                received=spans,
                remedy="Remove `spans`, or put {SPAN} or {DATE} into the pattern.",
            )
        return spans

    @field_validator("split")
    @classmethod
    def _has_spans_to_hold_out(cls, split: Split, info: ValidationInfo) -> Split:
        pattern = info.data.get("examples")
        if split.by == "span" and pattern and not has_spans(pattern):
            raise reject(
                "`by: span` holds spans out, but `data.examples` has none",
                remedy="Put {SPAN} or {DATE} into the pattern.",
            )
        return split

    @field_validator("query")
    @classmethod
    def _fills_the_files(
        cls, query: Query | None, info: ValidationInfo
    ) -> Query | None:
        if query and info.data.get("prepare"):
            raise reject("`data.prepare` makes the files, too", remedy="Remove one.")
        if query and "examples" in info.data:
            query.check_files(info.data["examples"])
        return query

    @field_validator("complete")
    @classmethod
    def _marks_these_spans(
        cls, complete: Complete | None, info: ValidationInfo
    ) -> Complete | None:
        pattern = info.data.get("examples")
        if complete and complete.marker and pattern and not has_spans(pattern):
            raise reject(
                "`marker` marks spans, but `data.examples` has none",
                remedy="Put {SPAN} or {DATE} into the pattern, or use `quiet`.",
            )
        return complete

    def listing(self) -> Listing:
        """Lists the data files; a command does so once and passes the listing on."""
        return Listing(
            self.examples, self.spans, self.completeness, held_out=self.held_out
        )

    @property
    def maker(self) -> str:
        """The key of what makes missing files; "" for nothing."""
        made = {"prepare": self.prepare, "query": self.query}
        return next((f"data.{key}" for key, value in made.items() if value), "")

    @property
    def reading(self) -> Reading:
        """How the files are read."""
        return Reading(
            self.csv.form(), self.on_bad_row, self.max_bad_fraction, self.extra_columns
        )

    @property
    def held_out(self) -> int:
        """Number of the newest spans that are not for training."""
        split = self.split
        return split.spans + int(split.validation or 0) if split.by == "span" else 0

    @property
    def completeness(self) -> Completeness | None:
        """`complete` in the form for the listing; None if every span is complete."""
        complete = self.complete
        if complete is None:
            return None
        quiet = seconds(complete.quiet) if complete.quiet else 0
        return Completeness(complete.marker, quiet)


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
    if has_spans(pattern):
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
