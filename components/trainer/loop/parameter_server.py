"""Asynchronous training: each worker takes steps at its own pace.

The chief, here called the coordinator, holds no data and computes no gradients. It
schedules steps; a free worker takes one, reads the variables from the parameter
servers, and writes its gradients back to them. No worker waits for the others, so the
order of updates, and with it the result, differs from run to run; with one worker the
order, and so every digit of the result, is that of one device.

Exact nevertheless are the checkpoints (taken when no step is running), and the
evaluation after each epoch (in the coordinator, on an ordinary copy of the model).
"""

from __future__ import annotations

import collections
import concurrent.futures
import functools
import logging
import time
from collections.abc import Callable
from typing import Any, NoReturn

import tensorflow as tf

from strategos.components.errors import required
from strategos.components.trainer.cluster.environment import ClusterSpec
from strategos.components.trainer.compat import (
    compiled,
    optimizers,
    partitioned_variables,
)
from strategos.components.trainer.gang import heartbeat, preemption
from strategos.components.trainer.loop.callbacks import Hooks
from strategos.components.trainer.loop.position import Position

STEPS_AHEAD = 8
"""Steps per worker that are scheduled before the oldest of them has ended."""

_LOOK_SECONDS = 0.2

Feed = Callable[..., tf.data.Dataset]


def serve(cluster: ClusterSpec) -> NoReturn:
    """Runs this task's server, which executes the coordinator's operations.

    Never returns: the gang ends this process when the coordinator is done. SIGTERM is
    forwarded to the coordinator, which needs this server to save a checkpoint.

    Args:
      cluster: All tasks, and which of them this process is.
    """
    preemption.install_handler()
    config = tf.compat.v1.ConfigProto()
    if tf.config.list_physical_devices("GPU"):
        config.gpu_options.allow_growth = True
        config.gpu_options.visible_device_list = "0"  # a worker has one replica
    task = required(cluster.task)
    server = tf.distribute.Server(
        tf.train.ClusterSpec(dict(cluster.addresses)),
        job_name=task.type,
        task_index=task.index,
        protocol="grpc",
        config=config,
    )
    while not preemption.requested():
        time.sleep(_LOOK_SECONDS)
    heartbeat.current().preempted()
    server.join()
    raise AssertionError  # the call never returns


def distributed(feed: Feed, workers: int) -> Any:
    """The input of `fit`, with a separate input pipeline for each worker.

    Args:
      feed: Called as `feed(pipelines=…, pipeline=…)` for each worker, usually
        `functools.partial(split.remote, …)`. It must be infinite: a worker that is
        faster than the others takes more than its share.
      workers: Number of workers.
    """
    index = tf.distribute.coordinator.experimental_get_current_worker_index

    def of_worker(_: tf.distribute.InputContext) -> tf.data.Dataset:
        return feed(pipelines=workers, pipeline=index())

    return tf.keras.utils.experimental.DatasetCreator(of_worker)


def follow(model: tf.keras.Model, ordinary: tf.keras.Model) -> None:
    """Gives `model` the weights of an ordinary model, and its way of listing them.

    An initializer that is called per part of a split table gives other values than for
    the whole table. And callbacks that keep weights get whole tables, as everywhere
    else.

    Args:
      model: Its variables are on parameter servers.
      ordinary: Built by the same function outside of any strategy.
    """
    partitioned_variables.use_tables(model)
    model.set_weights(ordinary.get_weights())
    # Split tables can only be restored once they exist, not while they are created.
    optimizers.build(model, own=True)
    for line in _placement(compiled.variables(model)):
        logging.info(line)


def _placement(variables: list[tf.Variable]) -> list[str]:
    """Which server holds which variables, as log lines."""
    held: collections.Counter[str] = collections.Counter()
    for variable in variables:
        count = variable.shape.num_elements() or 0  # None: what `adapt` has counted
        size = count * variable.dtype.size
        held[_server_of(variable)] += size
    lines = [f"{server} holds {held[server]:,} bytes" for server in sorted(held)]
    for table in partitioned_variables.tables(variables):
        if len(table) > 1:
            parts = (f"{part.shape[0]:,} rows on {_server_of(part)}" for part in table)
            name = partitioned_variables.name(table).removesuffix(":0")
            lines.append(f"{name} is split: {', '.join(parts)}")
    return lines


def _server_of(variable: tf.Variable) -> str:
    device = tf.DeviceSpec.from_string(variable.device)
    return f"{device.job}-{device.task}"


class AsyncHooks(Hooks):
    """Callbacks of a run whose steps end some time after they were scheduled.

    Callbacks are called for a step when it has ended, in the order in which steps were
    scheduled, with plain numbers; so batch-level callbacks work, which Keras rejects
    under this strategy. A few steps per worker are scheduled ahead, not a whole epoch.

    Args:
      callbacks: The callbacks, in the order in which they are called.
      model: The model that the callbacks get.
      position: The position of training.
      epochs: Passes over the data.
      workers: Number of workers.
      ordinary: A copy of the model outside of any strategy, to evaluate.
      evaluation: Batches to evaluate on after each epoch.
      pauses: Whether the callbacks need the model exactly as it is after a step, given
        the number of that step. Then all scheduled steps end before the callbacks are
        called.
    """

    def __init__(
        self,
        callbacks: list[tf.keras.callbacks.Callback],
        model: tf.keras.Model,
        position: Position,
        epochs: int,
        *,
        workers: int,
        ordinary: tf.keras.Model,
        evaluation: tf.data.Dataset,
        pauses: Callable[[int], bool],
    ):
        super().__init__(callbacks, model, position, epochs)
        self._check_timing = (
            False  # or Keras warns of slow callbacks: it times our waiting
        )
        strategy = model.distribute_strategy
        self._coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
        self._under_way: collections.deque[tuple[int, Any]] = collections.deque()
        self._most = STEPS_AHEAD * workers
        self._ordinary = ordinary
        self._evaluation = evaluation
        self._pauses = pauses

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Does nothing: the step is only scheduled, and has not begun."""

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Adds a step that was scheduled.

        Args:
          batch: Number of the batch in this call of `fit`.
          logs: The step's future result.
        """
        self._under_way.append((batch, logs))
        if self._pauses(self.step_of(batch)):
            self._coordinator.join()
            self._report_all()
        elif len(self._under_way) > self._most:
            self._report_oldest()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Waits for all steps and evaluates, so that callbacks get `val_…` too."""
        self._report_all()
        logs.update(self._evaluated())
        super().on_epoch_end(epoch, logs)

    def _report_all(self) -> None:
        while self._under_way:
            self._report_oldest()

    def _report_oldest(self) -> None:
        """Waits for the oldest scheduled step and calls the callbacks for it."""
        batch, result = self._under_way.popleft()
        logs = result.fetch()
        self._position.is_exact = not self._under_way
        super().on_train_batch_begin(batch)
        super().on_train_batch_end(batch, logs)

    def _evaluated(self) -> dict[str, float]:
        self._ordinary.set_weights(self.model.get_weights())
        evaluate = functools.partial(
            self._ordinary.evaluate,
            self._evaluation,
            callbacks=self,
            verbose=0,
            return_dict=True,
        )
        # In another thread, because this one is in the scope of the strategy.
        with concurrent.futures.ThreadPoolExecutor(1) as thread:
            found = thread.submit(evaluate).result()
        return {f"val_{name}": value for name, value in found.items()}

    def _disallow_batch_hooks_in_ps_strategy(self) -> None:
        """Allows batch-level callbacks: they are called with plain numbers here."""
