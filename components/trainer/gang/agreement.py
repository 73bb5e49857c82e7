"""What all workers of a gang decide alike, by a collective, never each by its clock."""

from __future__ import annotations

import numpy as np
import tensorflow as tf


class Agreement:
    """Sums over the workers of a strategy; all of them must ask at the same step.

    Args:
      strategy: The strategy of this process.
      workers: Processes that train together; with one nothing is exchanged.
    """

    def __init__(self, strategy: tf.distribute.Strategy, workers: int):
        self._strategy = strategy
        self.workers = workers

    @property
    def alone(self) -> bool:
        """Whether there is nobody to agree with."""
        return self.workers == 1

    def total(self, *values: float) -> tuple[float, ...]:
        """The sum of each value over the workers; float64, so exact for integers."""
        if self.alone:
            return values
        replicas = self._strategy.num_replicas_in_sync // self.workers

        def given_by(context: tf.distribute.experimental.ValueContext) -> tf.Tensor:
            # One replica speaks for its worker: sevenths of 3 do not add up to 3.
            speaks = context.replica_id_in_sync_group % replicas == 0
            return tf.constant(np.asarray(values, np.float64) * speaks)

        given = self._strategy.experimental_distribute_values_from_function(given_by)
        summed = self._strategy.reduce("SUM", given, axis=None)
        return tuple(float(value) for value in summed.numpy())
