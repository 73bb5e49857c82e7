"""The section `trainer.callbacks`."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    StringConstraints,
    field_serializer,
)

from strategos.pipeline.config.introspect import Allowed
from strategos.pipeline.config.problems import received, reject
from strategos.pipeline.config.training.early_stopping import MODE, EarlyStopping, Mode
from strategos.pipeline.config.types import Metric, NotNegative, Section, ordered


class BestCheckpoint(Section):
    """Exports the weights of the best epoch instead of the last epoch."""

    monitor: Metric = Field(
        "val_loss", description="Metric that decides which epoch is the best."
    )
    mode: Mode = Field("auto", description=MODE)


class ReduceLearningRate(Section):
    """Lowers the learning rate when a metric no longer improves."""

    monitor: Metric = Field("val_loss", description="Metric to monitor.")
    factor: Annotated[float, Field(gt=0, lt=1), Allowed("a number between 0 and 1")] = (
        Field(0.1, description="Factor by which the learning rate is multiplied.")
    )
    patience: NotNegative = Field(
        2, description="Epochs without improvement after which the rate is lowered."
    )
    min_lr: Annotated[float, Field(ge=0)] = Field(
        0.0, description="Smallest learning rate."
    )
    mode: Mode = Field("auto", description=MODE)


class TensorBoard(Section):
    """Contents of the logs for TensorBoard besides metrics."""

    histograms: bool = Field(
        False, description="Whether histograms of the weights are logged each epoch."
    )
    profile: (
        Annotated[
            str,
            StringConstraints(pattern=r"^[1-9][0-9]*\.\.[1-9][0-9]*$"),
            Allowed("a range of steps such as 10..20"),
            AfterValidator(ordered),
        ]
        | None
    ) = Field(None, description="Range of steps to profile.")


def _or_boolean(schema: dict[str, Any]) -> None:
    schema["anyOf"].insert(0, {"type": "boolean"})


def _switch(value: Any) -> Any:
    """Converts `true` to a section with its defaults and `false` to None."""
    if isinstance(value, bool):
        return {} if value else None
    if not isinstance(value, dict | TensorBoard):
        raise reject(received=received(value), expected=_SWITCH)
    return value


_SWITCH = "true, false or a mapping with the keys histograms, profile"


class Callbacks(Section):
    """Callbacks that run during training."""

    early_stopping: EarlyStopping | None = Field(
        None, description="Ends training when a metric stops improving. null: never."
    )
    best_checkpoint: BestCheckpoint | None = Field(
        None, description="Exports the weights of the best epoch. null: of the last."
    )
    reduce_learning_rate: ReduceLearningRate | None = Field(
        None,
        description="Lowers a constant learning rate when a metric stops improving. "
        "null: never.",
    )
    tensorboard: Annotated[
        TensorBoard | None, BeforeValidator(_switch), Allowed(_SWITCH)
    ] = Field(
        default_factory=TensorBoard,
        description="Whether logs for TensorBoard are written, and what they contain.",
        json_schema_extra=_or_boolean,
    )
    csv: bool = Field(
        False, description="Whether the history is also written as `history.csv`."
    )
    terminate_on_nan: bool = Field(
        True, description="Whether a loss or weights of NaN or infinity end training."
    )

    @field_serializer("tensorboard")
    def _as_switch(self, value: TensorBoard | None) -> bool | dict[str, Any]:
        if value is None or not value.model_fields_set:
            return value is not None
        return value.model_dump(mode="json")
