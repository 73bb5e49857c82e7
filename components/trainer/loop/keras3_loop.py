"""Trains a Keras 3 model under `tf.distribute`, as its `fit` does on one device.

Keras 3's own `fit` fails between workers, and on several replicas of one process it
clips, checks and evaluates each replica apart. Here each step is a `strategy.run` of
the model's `train_step`, over one stream of batches for all epochs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from strategos.components.trainer.compat import keras3, keras3_replicas, optimizers
from strategos.components.trainer.data.parts import rows_of
from strategos.components.trainer.loop.callbacks import Hooks
from strategos.components.trainer.loop.position import Position
from strategos.components.trainer.loop.servers import update_lock
from strategos.components.trainer.model.context import TrainingContext

Logs = dict[str, Any]


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
      model: A compiled Keras 3 model, in the scope of its strategy.
      position: Position at which training starts; updated after each step.
      end_epoch: The epoch after the last one, counted from 0.
      feed: Returns the stream of batches from a given step on, which has no end.
      evaluation: Batches to evaluate on after each epoch; None under parameter
        servers: the hooks evaluate.
      evaluation_steps: Number of batches of `evaluation`.
      hooks: The callbacks.
    """
    keras3_replicas.share_variables(model)
    loop = _Loop(model, context, position, hooks, scheduled=evaluation is None)
    batches = iter(feed(position.step))
    while position.epoch < end_epoch and not model.stop_training:
        epoch = position.epoch
        logs = loop.train(batches)
        if evaluation is not None:
            measured = loop.evaluate(iter(evaluation), evaluation_steps or 0)
            logs |= {f"val_{name}": value for name, value in measured.items()}
        hooks.on_epoch_end(epoch, logs)
    optimizers.finalize(model)


class _Loop:
    """Epochs of training and evaluation of one model."""

    def __init__(
        self,
        model: Any,
        context: TrainingContext,
        position: Position,
        hooks: Hooks,
        *,
        scheduled: bool,
    ):
        self._model, self._position, self._hooks = model, position, hooks
        size, replicas = context.global_batch_size, context.replicas
        is_uneven = size % replicas or context.rows_per_epoch % size % replicas

        def train(*batch: Any) -> Any:
            rows = rows_of(batch[1]) if is_uneven else None
            with keras3_replicas.weighted(rows):
                return model.train_step(batch)

        self._train = _Scheduled(model) if scheduled else _Steps(model, train)
        self._test = _Steps(model, lambda *batch: model.test_step(batch))

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
            hooks.on_train_batch_begin(done)
            logs, steps = self._train(batches, left - done)
            done += steps
            hooks.on_train_batch_end(done - 1, logs)
            if done == left or model.stop_training:
                return self._train.resolved(logs)

    def evaluate(self, batches: Iterator[Any], left: int) -> Logs:
        """Evaluates on all batches.

        Args:
          batches: The batches of the evaluation split.
          left: Their number.

        Returns:
          The metrics.
        """
        hooks, done = self._hooks, 0
        hooks.on_test_begin()
        self._model.reset_metrics()
        logs: Logs = {}
        while done < left:
            hooks.on_test_batch_begin(done)
            logs, steps = self._test(batches, left - done)
            done += steps
            hooks.on_test_batch_end(done - 1, logs)
        hooks.on_test_end(logs)
        return dict(logs)


class _Steps:
    """Runs one or more steps of all replicas as one function of TensorFlow.

    Args:
      model: The compiled model.
      step: The step of a replica, given features, labels and perhaps weights.
    """

    def __init__(self, model: Any, step: Callable[..., Any]):
        self._model = model
        self._step = tf.function(step, jit_compile=True) if model.jit_compile else step
        self._strategy = tf.distribute.get_strategy()
        run = self._run_one, self._run_several
        if not model.run_eagerly:
            run = tuple(map(tf.function, run))
        self._one, self._several = run

    def __call__(self, batches: Iterator[Any], most: int) -> tuple[Any, int]:
        """Takes `model.steps_per_execution` steps, or fewer.

        Args:
          batches: The batches.
          most: The most steps to take.

        Returns:
          The metrics over all replicas since their last reset, and the steps taken.
        """
        steps = min(int(self._model.steps_per_execution), most)
        if steps == 1:
            return dict(self._one(batches)), 1
        return dict(self._several(batches, tf.constant(steps))), steps

    def resolved(self, logs: Any) -> Logs:
        """The metrics, given the logs of the last call."""
        return logs

    def _run_several(self, batches: Iterator[Any], steps: tf.Tensor) -> Logs:
        def again(number: tf.Tensor) -> tf.Tensor:
            self._run(batches)
            return (number + 1,)

        tf.while_loop(lambda number: number < steps - 1, again, [tf.constant(0)])
        return self._run_one(batches)

    def _run_one(self, batches: Iterator[Any]) -> Logs:
        logs = self._run(batches)
        metrics = self._model.get_metrics_result()
        # A `train_step` of the model's own may return other values.
        return metrics if metrics.keys() == logs.keys() else logs

    def _run(self, batches: Iterator[Any]) -> Logs:
        logs = self._strategy.run(self._step, args=next(batches))
        local = self._strategy.experimental_local_results
        return {name: local(value)[0] for name, value in logs.items()}


class _Scheduled(_Steps):
    """Schedules training steps for workers that share variables on servers.

    Keras 3 writes metrics as their old value plus an increment, as optimizers write
    weights. So one worker at a time counts metrics and applies gradients; the gradients
    are computed before.

    Args:
      model: The compiled model, with all its variables.
    """

    def __init__(self, model: Any):
        locked = update_lock.lock_of(model.optimizer)

        def train(*batch: Any) -> Logs:
            gradients, measure = keras3.gradients_alone(model, batch)
            with locked([each for each in gradients if each is not None]):
                model.optimizer.apply(gradients, model.trainable_weights)
                return measure()

        super().__init__(model, train)
        self._coordinator = tf.distribute.coordinator.ClusterCoordinator(self._strategy)

    def __call__(self, batches: Iterator[Any], most: int) -> tuple[Any, int]:
        """Schedules steps; returns their future metrics, and their number."""
        steps = min(int(self._model.steps_per_execution), most)
        if steps == 1:
            return self._coordinator.schedule(self._one, args=(batches,)), 1
        several = batches, tf.constant(steps)
        return self._coordinator.schedule(self._several, args=several), steps

    def resolved(self, logs: Any) -> Logs:
        """The metrics of all steps, once they have ended."""
        self._coordinator.join()
        return dict(self._model.get_metrics_result())

    def _run_one(self, batches: Iterator[Any]) -> Logs:
        return self._run(batches)  # measured under the lock
