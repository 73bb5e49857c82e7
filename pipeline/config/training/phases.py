"""`trainer.phases`: a training in phases that train different layers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, Field, StringConstraints
from pydantic_core import InitErrorDetails

from strategos.pipeline.config.introspect import Allowed
from strategos.pipeline.config.problems import received, reject, reject_at
from strategos.pipeline.config.training.early_stopping import EarlyStopping
from strategos.pipeline.config.types import Positive, Section, Text

_TRAINABLE = "all, none, the number of last layers, or a list of layer names"


def _trainable(value: Any) -> Any:
    names = isinstance(value, list | tuple) and value
    is_count = type(value) is int and value > 0
    if value in ("all", "none") or is_count:
        return value
    if names and all(isinstance(name, str) and name.strip() for name in value):
        return tuple(value)
    raise reject(received=received(value), expected=_TRAINABLE)


PhaseName = Annotated[
    str,
    StringConstraints(pattern=r"^[A-Za-z]\w{0,62}$"),
    Allowed("letters, digits and `_`, first a letter, at most 63"),
]
Trainable = Annotated[
    Any,
    Allowed(_TRAINABLE),
    AfterValidator(_trainable),
    Field(
        json_schema_extra={
            "anyOf": [
                {"enum": ["all", "none", None]},
                {"type": "integer", "minimum": 1},
                {"type": "array", "items": {"type": "string"}},
            ]
        }
    ),
]
Rate = Annotated[float, Field(gt=0), Allowed("a number above 0")]


class Phase(Section):
    """A part of the training, with a choice of layers and an optimizer of its own."""

    epochs: Positive = Field(
        description="Passes over the training rows in this phase, at most."
    )
    base: Text | None = Field(
        None,
        description="Name of the layer that `trainable` is about, such as a pretrained "
        "model within the model. Other layers stay as `build_model` sets them. By "
        "default, the whole model.",
    )
    trainable: Trainable | None = Field(
        None,
        description="Layers that train: `all`, `none`, the number of last layers, or a "
        "list of layer names and patterns such as `conv5_*`. By default, as "
        "`build_model` sets them.",
    )
    learning_rate: Rate | None = Field(
        None,
        description="Learning rate of the optimizer that `build_model` makes, in place "
        "of its own constant rate.",
    )
    early_stopping: EarlyStopping | None = Field(
        None,
        description="Ends this phase when a metric stops improving. The phase then "
        "gives on the weights of its best epoch. null: never.",
    )

    def _problems(self) -> Iterator[InitErrorDetails]:
        if self.base and self.trainable is None:
            yield reject_at(
                ("base",),
                "has no effect without `trainable`",
                remedy="Add `trainable: none`, `all`, a number of layers or their "
                "names; or remove `base`.",
            )
        if self.trainable == "none" and not self.base:
            yield reject_at(
                ("trainable",),
                "the whole model would not train",
                received="none",
                remedy="Name the layer that does not train: `base: NAME`.",
            )


def total_epochs(phases: Any) -> int | None:
    """The epochs of all phases together; None if there are none, or not all have them.

    Args:
      phases: The value of `trainer.phases` as written, perhaps invalid.
    """
    if not isinstance(phases, Mapping) or not phases:
        return None
    numbers = [
        each.epochs if isinstance(each, Phase) else Mapping.get(each, "epochs")
        for each in phases.values()
        if isinstance(each, Phase | dict)
    ]
    known = [number for number in numbers if type(number) is int and number > 0]
    return sum(known) if len(known) == len(phases) else None
