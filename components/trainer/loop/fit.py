"""Training by tf-keras's `fit`, over one stream of batches for all epochs."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import tensorflow as tf
import tf_keras

from strategos.components.trainer.compat import keras3, optimizers
from strategos.components.trainer.compat.callbacks import TensorCallback
from strategos.components.trainer.loop.callbacks import Hooks
from strategos.components.trainer.loop.position import Position

_OF_FIT = (
    *("fit", "make_train_function", "train_step", "make_test_function", "test_step"),
    *("compute_metrics", "get_metrics_result"),
)
_MOST_STEPS = 32
_SECONDS = 0.05  # of an execution; progress, SIGTERM and checkpoints wait for its end


def fit(
    model: tf.keras.Model,
    position: Position,
    *,
    end_epoch: int,
    feed: Callable[[int], Any],
    evaluation: Any,
    evaluation_steps: int | None,
    hooks: Hooks,
) -> None:
    """Trains `model` from `position` to `end_epoch`, evaluating after each epoch.

    One call of `fit` runs the same number of steps in each epoch. So a start in
    the middle of an epoch takes another call, for the rest of this epoch, and so does a
    shorter last epoch (`trainer.evaluate_every`). The optimizer is finalized (e.g.
    `use_ema`) once, after the last call, and also if no step is left.

    Args:
      model: A compiled tf-keras model, in the scope of its strategy.
      position: Position at which training starts; updated after each step.
      end_epoch: The epoch after the last one, counted from 0.
      feed: Returns the stream of batches from a given step on.
      evaluation: Batches to evaluate on after each epoch; None if the hooks evaluate.
      evaluation_steps: Number of batches of `evaluation`.
      hooks: The callbacks.
    """
    if int(model.steps_per_execution.numpy()) > 1:
        _make_loops(model)
    with optimizers.unfinalized(model.optimizer):
        whole = min(end_epoch, position.total // position.steps_per_epoch)
        while position.epoch < end_epoch and not model.stop_training:
            epoch, steps = position.epoch, position.left_in_epoch
            model.fit(
                feed(position.step),
                initial_epoch=epoch,
                epochs=whole if steps == position.steps_per_epoch else epoch + 1,
                steps_per_epoch=steps,
                validation_data=evaluation,
                validation_steps=evaluation_steps,
                callbacks=hooks,
                verbose=0,
            )
    optimizers.finalize(model)


def _make_loops(model: tf.keras.Model) -> None:
    """Makes the train and test functions of a model with several steps per execution.

    tf-keras makes each function once. It makes one without a loop if the number of
    steps is 1 at that moment, e.g. in an epoch with one step left; later it then counts
    more steps than the function runs.
    """
    model.make_train_function()
    model.make_test_function()


class StepsPerExecution(TensorCallback):
    """Chooses the steps per execution while tf-keras's `fit` runs.

    Python takes half a millisecond between two executions, as long as a step of a small
    model. Each number of steps runs the same graph, so it does not change the weights.

    Args:
      position: The position of training.
      until_due: Maps the steps done to the number of steps until a callback must see
        the model, e.g. to save a checkpoint.
      clock: Monotonic time in seconds.
    """

    def __init__(
        self,
        position: Position,
        until_due: Callable[[int], float],
        clock: Callable[[], float] = time.monotonic,
    ):
        super().__init__()
        self._position, self._until_due, self._clock = position, until_due, clock
        self._steps, self._set = 1, 0
        self._begun: tuple[float, int] = (0.0, 0)
        self._is_traced = False

    @staticmethod
    def suits(model: tf.keras.Model) -> bool:
        """Whether the steps per execution of a model can be chosen automatically.

        True for a tf-keras model that is not run eagerly, has no method of `fit`
        overridden, and has `steps_per_execution` 1. The user's own `train_step` may
        return values that a TensorFlow loop rejects, e.g. a string.

        Args:
          model: A compiled model.
        """
        if not isinstance(model, tf_keras.Model):  # Keras 3 unrolls the steps
            return False
        own = [x for x in _OF_FIT if keras3.is_overridden(model, x)]
        single = int(model.steps_per_execution.numpy()) == 1
        return single and not own and not model.run_eagerly

    def set_model(self, model: tf.keras.Model) -> None:
        """Makes the model's functions with a loop over a variable number of steps."""
        super().set_model(model)
        self._steps, self._set, self._is_traced = 1, 0, False
        self._run(2)
        _make_loops(model)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Sets the number again: tf-keras changes it for an epoch's last execution."""
        self._set = 0
        self._run(self._fitting())

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Records the time and step at which an execution begins."""
        self._begun = (self._clock(), self._position.step)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Chooses the steps of the next execution, at most double the last number."""
        begun, step = self._begun
        pace = (self._clock() - begun) / max(self._position.step - step, 1)
        if self._is_traced:
            most = min(2 * self._steps, _MOST_STEPS)
            self._steps = max(1, min(most, int(_SECONDS / max(pace, 1e-6))))
        self._is_traced = True
        self._run(self._fitting())

    def _fitting(self) -> int:
        return int(min(self._steps, self._until_due(self._position.step)))

    def _run(self, steps: int) -> None:
        if steps != self._set:
            self.model.steps_per_execution = self._set = steps
