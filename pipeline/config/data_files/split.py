"""The section `data.split`: how rows are divided."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, ValidationInfo, field_validator

from strategos.pipeline.config.problems import reject
from strategos.pipeline.config.types import Positive, Section, Texts


class Split(Section):
    """How rows are divided into training, validation and evaluation."""

    by: Literal["hash", "ratio", "span"] = Field(
        "ratio",
        description="`hash` puts rows with equal values in `keys` on the same side, "
        "however files spell them (`5`, `5.0`, ` 5`); `ratio` divides row by row; "
        "`span` holds the newest spans out for evaluation.",
    )
    keys: Texts = Field(
        (),
        description="Columns whose values decide the split of a row, for `by: hash`.",
        validate_default=True,
    )
    train: Positive = Field(
        8, description="Share of the rows for training, relative to `eval`."
    )
    eval: Positive = Field(
        2, description="Share of the rows for evaluation, relative to `train`."
    )
    validation: Positive | None = Field(
        None,
        description="Share of the rows that `train` gives to a third split, so that "
        "`eval` keeps its rows: with `train: 8, eval: 2, validation: 1`, 7 of 10 rows "
        "train and 1 validates. For `by: span`, the number of newest spans before "
        "those held out. Callbacks and `val_*` then use it, the Evaluator never. By "
        "default, callbacks choose on `eval`.",
    )
    spans: Positive = Field(
        1,
        description="Number of newest spans, among those of the run, that are held "
        "out for evaluation, for `by: span`.",
    )

    @field_validator("train", "eval", "spans")
    @classmethod
    def _is_used(cls, value: int, info: ValidationInfo) -> int:
        by = info.data.get("by")
        default = cls.model_fields[str(info.field_name)].default
        unused = (by == "span") != (info.field_name == "spans")
        if by and unused and value != default:
            raise reject(f"`by: {by}` does not use it", remedy="Remove it.")
        return value

    @field_validator("validation")
    @classmethod
    def _leaves_rows(cls, value: int | None, info: ValidationInfo) -> int | None:
        by, train = info.data.get("by"), info.data.get("train")
        if value and by != "span" and train and value >= train:
            raise reject(
                f"nothing of `train: {train}` is left",
                received=str(value),
                remedy="Lower it, or raise `train` and `eval` together.",
            )
        return value

    @field_validator("keys")
    @classmethod
    def _fits_by(cls, keys: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        by = info.data.get("by")
        if by == "hash" and not keys:
            remedy = "Name the columns: `keys: [customer]`; or write `by: ratio`."
            raise reject("`by: hash` needs columns to hash", remedy=remedy)
        if by == "ratio" and keys:
            remedy = "Write `by: hash`, or remove `keys`."
            raise reject("`by: ratio` does not use keys", remedy=remedy)
        if by == "span" and keys:
            raise reject("`by: span` does not use keys", remedy="Remove `keys`.")
        return keys
