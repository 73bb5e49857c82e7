"""Decisions that are equal in all workers: taken by a collective, never by a clock."""

from __future__ import annotations

import numpy as np
import tensorflow as tf


class Agreement:
    """Sums values over the workers of a strategy; all must call it at the same step.

    Args:
      strategy: The strategy of this process.
      workers: Processes that train together; a single one exchanges nothing.
    """

    def __init__(self, strategy: tf.distribute.Strategy, workers: int):
        self._strategy = strategy
        self.workers = workers

    @property
    def alone(self) -> bool:
        """Whether this is the only worker."""
        return self.workers == 1

    def total(self, *values: float) -> tuple[float, ...]:
        """Sums each value over the workers.

        Args:
          *values: Numbers of this worker.

        Returns:
          The sums, in the order of `values`; float64, so exact for integers.
        """
        if self.alone:
            return values
        return tuple(self.sums(np.asarray(values, np.float64)).tolist())

    def sums(self, values: np.ndarray) -> np.ndarray:
        """Sums arrays over the workers, all in one exchange.

        Args:
          values: Numbers of this worker, float64, of the same shape in each.
        """
        if self.alone:
            return values
        replicas = self._strategy.num_replicas_in_sync // self.workers

        def given_by(context: tf.distribute.experimental.ValueContext) -> tf.Tensor:
            # One replica carries its worker's value: sevenths of 3 do not add up to 3.
            speaks = context.replica_id_in_sync_group % replicas == 0
            return tf.constant(values if speaks else np.zeros_like(values))

        shares = self._strategy.experimental_distribute_values_from_function(given_by)
        return self._strategy.reduce("SUM", shares, axis=None).numpy()

    def any(self, holds: bool) -> bool:
        """Whether something holds for any of the workers.

        Args:
          holds: Whether it holds for this worker.
        """
        return self.total(holds)[0] > 0
