"""The order of a training's phases: the current one, its end, and later ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from strategos.components.errors import UserError
from strategos.components.trainer.loop.position import Position
from strategos.components.trainer.phases import Phase


class PhaseOrder:
    """Finds the current phase and its end from the position of training.

    A training without `trainer.phases` has one phase, without a name.

    Args:
      phases: All phases, in their order.
      position: The position of training; has the first epoch of each phase begun.
    """

    def __init__(self, phases: Sequence[Phase], position: Position):
        self._phases, self._position = phases, position

    @property
    def number(self) -> int:
        """Index of the current phase."""
        return len(self._position.phase_starts) - 1

    @property
    def current(self) -> Phase:
        """The current phase."""
        return self._phases[self.number]

    @property
    def end_epoch(self) -> int:
        """The epoch after the current phase's last one, counted from 0."""
        return self._position.phase_starts[-1] + self._epochs_of(self.current)

    @property
    def epochs(self) -> int:
        """Epochs of the training: done, left in this phase, and of later phases."""
        later = self._phases[self.number + 1 :]
        return self.end_epoch + sum(map(self._epochs_of, later))

    @property
    def steps(self) -> int:
        """Steps of the training: done, left in this phase, and of later phases."""
        return min(self.epochs * self._position.steps_per_epoch, self._position.total)

    @property
    def is_last(self) -> bool:
        """Whether no phase follows."""
        return self.number == len(self._phases) - 1

    def begin_next(self) -> None:
        """Starts the next phase at the present position, the end of an epoch."""
        self._position.phase_starts.append(self._position.epoch)

    def check_steps(self, steps_per_epoch: int) -> None:
        """Rejects a phase if its model changes the number of steps of an epoch.

        Args:
          steps_per_epoch: The number for the model of the current phase.

        Raises:
          UserError: The numbers differ.
        """
        before = self._position.steps_per_pass
        if steps_per_epoch != before:
            raise UserError(
                f"the model of phase `{self.current.name}` has {steps_per_epoch:,} "
                f"steps an epoch, those of earlier phases {before:,}: under several "
                "replicas one of them leaves out a smaller last batch",
                key="trainer.phases",
                remedy="Set `trainer.last_batch: drop`, which leaves it out in all.",
            )

    def announcement(self, model: Any) -> str:
        """A sentence that the current phase begins, or goes on after a restart.

        Args:
          model: The model of the phase.
        """
        first, last = self._position.epoch + 1, self.end_epoch
        trained = sum(math.prod(x.shape) for x in model.trainable_variables)
        return (
            f"phase {self.current.name}: epochs {first} to {last}, trains {trained:,} "
            f"of {model.count_params():,} parameters"
        )

    def record(self) -> list[dict[str, Any]]:
        """The phases that have begun, with their epochs, for the model's record.

        Returns:
          `name`, `first_epoch` (counted from 1) and `epochs` of each; [] for a training
          without `trainer.phases`.
        """
        starts = self._position.phase_starts
        ends = [*starts[1:], self._position.epoch]
        return [
            {"name": phase.name, "first_epoch": start + 1, "epochs": end - start}
            for phase, start, end in zip(self._phases, starts, ends, strict=False)
            if phase.name
        ]

    def _epochs_of(self, phase: Phase) -> int:
        return self._position.epochs_in(phase.epochs)
