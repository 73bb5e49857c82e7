"""Which `tf.distribute` strategy trains, and why."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from strategos.components.errors import UserError

STRATEGIES = ("auto", "one_device")


@dataclasses.dataclass(frozen=True)
class Choice:
    """A strategy by name, and the reason for it.

    Attributes:
      name: Its name in `trainer.distribution.strategy`.
      reason: One line for people.
    """

    name: str
    reason: str

    def build(self) -> tf.distribute.Strategy:
        """The strategy itself; initialises the devices.

        One device is TensorFlow's default strategy, which takes the first GPU if there
        is one: the same as `OneDeviceStrategy`, without its copying iterators.
        """
        return tf.distribute.get_strategy()


def choose(distribution: Mapping[str, Any], gpus: int) -> Choice:
    """Maps the settings and what the machine has to a strategy.

    Args:
      distribution: `trainer.distribution`.
      gpus: How many GPUs TensorFlow sees.

    Raises:
      UserError: The strategy is none of `STRATEGIES`.
    """
    wanted = distribution.get("strategy", "auto")
    if wanted not in STRATEGIES:
        raise UserError(
            f"trainer.distribution.strategy: received {wanted!r}, "
            f"allowed: {', '.join(STRATEGIES)}."
        )
    seen = f"{gpus} GPU(s) visible" if gpus else "no GPU visible"
    reason = seen if wanted == "auto" else f"asked for; {seen}"
    return Choice("one_device", reason)
