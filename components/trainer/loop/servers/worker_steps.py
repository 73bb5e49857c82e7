"""The steps of a user's own loop, on workers that share variables on servers."""

from __future__ import annotations

import concurrent.futures
import functools
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from strategos.components.errors import UserError
from strategos.components.trainer.compat import keras3
from strategos.components.trainer.data.parts import rows_of
from strategos.components.trainer.gang import heartbeat
from strategos.components.trainer.loop.own_steps import Measured, Step, plain, scalars
from strategos.components.trainer.loop.servers import update_lock
from strategos.components.trainer.loop.servers.async_hooks import AsyncHooks
from strategos.components.trainer.loop.servers.evaluation import WorkerBatches

Add = Callable[[int, dict[str, float]], dict[str, float]]

_COUNTER = re.compile(r"(^|/)iter(ation)?(_\d+)?(:0)?$")


class WorkerSteps:
    """Workers that take steps at their own pace, each on batches of its own.

    The model's `fit`, `evaluate` and `predict` are replaced by errors that say so.

    Args:
      model: The workers' model.
      hooks: The callbacks of the training.
      batches: The evaluation batches of all workers.
    """

    def __init__(
        self, model: tf.keras.Model, hooks: AsyncHooks, batches: WorkerBatches
    ):
        self._model, self._hooks, self._batches = model, hooks, batches
        strategy = tf.distribute.get_strategy()
        self._coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
        self._functions: dict[tuple[Step, bool], Any] = {}
        for name in ("fit", "evaluate", "predict"):
            setattr(model, name, functools.partial(_reject, name))

    def train(self, step: Step, batches: Any, left: int, add: Add) -> None:
        """Schedules steps, and waits until all have ended and been reported.

        Args:
          step: The user's step.
          batches: The iterators of all workers.
          left: Number of steps.
          add: Adds the rows and values of a step to those of the epoch, and returns
            the means so far, for the callbacks. Called in the order of scheduling.
        """
        locks = len(self._batches.workers) > 1
        function = self._function(step, locks=locks)
        for number in range(left):
            result = self._coordinator.schedule(function, args=(batches,))
            self._hooks.on_train_batch_end(number, _Result(result, add))
        self._hooks.finish_steps()

    def evaluated(self, step: Step) -> Iterator[Measured]:
        """Yields what a step measures on each evaluation batch, in their order.

        Args:
          step: The user's step.
        """
        owners, workers = self._batches.begin_pass(), self._batches.workers
        take = functools.partial(self._take, self._function(step))
        shares = [owners.count(worker) for worker in workers]
        with concurrent.futures.ThreadPoolExecutor(len(workers)) as threads:
            measured = list(map(iter, threads.map(take, workers, shares)))
        yield from (next(measured[worker]) for worker in owners)

    def _take(self, function: Any, worker: int, steps: int) -> list[Measured]:
        measured = []
        with self._batches.on(worker) as batches:
            for _ in range(steps):
                rows, values = function(batches)
                measured.append((int(rows), plain(values)))
                heartbeat.current().alive()
        return measured

    def _function(self, step: Step, *, locks: bool = False) -> Any:
        """The step as a function of a worker's iterator, traced once.

        Args:
          step: The user's step.
          locks: Whether one worker at a time may update variables.
        """
        key = step, locks
        if key not in self._functions:
            is_traced = isinstance(step, tf.types.experimental.GenericFunction)
            inner: Any = step if is_traced else tf.function(step)
            locked = update_lock.lock_updates(self._model) if locks else []

            def take(batches: Any) -> tuple[tf.Tensor, dict[str, Any]]:
                batch = next(batches)
                if locks:
                    variables = inner.get_concrete_function(batch).variables
                    _check_locked(self._model, variables, locked)
                return rows_of(batch[1]), scalars(inner(batch))

            self._functions[key] = tf.function(take, autograph=False)
        return self._functions[key]


def _reject(name: str, *_: Any, **__: Any) -> None:
    """Takes the place of a method with which Keras fails on a worker."""
    raise UserError(
        f"`run_fn`: `context.model.{name}` does not read a dataset on the workers of "
        "parameter_server",
        remedy="Call `loop.train(step)` or `loop.evaluate(step)`, where `step` takes a "
        "batch: they work under every strategy.",
    )


class _Result:
    """The future result of a step, which adds to the means when it is fetched."""

    def __init__(self, result: Any, add: Add):
        self._result, self._add = result, add

    def fetch(self) -> dict[str, float]:
        """Waits for the step; returns the means over the epoch so far."""
        rows, values = self._result.fetch()
        return self._add(int(rows), plain(values))


def _check_locked(
    model: tf.keras.Model, variables: Sequence[tf.Variable], locked: Sequence[Any]
) -> None:
    """Rejects a step with the counter of an optimizer that has no lock.

    Args:
      model: The workers' model, which may have variables of such a name.
      variables: All variables of the step.
      locked: The optimizers of the model, which are locked.

    Raises:
      UserError: The step uses another optimizer.
    """
    parts = tf.train.TrackableView(model).descendants()
    known = [keras3.of_tensorflow(each.iterations).handle for each in locked]
    known += [each.handle for each in parts if isinstance(each, tf.Variable)]
    for variable in variables:
        is_known = any(variable.handle is each for each in known)
        if _COUNTER.search(variable.name) and not is_known:
            raise UserError(
                "`run_fn`: the step uses an optimizer that is no part of the model: "
                "no checkpoint has its state, and its updates would mix with those of "
                "other workers",
                remedy="Keep it in an attribute: `context.model.NAME = OPTIMIZER`.",
            )
