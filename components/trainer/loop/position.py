"""The position of training: steps and epochs."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass
class Position:
    """Number of steps done, and the epoch of the next step.

    Attributes:
      steps_per_epoch: Global batches of one pass.
      step: Steps done since the start of training, over all epochs.
      phase_starts: First epoch of each phase that has begun, counted from 0; the last
        one is of the current phase.
      is_exact: Whether the weights include exactly `step` updates. False while
        asynchronous steps are scheduled that have not been reported.
    """

    steps_per_epoch: int
    step: int = 0
    is_exact: bool = True
    phase_starts: list[int] = dataclasses.field(default_factory=lambda: [0])

    @property
    def epoch(self) -> int:
        """The epoch of the next step, counted from 0."""
        return self.step // self.steps_per_epoch

    @property
    def offset(self) -> int:
        """Steps done in the epoch of the next step."""
        return self.step % self.steps_per_epoch
