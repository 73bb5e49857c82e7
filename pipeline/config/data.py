"""The section `data`: files, and the division of rows."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, ValidationInfo, field_validator

from strategos.components.data_files.listing import Completeness, Listing
from strategos.components.data_files.sources.reading import Reading
from strategos.components.data_files.values import DEFAULT_NULL_VALUES
from strategos.components.files import patterns
from strategos.pipeline.config.data_files.csv import Csv
from strategos.pipeline.config.data_files.query import Query
from strategos.pipeline.config.data_files.split import Split
from strategos.pipeline.config.problems import reject
from strategos.pipeline.config.types import (
    Duration,
    Filling,
    Function,
    PathText,
    Section,
    Spans,
    Spellings,
    Texts,
    seconds,
)

_Share = Annotated[float, Field(ge=0, le=1)]


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
        if marker is not None and not patterns.has_spans(marker):
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
        "`.csv` or `.parquet`; or a URL, `s3://…` or `gs://…`. `{SPAN}`, a number, or "
        "`{DATE}`, a day such as 20260131, in it marks the part of the path that "
        "numbers the spans; `{YYYY}-{MM}-{DD}` is a day such as 2026-01-31, and "
        "`{VERSION}` the version of a span.",
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

    step_lengths: Texts = Field(
        (),
        examples=[["clicks"]],
        description="Lists of the SequenceExamples in TFRecord files that have any "
        "number of values at a step: all values of a list are one feature, and their "
        "number at each step is the feature `NAME_lengths`.",
    )

    @field_validator("spans")
    @classmethod
    def _there_are_spans(cls, spans: str, info: ValidationInfo) -> str:
        pattern = info.data.get("examples")
        if (
            pattern
            and spans not in ("all", "latest")
            and not patterns.has_spans(pattern)
        ):
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
        if split.by == "span" and pattern and not patterns.has_spans(pattern):
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
        if complete and complete.marker and pattern and not patterns.has_spans(pattern):
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
        """The key of the setting that makes missing files; "" for none."""
        made = {"prepare": self.prepare, "query": self.query}
        return next((f"data.{key}" for key, value in made.items() if value), "")

    @property
    def reading(self) -> Reading:
        """How the files are read."""
        return Reading(
            *(self.csv.form(), self.on_bad_row, self.max_bad_fraction),
            *(self.extra_columns, self.step_lengths),
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
