"""How a compiled model of either Keras takes its steps, on replicas or on servers.

A tf-keras model makes the functions of its steps itself, by the public methods
`make_train_function` and `make_test_function`, which it may override. Keras 3's own
functions fail between workers, and on several replicas of one process they clip, check
and evaluate each replica apart. So a step of Keras 3 is a `strategy.run` of the model's
`train_step` or `test_step`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import tensorflow as tf

from strategos.components.trainer.compat import keras3, keras3_replicas
from strategos.components.trainer.data.parts import rows_of
from strategos.components.trainer.loop.servers import update_lock
from strategos.components.trainer.model.context import TrainingContext

Logs = dict[str, Any]


class Steps(Protocol):
    """The steps of a model, of training or of an evaluation."""

    def __call__(self, batches: Iterator[Any], most: int) -> tuple[Any, int]:
        """Takes `model.steps_per_execution` steps, or fewer.

        Args:
          batches: The batches.
          most: The most steps to take.

        Returns:
          The metrics over all replicas since their last reset, under parameter servers
          a future result; and the steps taken.
        """

    def resolved(self, logs: Any) -> Logs:
        """The metrics at the end of an epoch, given the logs of the last call."""


def of_training(context: TrainingContext, model: Any, *, scheduled: bool) -> Steps:
    """The training steps of a model.

    Args:
      context: The training context.
      model: The compiled model, in the scope of its strategy.
      scheduled: Whether workers take the steps that a coordinator schedules.
    """
    if not keras3.is_model(model):
        model.train_function = model.make_train_function()
        kind = _ScheduledFunction if scheduled else _KerasFunction
        return kind(model, model.train_function)
    if scheduled:
        return _Scheduled(model)
    size, replicas = context.global_batch_size, context.replicas
    is_uneven = size % replicas or context.rows_per_epoch % size % replicas

    def train(*batch: Any) -> Any:
        rows = rows_of(batch[1]) if is_uneven else None
        with keras3_replicas.weighted(rows):
            return model.train_step(batch)

    return _Replicas(model, train)


def of_evaluation(model: Any) -> Steps:
    """The evaluation steps of a model.

    Args:
      model: The compiled model, in the scope of its strategy.
    """
    if keras3.is_model(model):
        return _Replicas(model, lambda *batch: model.test_step(batch))
    model.test_function = model.make_test_function()
    return _KerasFunction(model, model.test_function)


class _KerasFunction:
    """Calls a function that a tf-keras model has made.

    Args:
      model: The compiled model.
      function: Takes the iterator of batches, and returns the logs.
    """

    def __init__(self, model: Any, function: Callable[[Iterator[Any]], Logs]):
        self._model, self._function = model, function

    def __call__(self, batches: Iterator[Any], most: int) -> tuple[Any, int]:
        """See `Steps`."""
        steps = int(self._model.steps_per_execution.numpy())
        if steps <= most:
            return self._call(batches), steps
        with self._set(most):
            return self._call(batches), most

    def resolved(self, logs: Any) -> Logs:
        """See `Steps`; a step of the model's own may return other values."""
        try:
            metrics = self._model.get_metrics_result()
        except TypeError:  # of metrics that have no `result` of one value
            return logs
        return metrics if metrics.keys() == logs.keys() else logs

    def _call(self, batches: Iterator[Any]) -> Any:
        return self._function(batches)

    @contextlib.contextmanager
    def _set(self, steps: int) -> Iterator[None]:
        """Takes another number of steps per execution inside the `with` block."""
        before = int(self._model.steps_per_execution.numpy())
        self._model.steps_per_execution = steps
        try:
            yield
        finally:
            self._model.steps_per_execution = before


class _ScheduledFunction(_KerasFunction):
    """Schedules a function that a tf-keras model has made."""

    def __init__(self, model: Any, function: Callable[[Iterator[Any]], Logs]):
        super().__init__(model, function)
        strategy = tf.distribute.get_strategy()
        self._coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)

    def resolved(self, logs: Any) -> Logs:
        """See `Steps`."""
        self._coordinator.join()
        return super().resolved(logs.fetch())

    def _call(self, batches: Iterator[Any]) -> Any:
        return self._coordinator.schedule(self._function, args=(batches,))

    @contextlib.contextmanager
    def _set(self, steps: int) -> Iterator[None]:
        """Waits: a scheduled function reads the number of steps when it is run."""
        self._coordinator.join()
        with super()._set(steps):
            yield
            self._coordinator.join()


class _Replicas:
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
        """See `Steps`."""
        steps = min(int(self._model.steps_per_execution), most)
        if steps == 1:
            return dict(self._one(batches)), 1
        return dict(self._several(batches, tf.constant(steps))), steps

    def resolved(self, logs: Any) -> Logs:
        """See `Steps`."""
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


class _Scheduled(_Replicas):
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
        """See `Steps`."""
        steps = min(int(self._model.steps_per_execution), most)
        if steps == 1:
            return self._coordinator.schedule(self._one, args=(batches,)), 1
        several = batches, tf.constant(steps)
        return self._coordinator.schedule(self._several, args=several), steps

    def resolved(self, logs: Any) -> Logs:
        """See `Steps`."""
        self._coordinator.join()
        logs, metrics = logs.fetch(), dict(self._model.get_metrics_result())
        # A `compute_metrics` of the model's own may return other values.
        return metrics if metrics.keys() == logs.keys() else logs

    def _run_one(self, batches: Iterator[Any]) -> Logs:
        return self._run(batches)  # measured under the lock
