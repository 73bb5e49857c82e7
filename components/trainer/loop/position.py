"""The position of training: steps and epochs."""

from __future__ import annotations

import dataclasses
import sys


@dataclasses.dataclass
class Position:
    """Number of steps done, and the epoch of the next step.

    An epoch ends with an evaluation: after each pass over the examples, or after
    `evaluate_every` steps. If the training ends within an epoch, this epoch is shorter.

    Attributes:
      steps_per_pass: Global batches of one pass over the examples.
      step: Steps done since the start of training, over all epochs.
      total: Steps of the training, unless it is stopped early.
      evaluate_every: Steps of an epoch; None for those of a pass.
      phase_starts: First epoch of each phase that has begun, counted from 0; the last
        one is of the current phase.
      is_exact: Whether the weights include exactly `step` updates. False while
        asynchronous steps are scheduled that have not been reported.
    """

    steps_per_pass: int
    step: int = 0
    total: int = sys.maxsize
    evaluate_every: int | None = None
    is_exact: bool = True
    phase_starts: list[int] = dataclasses.field(default_factory=lambda: [0])

    @property
    def steps_per_epoch(self) -> int:
        """Steps of each epoch but a shorter last one."""
        return self.evaluate_every or self.steps_per_pass

    @property
    def epoch(self) -> int:
        """The epoch of the next step, counted from 0."""
        epoch, offset = divmod(self.step, self.steps_per_epoch)
        return epoch + 1 if offset and self.step == self.total else epoch

    @property
    def offset(self) -> int:
        """Steps done in the epoch of the next step."""
        return max(0, self.step - self.epoch * self.steps_per_epoch)

    @property
    def left_in_epoch(self) -> int:
        """Steps from here to the end of the epoch of the next step."""
        end = (self.epoch + 1) * self.steps_per_epoch
        return min(end, self.total) - self.step

    def epochs_in(self, passes: int) -> int:
        """Epochs in a number of passes from the start of training.

        Args:
          passes: Passes over the examples.
        """
        return -(-passes * self.steps_per_pass // self.steps_per_epoch)
