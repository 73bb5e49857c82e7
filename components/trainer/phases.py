"""The phases of a training as plain data: which layers train, for how long.

Imports neither TensorFlow nor TFX.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

from strategos.components.errors import UserError
from strategos.components.trainer.spec import WorkerSpec

Trainable: TypeAlias = Literal["all", "none"] | int | Sequence[str]
"""All layers, none, the number of last ones, or names and patterns of layers."""


@dataclasses.dataclass(frozen=True)
class Phase:
    """One phase of a training, from `trainer.phases`.

    Attributes:
      name: Name of the phase; "" for a training without phases.
      epochs: Passes over the training examples, at most.
      base: Name of the layer that contains the layers of `trainable`; None for the
        model.
      trainable: The layers that train; None for those of `build_model`.
      learning_rate: The learning rate; None for the one of `build_model`.
      early_stopping: `monitor`, `patience` and `mode`; None if the phase always runs
        all its epochs.
    """

    name: str
    epochs: int
    base: str | None = None
    trainable: Trainable | None = None
    learning_rate: float | None = None
    early_stopping: Mapping[str, Any] | None = None

    def key(self, setting: str) -> str:
        """The key path of a setting of this phase, for errors.

        Args:
          setting: E.g. `trainable`.
        """
        return f"trainer.phases.{self.name}.{setting}"


def of(spec: WorkerSpec) -> tuple[Phase, ...]:
    """The phases of a training in their order; one without a name if none is set.

    Args:
      spec: The training.

    Raises:
      UserError: The phases have another number of epochs than the training, which a
        runtime parameter may have set.
    """
    if not spec.settings.phases:
        return (Phase("", spec.epochs),)
    phases = tuple(Phase(**each) for each in spec.settings.phases)
    check_epochs([each.epochs for each in phases], spec.epochs)
    return phases


def check_epochs(of_phases: Sequence[int], epochs: int) -> None:
    """Rejects a number of epochs that differs from the sum over the phases.

    Args:
      of_phases: Epochs of each phase.
      epochs: `trainer.epochs`.

    Raises:
      UserError: The numbers differ.
    """
    if sum(of_phases) != epochs:
        raise UserError(
            f"the phases of `trainer.phases` have {sum(of_phases)} epochs together",
            key="trainer.epochs",
            received=str(epochs),
            remedy="Remove `epochs`, or change the epochs of a phase.",
        )
