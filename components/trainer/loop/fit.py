"""Training by Keras `fit`, over one stream of batches for all epochs."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from strategos.components.trainer.compat import keras3, optimizers
from strategos.components.trainer.compat.callbacks import TensorCallback
from strategos.components.trainer.loop.callbacks import Hooks
from strategos.components.trainer.loop.position import Position
from strategos.components.trainer.model.context import TrainingContext

_OF_FIT = (
    *("fit", "make_train_function", "train_step", "make_test_function", "test_step"),
    *("compute_metrics", "get_metrics_result"),
)
_MOST_STEPS = 32
_SECONDS = 0.05  # of an execution; progress, SIGTERM and checkpoints wait for its end


def fit(
    model: tf.keras.Model,
    context: TrainingContext,
    position: Position,
    *,
    feed: Callable[[int], Any],
    evaluation: Any,
    evaluation_steps: int | None,
    hooks: Hooks,
) -> None:
    """Trains `model` from `position` to the end, evaluating after each epoch.

    Starting in the middle of an epoch takes two calls of Keras's `fit`, which runs the
    same number of steps in each epoch. An optimizer's work at the end of training is
    done once, after the last call, and also if no step is left.

    Args:
      model: A compiled model, in the scope of its strategy.
      context: The facts of this run.
      position: Where training starts; updated after each step.
      feed: Returns the stream of batches from a given step on.
      evaluation: Batches to evaluate on after each epoch; None if the hooks evaluate.
      evaluation_steps: Number of batches of `evaluation`.
      hooks: The callbacks.
    """
    is_keras3 = keras3.is_model(model)
    if is_keras3:
        keras3.divide_epoch(model, context.steps_per_epoch)
    elif int(model.steps_per_execution.numpy()) > 1:
        _make_loops(model)
    hooks.begin()
    with optimizers.unfinalized(model.optimizer):
        while position.epoch < context.epochs and not model.stop_training:
            epoch, offset = position.epoch, position.offset
            model.fit(
                feed(position.step),
                initial_epoch=epoch,
                epochs=epoch + 1 if offset else context.epochs,
                steps_per_epoch=context.steps_per_epoch - offset,
                validation_data=evaluation,
                # Keras 3 restarts the iterator only if it finds the end itself.
                validation_steps=None if is_keras3 else evaluation_steps,
                # In a list, Keras 3 treats the hooks as one callback, called in order.
                callbacks=[hooks] if is_keras3 else hooks,
                verbose=0,
            )
    optimizers.finalize(model)
    hooks.end()


def _make_loops(model: tf.keras.Model) -> None:
    """Makes the functions of a model that runs several steps per execution.

    tf-keras makes each of them once, without a loop if the number is 1 at that moment,
    as it is in an epoch with one step left; later it counts more steps than are run.
    """
    model.make_train_function()
    model.make_test_function()


class StepsPerExecution(TensorCallback):
    """Chooses how many steps one call of TensorFlow runs, while tf-keras's `fit` runs.

    From call to call, Python takes half a millisecond, as much as a step of a small
    model. All numbers of steps run the same graph, so the weights do not depend on it.

    Args:
      position: The position of training.
      until_due: Returns the steps after which a callback has to see the model, given
        the steps done.
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
        """Whether `fit` runs as tf-keras does, and the user left the number to others.

        A step of the model's own may return what a loop cannot, such as a string.

        Args:
          model: A compiled model.
        """
        if not isinstance(model, tf.keras.Model):  # Keras 3 unrolls the steps
            return False
        own = [x for x in _OF_FIT if keras3.is_overridden(model, x)]
        single = int(model.steps_per_execution.numpy()) == 1
        return single and not own and not model.run_eagerly

    def set_model(self, model: tf.keras.Model) -> None:
        """Lets the model loop over steps, as many as are set later."""
        super().set_model(model)
        self._run(2)
        _make_loops(model)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Sets the number again: tf-keras has changed it for the last execution."""
        self._set = 0
        self._run(self._fitting())

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Records when an execution begins."""
        self._begun = (self._clock(), self._position.step)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Chooses the number for the next execution: at most twice the last one."""
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
