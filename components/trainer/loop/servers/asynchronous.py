"""Asynchronous training: each worker takes steps at its own pace.

The chief, here called the coordinator, holds no data and computes no gradients. It
schedules steps. A free worker takes a step, reads the variables from the parameter
servers, and applies its gradients there. No worker waits for the others, so the order
of updates, and with it the result, differs from run to run. With a single worker the
order, and so every digit of the result, equals training on one device.

Two things are exact in any case: checkpoints and the evaluation after each epoch, since
no step is running meanwhile. All workers evaluate.
"""

from __future__ import annotations

import collections
import functools
import logging
import time
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import tensorflow as tf
import tf_keras

from strategos.components.errors import required
from strategos.components.trainer.compat import (
    compiled,
    keras3,
    keras_names,
    optimizers,
    partitioned_variables,
)
from strategos.components.trainer.data.split import Split
from strategos.components.trainer.distribution.environment import ClusterSpec
from strategos.components.trainer.gang import heartbeat, preemption
from strategos.components.trainer.loop.callbacks import Hooks
from strategos.components.trainer.loop.checkpoint_callback import Keeper
from strategos.components.trainer.loop.model_builder import ModelBuilder
from strategos.components.trainer.loop.position import Position
from strategos.components.trainer.loop.servers import update_lock
from strategos.components.trainer.loop.servers.evaluation import SharedEvaluation
from strategos.components.trainer.model.comparison import structure

Callbacks = list[tf.keras.callbacks.Callback]

STEPS_AHEAD = 8
"""Most steps per worker that are scheduled and have not been reported yet."""

_LOOK_SECONDS = 0.2


def serve(cluster: ClusterSpec) -> NoReturn:
    """Runs this task's server, which executes the coordinator's operations.

    Never returns: the gang ends this process when the coordinator is done. On SIGTERM
    the server keeps running and reports the preemption by heartbeat: the coordinator
    needs the server to save a checkpoint.

    Args:
      cluster: All tasks, and the task of this process.
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


class Asynchronous:
    """The parts of an asynchronous training, with a second, ordinary model.

    The workers read examples, compute gradients and evaluate. The ordinary model, in
    the coordinator, gets the weights for the export. Only it reads the weights of
    `trainer.warm_start`: the workers' model starts from its weights.

    Args:
      builder: Builds both models, and has their examples.
      workers: Number of workers.
      batch_size: Rows of a batch.

    Attributes:
      wait: None: other processes wait for input.
    """

    def __init__(self, builder: ModelBuilder, workers: int, batch_size: int):
        self._builder, self._workers, self._batch_size = builder, workers, batch_size
        self.wait = None
        free_names = keras_names.mark()
        self._ordinary = builder.build()
        free_names()

    def model(self, phase_starts: Sequence[int]) -> tf.keras.Model:
        """The workers' model; called in the scope of the strategy.

        Args:
          phase_starts: `[0]`: this strategy trains in a single phase.
        """
        model = self._builder.build(phase_starts, warm=False)
        ours, ordinary = map(structure.of, (model, self._ordinary))
        structure.check(ours, ordinary, "for the workers", "for the coordinator")
        _follow(model, self._ordinary)
        if keras3.is_model(model):  # its steps are locked in `keras3_loop`
            keras3.build(model, self._builder.sample(model))
        elif self._workers > 1:
            update_lock.lock_updates(model)
        return model

    def hooks(
        self, keeper: Keeper, callbacks: Callbacks, model: tf.keras.Model, *others: Any
    ) -> AsyncHooks:
        """The hooks of the training, with the arguments of every `Hooks`."""
        split, workers = self._builder.evaluated, self._workers
        share = functools.partial(split.remote, epochs=None, pipelines=workers)
        feed = functools.partial(keras3.batches(model, share), self._batch_size)
        steps = split.steps(self._batch_size)
        return AsyncHooks(
            callbacks,
            model,
            *others,
            workers=workers,
            evaluate=SharedEvaluation(model, feed, steps=steps, workers=workers).run,
            pauses=keeper.is_due,
        )

    def feed(self, model: tf.keras.Model, **stream: Any) -> Any:
        """The input of `fit`, with a separate input pipeline for each worker.

        The streams have no end: a worker that is faster than the others takes more than
        its share.

        Args:
          model: The workers' model.
          **stream: The arguments of `Split.remote`, e.g. `first_step`.
        """
        examples = self._builder.examples
        assert isinstance(examples, Split)  # nobody divides files here
        whole = functools.partial(examples.remote, **stream, pipelines=self._workers)
        remote = keras3.batches(model, whole)
        index = tf.distribute.coordinator.experimental_get_current_worker_index

        def of_worker(*_: tf.distribute.InputContext) -> tf.data.Dataset:
            return remote(pipeline=index())

        if keras3.is_model(model):
            strategy = tf.distribute.get_strategy()
            coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
            return coordinator.create_per_worker_dataset(of_worker)
        return tf_keras.utils.experimental.DatasetCreator(of_worker)

    def evaluation(self, model: tf.keras.Model) -> tuple[Any, int | None]:
        """None: the hooks evaluate, on the workers."""
        return None, None

    def trained(
        self, model: tf.keras.Model
    ) -> tuple[tf.keras.Model, tf.distribute.Strategy | None]:
        """The ordinary model with the weights of the workers' model; no strategy."""
        self._ordinary.set_weights(model.get_weights())
        return self._ordinary, None


def _follow(model: tf.keras.Model, ordinary: tf.keras.Model) -> None:
    """Gives `model` the weights of an ordinary model, listed as whole tables.

    An initializer called for each part of a split table gives other values than one
    call for the whole table. `get_weights` returns whole tables, as under the other
    strategies, e.g. for callbacks that keep the best weights.

    Args:
      model: A model with variables on parameter servers.
      ordinary: A model of the same function, built outside of any strategy.
    """
    partitioned_variables.use_tables(model)
    model.set_weights(ordinary.get_weights())
    # Split tables can only be restored once they exist, not while they are created.
    optimizers.build(model, own=True)
    for line in _placement(compiled.variables(model)):
        logging.info(line)


def _placement(variables: list[tf.Variable]) -> list[str]:
    """Log lines: bytes that each server holds, and parts of split tables."""
    held: collections.Counter[str] = collections.Counter()
    for variable in map(keras3.of_tensorflow, variables):
        count = variable.shape.num_elements() or 0  # None: a count by `adapt`
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
      evaluate: Called after each epoch with these hooks; returns the metrics.
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
        evaluate: Callable[[tf.keras.callbacks.CallbackList], dict[str, Any]],
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
        metrics = self._evaluate(self)
        logs.update({f"val_{name}": value for name, value in metrics.items()})
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

    def _disallow_batch_hooks_in_ps_strategy(self) -> None:
        """Allows batch-level callbacks: they are called with plain numbers here."""
