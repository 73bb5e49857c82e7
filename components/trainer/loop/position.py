"""The position of training: steps and epochs."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass
class Position:
    """Steps done, and the epoch that they are in.

    Attributes:
      steps_per_epoch: Global batches of one pass.
      step: Steps done since the start of training, over all epochs.
      is_exact: Whether the model's weights are exactly those after `step`: asynchronous
        steps may have ended without having been reported yet.
    """

    steps_per_epoch: int
    step: int = 0
    is_exact: bool = True

    @property
    def epoch(self) -> int:
        """The epoch of the next step, counted from 0."""
        return self.step // self.steps_per_epoch

    @property
    def offset(self) -> int:
        """Steps of that epoch that are done."""
        return self.step % self.steps_per_epoch
