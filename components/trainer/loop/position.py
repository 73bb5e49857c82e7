"""Where training is."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass
class Position:
    """Steps done, and the epoch that they are in.

    Attributes:
      steps_per_epoch: Global batches of one pass.
      step: Steps done since the start of training, in all epochs.
      is_exact: Whether the model is as it was after that step; steps that are taken
        asynchronously may be ahead of those that have been told.
    """

    steps_per_epoch: int
    step: int = 0
    is_exact: bool = True

    @property
    def epoch(self) -> int:
        """The epoch of the next step, from 0."""
        return self.step // self.steps_per_epoch

    @property
    def offset(self) -> int:
        """Steps of that epoch that are done."""
        return self.step % self.steps_per_epoch
