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
from collections.abc import Sequence
from typing import Any, NoReturn

import tensorflow as tf

from strategos.components.errors import UserError, required
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
from strategos.components.trainer.loop.servers import update_lock
from strategos.components.trainer.loop.servers.async_hooks import AsyncHooks
from strategos.components.trainer.loop.servers.evaluation import (
    SharedEvaluation,
    WorkerBatches,
)
from strategos.components.trainer.loop.servers.worker_steps import WorkerSteps
from strategos.components.trainer.model.comparison import structure

Callbacks = list[tf.keras.callbacks.Callback]

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

        Raises:
          UserError: The model is compiled with `run_eagerly=True`.
        """
        model = self._builder.build(phase_starts, warm=False)
        if model.run_eagerly and not self._builder.code.run_fn:
            raise UserError(
                "`build_model`: compiles the model with run_eagerly=True, but the "
                "workers of parameter_server take traced steps only",
                remedy="Remove the argument; to look into a step, train with "
                "trainer.distribution.strategy: one_device.",
            )
        ours, ordinary = map(structure.of, (model, self._ordinary))
        structure.check(ours, ordinary, "for the workers", "for the coordinator")
        _follow(model, self._ordinary)
        if keras3.is_model(model) and not self._builder.code.run_fn:
            keras3.build(model, self._builder.sample(model))  # locked in `steps`
        elif self._workers > 1:
            update_lock.lock_updates(model)
        return model

    def hooks(
        self, keeper: Keeper, callbacks: Callbacks, model: tf.keras.Model, *others: Any
    ) -> AsyncHooks:
        """The hooks of the training, with the arguments of every `Hooks`."""
        evaluate = None
        if not self._builder.code.run_fn:  # the user's loop evaluates itself
            evaluate = SharedEvaluation(model, self._evaluated(model)).run
        return AsyncHooks(
            callbacks,
            model,
            *others,
            workers=self._workers,
            evaluate=evaluate,
            pauses=keeper.is_due,
        )

    def own_steps(self, model: tf.keras.Model, hooks: Hooks) -> WorkerSteps:
        """How the workers take the steps of the user's own loop.

        Args:
          model: The workers' model.
          hooks: The hooks of the training.
        """
        assert isinstance(hooks, AsyncHooks)
        return WorkerSteps(model, hooks, self._evaluated(model))

    def _evaluated(self, model: tf.keras.Model) -> WorkerBatches:
        """The evaluation batches of each worker."""
        split, workers = self._builder.evaluated, self._workers
        share = functools.partial(split.remote, epochs=None, pipelines=workers)
        feed = functools.partial(keras3.batches(model, share), self._batch_size)
        steps = split.steps(self._batch_size)
        return WorkerBatches(feed, steps=steps, workers=workers)

    def feed(self, model: tf.keras.Model, **stream: Any) -> Any:
        """The training batches, with a separate input pipeline for each worker.

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

        strategy = tf.distribute.get_strategy()
        coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
        return coordinator.create_per_worker_dataset(of_worker)

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
