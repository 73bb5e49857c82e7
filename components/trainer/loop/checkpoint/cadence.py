"""The interval between checkpoints: fixed, or one that fits the training."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from strategos.components.errors import required

AUTO = "auto"
_UNITS = {"s": 1, "m": 60, "h": 3600}
_FIRST_SAVE_SECONDS = 0.1
_UNDISTURBED_SECONDS = 3600.0


@dataclasses.dataclass(frozen=True)
class Experience:
    """The history of a training so far; each checkpoint holds it for later attempts.

    Attributes:
      seconds: Seconds of all attempts, each up to its last checkpoint.
      interruptions: Attempts that ended early.
      save_seconds: Seconds in which a checkpoint's files were written, or for which it
        stopped the steps if that took longer; at first an assumption.
    """

    seconds: float = 0.0
    interruptions: int = 0
    save_seconds: float = _FIRST_SAVE_SECONDS

    @classmethod
    def interrupted(cls, stored: Mapping[str, Any], times: int) -> Experience:
        """The experience of an attempt that follows others.

        Args:
          stored: `dataclasses.asdict` of the experience in the checkpoint from which it
            resumes; empty without one, and in one of an earlier version.
          times: Attempts that were interrupted since that checkpoint.
        """
        before = cls(**stored)
        interruptions = before.interruptions + times
        return dataclasses.replace(before, interruptions=interruptions)

    def interval(self) -> float:
        """The seconds between checkpoints that lose the least time.

        √(2 · time of a save · time between failures), from J. W. Young, "A first order
        approximation to the optimum checkpoint interval", 1974: checkpoints that are
        written and steps that are repeated then cost the same. Before the first
        interruption, failures are expected once an hour, or more rarely if the training
        has been running for longer than that. 0 after one before the first checkpoint:
        the next attempt saves at once, and then learns from its own time.
        """
        between = max(self.seconds, 0.0 if self.interruptions else _UNDISTURBED_SECONDS)
        between /= max(self.interruptions, 1)
        return math.sqrt(2 * self.save_seconds * between)


@dataclasses.dataclass(frozen=True)
class Cadence:
    """The interval between two checkpoints, in seconds or in steps.

    Attributes:
      seconds: Seconds between two checkpoints; None if `steps` is set.
      steps: Steps between two checkpoints; None if `seconds` is set.
      adapts: Whether `seconds` follows the experience of the training.
    """

    seconds: float | None = None
    steps: int | None = None
    adapts: bool = False

    @classmethod
    def of(cls, text: str) -> Cadence:
        """Parses `trainer.checkpoint.every`.

        Args:
          text: A duration or number of steps, e.g. `30s`, `5m`, `1h`, `1 step` or
            `200 steps`; or `auto`.
        """
        if text == AUTO:
            return cls(seconds=Experience().interval(), adapts=True)
        number, _, of_steps = text.partition(" ")
        if of_steps:
            return cls(steps=int(number))
        return cls(seconds=float(text[:-1]) * _UNITS[text[-1]])

    def after(self, experience: Experience) -> Cadence:
        """The interval up to the next checkpoint.

        Args:
          experience: The history of the training so far.
        """
        if not self.adapts:
            return self
        return dataclasses.replace(self, seconds=experience.interval())

    def is_due(self, steps: int, seconds: float) -> bool:
        """Whether a checkpoint is due, given steps and seconds since the last one."""
        if self.steps:
            return steps >= self.steps
        return seconds >= required(self.seconds)

    def steps_left(self, steps: int) -> float:
        """Steps until a checkpoint is due, given steps since the last; inf for time."""
        return self.steps - steps if self.steps else math.inf
