"""Evaluates a model with variables on parameter servers, on all its workers.

Each of n workers reads every n-th batch of the evaluation split. The answers are
computed side by side; one worker at a time adds to the metrics, which are on the
servers, too. No step of training runs meanwhile, so all rows meet the same weights.
With one worker the sums have the order, and so the digits, of one device.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from strategos.components.trainer.compat import compiled, keras3
from strategos.components.trainer.loop.servers import update_lock

_STEPS = 8  # of a worker between two reports


class WorkerBatches:
    """The evaluation batches of each worker, read by that worker.

    Args:
      feed: Called as `feed(pipeline=worker)` in a function that runs on that worker.
        Returns its batches of one pass after the other: of n workers, worker 0 gets
        batches 0, n, 2n, … of all passes in a row.
      steps: Batches of a pass.
      workers: Number of workers.

    Attributes:
      workers: The numbers of all workers.
    """

    def __init__(
        self, feed: Callable[..., tf.data.Dataset], *, steps: int, workers: int
    ):
        self._feed, self._steps, self.workers = feed, steps, range(workers)
        self._strategy = tf.distribute.get_strategy()
        self._iterators: list[Any] = []
        self._begun = 0  # batches of all passes so far

    def begin_pass(self) -> list[int]:
        """Begins a pass; returns the worker of each batch, in the order of batches."""
        if not self._iterators:
            self._iterators = list(map(self._iterator, self.workers))
        first, self._begun = self._begun, self._begun + self._steps
        return [batch % len(self.workers) for batch in range(first, self._begun)]

    @contextlib.contextmanager
    def on(self, worker: int) -> Iterator[Any]:
        """Runs the `with` block's operations on a worker; yields its iterator."""
        with self._strategy.scope(), tf.device(_device(worker)):
            yield self._iterators[worker]

    def _iterator(self, worker: int) -> Any:
        with tf.device(_device(worker)):
            feed = tf.function(lambda: self._feed(pipeline=worker), autograph=False)
            return iter(feed())


class SharedEvaluation:
    """The evaluations of one training, called in the scope of its strategy.

    Args:
      model: A compiled model of either Keras, with variables on parameter servers.
      batches: The batches of all workers.
    """

    def __init__(self, model: tf.keras.Model, batches: WorkerBatches):
        self._model, self._batches = model, batches
        self._strategy = tf.distribute.get_strategy()
        self._test = _step(model, is_alone=len(batches.workers) == 1)
        self._run = self._several
        if not model.run_eagerly:
            self._run = tf.function(self._several, autograph=False)

    def run(self, hooks: tf.keras.callbacks.CallbackList) -> dict[str, float]:
        """Evaluates on all batches once.

        Args:
          hooks: The callbacks. They are called after some batches at a time.

        Returns:
          The metrics.
        """
        workers, owners = self._batches.workers, self._batches.begin_pass()
        hooks.on_test_begin()
        self._model.reset_metrics()
        *others, last = owners  # the last batch comes after all others
        left = [others.count(worker) for worker in workers]
        done = 0
        with concurrent.futures.ThreadPoolExecutor(len(workers)) as threads:
            while done < len(others):
                due = [min(_STEPS, steps) for steps in left]
                left = [steps - now for steps, now in zip(left, due, strict=True)]
                hooks.on_test_batch_begin(done)
                list(threads.map(self._take, workers, due))
                done += sum(due)
                hooks.on_test_batch_end(done - 1, self._logs({}))
        hooks.on_test_batch_begin(done)
        logs = self._logs(self._take(last, 1))
        hooks.on_test_batch_end(done, logs)
        hooks.on_test_end(logs)
        return logs

    def _take(self, worker: int, steps: int) -> dict[str, Any]:
        """Evaluates on some batches of a worker; the logs of the last one."""
        if not steps:
            return {}
        with self._batches.on(worker) as batches:
            return self._run(batches, tf.constant(steps))

    def _several(self, batches: Any, steps: tf.Tensor) -> dict[str, Any]:
        def one(number: tf.Tensor) -> tuple[tf.Tensor]:
            self._one(batches)
            return (number + 1,)

        tf.while_loop(lambda number: number < steps - 1, one, [tf.constant(0)])
        return self._one(batches)

    def _one(self, batches: Any) -> dict[str, Any]:
        logs = self._strategy.run(self._test, args=next(batches))
        local = self._strategy.experimental_local_results
        return {name: local(value)[0] for name, value in logs.items()}

    def _logs(self, logs: dict[str, Any]) -> dict[str, float]:
        """The metrics, or the other logs of a `test_step` of the model's own."""
        metrics = dict(self._model.get_metrics_result())
        is_own = logs and logs.keys() != metrics.keys()
        return tf.nest.map_structure(_plain, logs if is_own else metrics)


def _plain(value: Any) -> Any:
    """A metric's result as a number, or an array of one value for each class."""
    array = np.asarray(value)
    return array if array.ndim else array.item()


def _device(worker: int) -> str:
    return f"/job:worker/replica:0/task:{worker}"


def _step(model: tf.keras.Model, *, is_alone: bool) -> Callable[..., dict[str, Any]]:
    """Answers a batch and adds to the metrics, one worker at a time.

    Args:
      model: The compiled model.
      is_alone: Whether there is only one worker, perhaps with an optimizer without
        counter, which has no lock.
    """
    if is_alone:
        return lambda *batch: dict(model.test_step(batch))
    locked = update_lock.lock_of(model.optimizer)
    # A layer with metrics may add to them where it answers.
    in_layers = bool(compiled.metrics_in_layers(model))
    adds = in_layers or keras3.is_overridden(model, "test_step")

    def test(*batch: Any) -> dict[str, Any]:
        if adds:
            with locked([]):
                return dict(model.test_step(batch))
        outputs, measure = compiled.answered(model, batch)
        with locked(tf.nest.flatten(outputs, expand_composites=True)):
            return dict(measure())

    return test
