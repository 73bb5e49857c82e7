"""The section `data.split`: how rows are divided."""

from __future__ import annotations

import datetime
import re
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    ValidationInfo,
    field_validator,
)

from strategos.pipeline.config.introspect import Allowed
from strategos.pipeline.config.problems import reject
from strategos.pipeline.config.types import LARGEST, Positive, Section, Texts, seconds

_DURATION = r"[1-9][0-9]{0,8}[smhdw]"
_SHARE = "a whole number, at least 1; for `by: time` a duration such as 30d, or a date"


def as_text(value: Any) -> Any:
    """A date of YAML as text; other values as they are."""
    return value.isoformat() if isinstance(value, datetime.date) else value


def _is_amount(value: int | str) -> int | str:
    if isinstance(value, int):
        if not 1 <= value <= LARGEST:
            raise reject(received=str(value), expected=_SHARE)
        return value
    if not re.fullmatch(_DURATION, value):
        try:
            datetime.datetime.fromisoformat(value.replace("Z", "+00:00"))
        except ValueError:
            raise reject(received=repr(value), expected=_SHARE) from None
    return value


Amount = Annotated[
    int | str,
    BeforeValidator(as_text),
    Allowed(_SHARE),
    Field(json_schema_extra={"type": ["string", "integer"]}),
    AfterValidator(_is_amount),
]
"""A share of the rows, or the newest rows: a duration, or a date to begin at."""


class Split(Section):
    """How rows are divided into training, validation and evaluation."""

    by: Literal["hash", "ratio", "span", "time"] = Field(
        "ratio",
        description="`hash` puts rows with equal values in `keys` on the same side, "
        "however files spell them (`5`, `5.0`, ` 5`); `ratio` divides row by row; "
        "`span` holds the newest spans out for evaluation, `time` the newest rows by "
        "`column`.",
    )
    keys: Texts = Field(
        (),
        description="Columns whose values decide the split of a row, for `by: hash`.",
        validate_default=True,
    )
    column: str = Field(
        "",
        description="Column of dates or times, for `by: time`: of a type of the file, "
        "or text such as `2024-03-01` or `2024-03-01T12:00:00Z`. A time without a zone "
        "counts as UTC.",
        validate_default=True,
    )
    train: Positive = Field(
        8, description="Share of the rows for training, relative to `eval`."
    )
    eval: Amount = Field(
        2,
        description="Share of the rows for evaluation, relative to `train`. For "
        "`by: time`, the newest rows: a duration before the newest time of all rows, "
        "or the date that they begin at.",
        validate_default=True,
    )
    validation: Amount | None = Field(
        None,
        description="Share of the rows that `train` gives to a third split, so that "
        "`eval` keeps its rows: with `train: 8, eval: 2, validation: 1`, 7 of 10 rows "
        "train and 1 validates. For `by: span`, the number of newest spans before "
        "those held out; for `by: time`, a duration before `eval`, or a date. "
        "Callbacks and `val_*` then use it, the Evaluator never. By default, callbacks "
        "choose on `eval`.",
    )
    spans: Positive = Field(
        1,
        description="Number of newest spans, among those of the run, that are held "
        "out for evaluation, for `by: span`.",
    )

    @field_validator("train", "eval", "spans")
    @classmethod
    def _is_used(cls, value: int | str, info: ValidationInfo) -> int | str:
        by = info.data.get("by")
        name = str(info.field_name)
        default = cls.model_fields[name].default
        if by == "time" and name == "eval":
            return cls._is_time(value, "the newest rows", "eval: 30d")
        unused = (by == "span") != (name == "spans")
        if by and (unused or by == "time") and value != default:
            raise reject(f"`by: {by}` does not use it", remedy="Remove it.")
        if by and isinstance(value, str):
            raise reject(
                "a time is for `by: time`", received=value, remedy="Write a number."
            )
        return value

    @classmethod
    def _is_time(cls, value: int | str, what: str, example: str) -> str:
        if isinstance(value, int):
            raise reject(
                f"`by: time` needs a duration or a date for {what}",
                received=str(value),
                remedy=f"Write, for example, `{example}`.",
            )
        return value

    @field_validator("column")
    @classmethod
    def _has_times(cls, column: str, info: ValidationInfo) -> str:
        by = info.data.get("by")
        if by == "time" and not column:
            raise reject(
                "`by: time` needs a column of times", remedy="Name it: `column: day`."
            )
        if by and by != "time" and column:
            raise reject(f"`by: {by}` does not use it", remedy="Remove it.")
        return column

    @field_validator("validation")
    @classmethod
    def _leaves_rows(
        cls, value: int | str | None, info: ValidationInfo
    ) -> int | str | None:
        by, train = info.data.get("by"), info.data.get("train")
        if value and by == "time":
            return cls._is_time(value, "the rows before `eval`", "validation: 10d")
        if isinstance(value, str):
            raise reject(
                "a time is for `by: time`", received=value, remedy="Write a number."
            )
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
        if by in ("span", "time") and keys:
            raise reject(f"`by: {by}` does not use keys", remedy="Remove `keys`.")
        return keys

    def settings(self) -> dict[str, Any]:
        """The settings as `splitting.Splitter.from_json` takes them."""
        values = self.model_dump(mode="json", exclude_none=True)
        if self.by != "time":
            del values["column"]
            return values
        for key in ("eval", "validation"):
            text = values.get(key)
            if text is not None and re.fullmatch(_DURATION, text):
                values[key] = seconds(text)
        return values
