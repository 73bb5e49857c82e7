"""Callbacks of an asynchronous training."""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from strategos.components.trainer.loop.callbacks import Hooks
from strategos.components.trainer.loop.position import Position

Callbacks = list[tf.keras.callbacks.Callback]

STEPS_AHEAD = 8
"""Most steps per worker that are scheduled and have not been reported yet."""


class AsyncHooks(Hooks):
    """Callbacks of an asynchronous run: steps end some time after being scheduled.

    The callbacks of a step are called once the step has ended, in the order of
    scheduling, with plain numbers. So batch-level callbacks work, which Keras rejects
    under this strategy. At most `STEPS_AHEAD` steps per worker are scheduled ahead.

    Args:
      callbacks: The callbacks, in the order in which they are called.
      model: The model that the callbacks get.
      position: The position of training.
      epochs: Passes over the data.
      workers: Number of workers.
      evaluate: Called after each epoch with these hooks; returns the metrics. None if
        the user's own loop evaluates.
      pauses: Maps a step number to whether callbacks need the exact weights after that
        step, e.g. to save a checkpoint. If so, all scheduled steps end before the
        callbacks are called.
    """

    def __init__(
        self,
        callbacks: Callbacks,
        model: tf.keras.Model,
        position: Position,
        epochs: int,
        *,
        workers: int,
        evaluate: Callable[[tf.keras.callbacks.CallbackList], dict[str, Any]] | None,
        pauses: Callable[[int], bool],
    ):
        super().__init__(callbacks, model, position, epochs)
        self._check_timing = (
            False  # or Keras warns of slow callbacks: it times our waiting
        )
        strategy = tf.distribute.get_strategy()
        self._coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
        self._under_way: collections.deque[tuple[int, Any]] = collections.deque()
        self._most = STEPS_AHEAD * workers
        self._evaluate, self._pauses = evaluate, pauses

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Does nothing: the step is scheduled, but has not begun."""

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Adds a scheduled step; reports steps that have ended, if due.

        Args:
          batch: Number of the batch in this run's part of the epoch.
          logs: The step's future result.
        """
        self._under_way.append((batch, logs))
        if self._pauses(self.step_of(batch)):
            self._coordinator.join()
            self.finish_steps()
        elif len(self._under_way) > self._most:
            self._report_oldest()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Waits for all steps and evaluates, so that callbacks get `val_…` too."""
        self.finish_steps()
        if self._evaluate is not None:
            metrics = self._evaluate(self)
            logs.update({f"val_{name}": value for name, value in metrics.items()})
        super().on_epoch_end(epoch, logs)

    def finish_steps(self) -> None:
        """Waits for all scheduled steps, and calls the callbacks for them."""
        while self._under_way:
            self._report_oldest()

    def _report_oldest(self) -> None:
        """Waits for the oldest scheduled step and calls the callbacks for it."""
        batch, result = self._under_way.popleft()
        logs = result.fetch()
        self._position.is_exact = not self._under_way
        super().on_train_batch_begin(batch)
        super().on_train_batch_end(batch, logs)

    def _disallow_batch_hooks_in_ps_strategy(self) -> None:
        """Allows batch-level callbacks: they are called with plain numbers here."""
