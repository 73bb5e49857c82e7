"""Trains a compiled model of either Keras, as `fit` does, over one stream of batches.

Keras's own `fit` would be called for each part of a training: the rest of the epoch at
which it resumes, whole epochs, a shorter last one. Here an epoch is what is left of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf
import tf_keras

from strategos.components.trainer.compat import (
    compiled,
    keras3,
    keras3_replicas,
    optimizers,
)
from strategos.components.trainer.compat.callbacks import TensorCallback
from strategos.components.trainer.loop import steps
from strategos.components.trainer.loop.callbacks import Hooks
from strategos.components.trainer.loop.position import Position
from strategos.components.trainer.loop.steps import Logs
from strategos.components.trainer.model.context import TrainingContext

_OF_STEPS = (
    *("make_train_function", "train_step", "make_test_function", "test_step"),
    *("compute_metrics", "get_metrics_result"),
)
_MOST_STEPS = 32
_SECONDS = 0.05  # of an execution; progress, SIGTERM and checkpoints wait for its end


def fit(
    context: TrainingContext,
    model: Any,
    position: Position,
    *,
    end_epoch: int,
    feed: Callable[[int], Any],
    evaluation: Any,
    evaluation_steps: int | None,
    hooks: Hooks,
) -> None:
    """Trains `model` from `position` to `end_epoch`, evaluating after each epoch.

    Callbacks are called as by Keras's `fit`, with the metrics of all replicas. The
    optimizer is finalized (e.g. `use_ema`) once, also if no step is left.

    Args:
      context: The training context.
      model: A compiled model, in the scope of its strategy.
      position: Position at which training starts; updated after each step.
      end_epoch: The epoch after the last one, counted from 0.
      feed: Returns the stream of batches from a given step on, which has no end.
      evaluation: Batches to evaluate on after each epoch; None under parameter
        servers: the hooks evaluate.
      evaluation_steps: Number of batches of `evaluation`.
      hooks: The callbacks.
    """
    if keras3.is_model(model):
        keras3_replicas.share_variables(model)
    compiled.count_steps_from(model, position.step)
    epochs = _Epochs(context, model, position, hooks, scheduled=evaluation is None)
    batches = iter(feed(position.step))
    while position.epoch < end_epoch and not model.stop_training:
        epoch = position.epoch
        logs = epochs.train(batches)
        if evaluation is not None:
            measured = epochs.evaluate(iter(evaluation), evaluation_steps or 0)
            logs |= {f"val_{name}": value for name, value in measured.items()}
        hooks.on_epoch_end(epoch, logs)
    optimizers.finalize(model)


class _Epochs:
    """Epochs of training and evaluation of one model."""

    def __init__(
        self,
        context: TrainingContext,
        model: Any,
        position: Position,
        hooks: Hooks,
        *,
        scheduled: bool,
    ):
        self._model, self._position, self._hooks = model, position, hooks
        self._train = steps.of_training(context, model, scheduled=scheduled)
        self._test = None if scheduled else steps.of_evaluation(model)

    def train(self, batches: Iterator[Any]) -> Logs:
        """Takes the steps that are left in the epoch.

        Args:
          batches: The stream of batches.

        Returns:
          The metrics of the epoch.
        """
        model, hooks = self._model, self._hooks
        epoch, left = self._position.epoch, self._position.left_in_epoch
        model.reset_metrics()
        hooks.on_epoch_begin(epoch)
        done = 0
        while True:
            step = self._position.step
            with tf.profiler.experimental.Trace("train", step_num=step, _r=1):
                hooks.on_train_batch_begin(done)
                logs, taken = self._train(batches, left - done)
                done += taken
                hooks.on_train_batch_end(done - 1, logs)
            if done == left or model.stop_training:
                return _plain(self._train.resolved(logs))

    def evaluate(self, batches: Iterator[Any], left: int) -> Logs:
        """Evaluates on all batches.

        Args:
          batches: The batches of the evaluation split.
          left: Their number.

        Returns:
          The metrics.
        """
        assert self._test is not None
        hooks, done = self._hooks, 0
        compiled.restart_test_steps(self._model)
        hooks.on_test_begin()
        self._model.reset_metrics()
        logs: Logs = {}
        while done < left:
            hooks.on_test_batch_begin(done)
            logs, taken = self._test(batches, left - done)
            done += taken
            hooks.on_test_batch_end(done - 1, logs)
        measured = _plain(self._test.resolved(logs))
        hooks.on_test_end(measured)
        return measured


def _plain(logs: Logs) -> Logs:
    """The logs with numbers and arrays in place of tensors, as `fit` returns them."""

    def plain(value: Any) -> Any:
        if not isinstance(value, tf.Tensor):
            return value
        array = value.numpy()
        return array.item() if array.ndim == 0 else array

    return {name: tf.nest.map_structure(plain, value) for name, value in logs.items()}


class StepsPerExecution(TensorCallback):
    """Chooses the steps per execution of a tf-keras model.

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
        own = [x for x in _OF_STEPS if keras3.is_overridden(model, x)]
        single = int(model.steps_per_execution.numpy()) == 1
        return single and not own and not model.run_eagerly

    def set_model(self, model: tf.keras.Model) -> None:
        """Makes the model's functions with a loop over a variable number of steps.

        tf-keras makes each function once, and without a loop if the number is 1 then.
        """
        super().set_model(model)
        self._steps, self._set, self._is_traced = 1, 0, False
        self._run(2)
        model.make_train_function()
        model.make_test_function()

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Sets the steps of the first execution."""
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
