"""The section `predict`: files that the model of a run predicts."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, ValidationInfo, field_validator

from strategos.components.files import patterns
from strategos.pipeline.config.problems import reject
from strategos.pipeline.config.types import PathText, Section, Spans, Texts


class Predict(Section):
    """Files that the model of a run predicts once it is blessed and pushed."""

    data: PathText = Field(
        examples=["data/new/{DATE}.parquet"],
        description="Glob of the files to predict, a path or a URL in the forms of "
        "`data.examples`. They need neither label nor weight.",
    )
    spans: Spans = Field("latest", description="Spans to predict, as in `data.spans`.")
    to: PathText = Field(
        examples=["s3://bucket/scored"],
        description="Folder for the predictions, a path or a URL: each run that "
        "predicts makes a folder in it, named by time.",
    )
    format: Literal["parquet", "csv", "jsonl", "tfrecord"] = Field(
        "parquet", description="Format of the files of predictions."
    )
    columns: Texts = Field(
        (), description="Columns of the rows to write beside the predictions."
    )

    @property
    def choice(self) -> dict[str, str]:
        """The arguments of `predicted_spans.choose`."""
        return {"pattern": self.data, "which": self.spans}

    @field_validator("spans")
    @classmethod
    def _there_are_spans(cls, spans: str, info: ValidationInfo) -> str:
        pattern = info.data.get("data")
        if (
            pattern
            and spans not in ("all", "latest")
            and not patterns.has_spans(pattern)
        ):
            raise reject(
                "`predict.data` has no spans",
                received=spans,
                remedy="Remove `spans`, or put {SPAN} or {DATE} into the pattern.",
            )
        return spans

    @field_validator("to")
    @classmethod
    def _is_apart(cls, to: str, info: ValidationInfo) -> str:
        pattern = info.data.get("data")
        inside = pattern and f"{patterns.fixed_folder(pattern)}/"
        if inside and inside.startswith(f"{to.rstrip('/')}/"):
            raise reject(
                "the files to predict are in it",
                received=to,
                remedy="Name another folder.",
            )
        return to
