"""Training in one task of a gang: the same model code under every strategy."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import gc
import logging
import tempfile
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from strategos.components import events, processes
from strategos.components.errors import UserError
from strategos.components.files import filesystems
from strategos.components.trainer.cluster import strategy
from strategos.components.trainer.cluster.environment import ClusterSpec
from strategos.components.trainer.compat import (
    keras3,
    keras_names,
    optimizers,
    partitioned_variables,
    rates,
)
from strategos.components.trainer.data import dataset, file_shards
from strategos.components.trainer.data.input_wait import InputWait
from strategos.components.trainer.gang.agreement import Agreement
from strategos.components.trainer.loop import callbacks, custom_loop, fit
from strategos.components.trainer.loop.checkpoint_callback import Cadence, Keeper
from strategos.components.trainer.loop.checkpoints import Checkpoints, CopiedCheckpoints
from strategos.components.trainer.loop.position import Position
from strategos.components.trainer.loop.progress import (
    EvaluatedWeights,
    Progress,
    Recorder,
    TerminateOnNaN,
)
from strategos.components.trainer.loop.state import saved_weights
from strategos.components.trainer.loop.warm_start import earlier_weights
from strategos.components.trainer.model import (
    effects,
    learning_rate,
    out_of_memory,
    workload,
)
from strategos.components.trainer.model.comparison import answers, structure
from strategos.components.trainer.model.context import TrainingContext
from strategos.components.trainer.model.replicas import local_values, uneven_batches
from strategos.components.trainer.model.tables import relations
from strategos.components.trainer.model.user_module import UserModule
from strategos.components.trainer.operation import Operation
from strategos.components.trainer.spec import Settings, WorkerSpec
from strategos.components.transformed import sample

Callbacks = list[tf.keras.callbacks.Callback]


class Training:
    """Synchronous training: all replicas take each step together.

    Args:
      spec: The model, data and settings of the training.
      operation: Operational settings that do not change the weights, e.g. the
        checkpoint interval.
      cluster: All tasks, and the task of this process.
      choice: Name of the strategy, and the reason for choosing it.
      distribution: The strategy object.

    Raises:
      UserError: The user's code, settings or data are invalid.
    """

    def __init__(
        self,
        spec: WorkerSpec,
        operation: Operation,
        cluster: ClusterSpec,
        choice: strategy.Choice,
        distribution: tf.distribute.Strategy,
    ):
        self._spec = spec
        self._operation = operation
        self._cluster = cluster
        self._choice = choice
        self._strategy = distribution
        self._agreement = Agreement(distribution, self._agreeing())
        self._wait = InputWait()
        count = distribution.num_replicas_in_sync
        strategy.check_batch(spec.batch_size, count)
        self._code = UserModule(spec, choice.name)
        self._sums_rows = False
        self._read(count)

    def run(self, weights: str) -> dict[str, Any]:
        """Trains and writes the weights.

        Args:
          weights: Prefix of the files that get the chief's weights.

        Returns:
          Facts of the training, e.g. its strategy and steps; `component.py` lists them
          as properties of the Model artifact.

        Raises:
          UserError: The user's code, settings or data are invalid.
          Preempted: A worker received SIGTERM; all have saved a checkpoint.
        """
        with self._strategy.scope():
            model = self._model()
            if self._context.is_chief:
                model.summary(print_fn=logging.info)
            position = Position(self._context.steps_per_epoch)
            progress = Progress(self._context, position, self._waiting())
            recorder = Recorder()
            evaluated = EvaluatedWeights(recorder)
            with self._log_dir() as log_dir, self._code.blamed("training fails"):
                others = self._callbacks(model, position, log_dir)
                with out_of_memory.explained(self._context):
                    followed = [evaluated, progress, *others, recorder]
                    self._train(model, position, followed)
            epoch = evaluated.epoch()
            with self._weights_path(weights) as path:
                self._write(model, path)
        return {
            **self._facts(position, progress),
            "parameters": model.count_params(),
            "history": recorder.history,
            "weights_epoch": epoch,
        }

    def _agreeing(self) -> int:
        """Number of processes that agree on when to save a checkpoint."""
        return self._choice.workers

    def _waiting(self) -> InputWait | None:
        return self._wait

    def _read(self, count: int) -> None:
        events.emit("progress", message="reading examples")
        spec, cluster = self._spec, self._cluster
        self._examples = workload.training_split(spec, cluster, self._agreement)
        self._evaluated = workload.split(spec, spec.eval_files, spec.eval_rows)
        processes.return_freed_memory()  # parsed blocks take as much as the columns
        rows = self._examples.rows
        self._context = workload.context(spec, rows, count, is_chief=cluster.is_chief)
        if isinstance(self._examples, file_shards.FileShare):
            # Pipelines cannot fill up each other's last batch.
            self._context = dataclasses.replace(self._context, drops_last_batch=True)
        self._check_steps()
        pipeline = cluster.tasks.index(cluster.task) if cluster.task else 0
        share = dataset.share_of(pipeline, self._agreement.workers, count)
        logging.info("reads %s", self._examples.reads(count, share))

    def _model(self) -> tf.keras.Model:
        """The user's model, ready for `fit`.

        Builds the model a second time if the first build shows that the last batch of
        an epoch must be left out: schedules and dropout depend on the steps per epoch.
        """
        free_names, planned = keras_names.mark(), self._context.steps_per_epoch
        model, outputs = self._built()
        self._context = self._settled_by(model)
        if self._context.steps_per_epoch != planned:
            self._check_steps()
            del model
            gc.collect()  # its variables may fill half of a GPU
            free_names()
            model, outputs = self._built()
        if not keras3.is_model(model):  # its own dropout has its state in variables
            self._context.training_step.follow(model)
        settings = self._spec.settings
        configure_step(model, settings)
        if self._context.replicas > 1:
            local_values.report_means(model)
        self._code.check(model, outputs, self._examples, self._evaluated)
        partitioned_variables.leave_out_vocabularies(model)
        optimizers.build(model)
        structure.check_tasks(model, self._agreement, self._cluster)
        if self._spec.warm_start:
            self._warm_start(model, f"{self._spec.warm_start}/weights")
        return model

    def _warm_start(self, model: tf.keras.Model, path: str) -> None:
        """Reads the weights of an earlier model, the same values in each task."""
        features, _ = self._evaluated.sample(relations.ROWS)
        context = self._context
        tables = relations.find(model, features, context.ids, context.label)
        moved = earlier_weights.read(model, path, tables, is_chief=context.is_chief)
        structure.check_warm_start(model, path, resized=bool(moved))

    def _built(self) -> tuple[tf.keras.Model, Any]:
        """The user's model with all variables of its layers, and its first outputs."""
        spec = self._spec
        model = self._code.build_model(self._context)
        learning_rate.scale(
            model, spec.settings, spec.batch_size, self._context.replicas
        )
        if self._choice.name == "central_storage":
            rates.let_replicas_set_it(model)
        self._code.check_scope(model, tf.distribute.get_strategy())
        outputs = self._code.outputs(model, self._examples)
        if self._context.replicas > 1:
            self._sums_rows = self._code.combine_losses(model, outputs, self._examples)
        return model, outputs

    def _settled_by(self, model: tf.keras.Model) -> TrainingContext:
        return uneven_batches.settle(
            model,
            self._context,
            self._spec.settings,
            self._choice.name,
            own_loop=bool(self._code.run_fn),
        )

    def _check_steps(self) -> None:
        """Rejects an epoch with less than one batch if smaller batches are left out."""
        if not self._context.steps_per_epoch:
            raise UserError(
                f"the {self._context.rows:,} rows of an epoch do not fill a batch, "
                "and a smaller one is left out (`last_batch: drop`, or the log "
                "says why)",
                key="trainer.batch_size",
                received=f"{self._spec.batch_size:,}",
                remedy="Choose a smaller one, or add data.",
            )

    def _callbacks(
        self, model: tf.keras.Model, position: Position, log_dir: str
    ) -> Callbacks:
        asked = self._spec.settings.callbacks
        found = callbacks.configured(asked, log_dir, keras3.package_of(model))
        own = self._code.callbacks(self._context)
        if self._context.is_chief:
            callbacks.note_best_weights(asked, model.optimizer)
            callbacks.warn_of_choices(asked, own, self._spec.eval_split)
        if asked.get("terminate_on_nan", True):
            found.insert(0, TerminateOnNaN(position))
        found += own
        self._watch_batches = callbacks.watch_batches(asked, own)
        # A custom loop traces its steps itself.
        return found if self._code.run_fn else [*found, effects.Unchanged(model)]

    def _train(
        self, model: tf.keras.Model, position: Position, accompanying: Callbacks
    ) -> None:
        """Trains by Keras's `fit`, or by the user's own loop."""
        means = custom_loop.EpochMeans()
        if self._code.run_fn:
            accompanying = [means, *accompanying]
        keeper = self._keeper(position, accompanying)
        keeper.restore(model)
        followed = [*accompanying, keeper]
        if self._chooses_steps(model):
            due = keeper.steps_until_due
            followed.insert(0, fit.StepsPerExecution(position, due))
        hooks = self._hooks(keeper, followed, model, position, self._context.epochs)
        feed = functools.partial(self._feed, model)
        if self._code.run_fn:
            ordered = keras3.batches(model, self._evaluated.ordered)
            custom_loop.run(
                self._code.run_fn,
                self._context,
                strategy=self._strategy,
                model=model,
                loop=custom_loop.Loop(
                    model, self._context, position, feed, hooks, means
                ),
                eval_rows=self._evaluated.rows,
                eval_dataset=functools.partial(ordered, self._spec.batch_size),
            )
        else:
            evaluation, steps = self._evaluation(model)
            fit.fit(
                model,
                self._context,
                position,
                feed=feed,
                evaluation=evaluation,
                evaluation_steps=steps,
                hooks=hooks,
            )

    def _chooses_steps(self, model: tf.keras.Model) -> bool:
        """Whether `fit.StepsPerExecution` chooses the steps per execution."""
        return (
            self._spec.settings.steps_per_execution is None
            and self._choice.name == "one_device"
            and not self._code.run_fn
            and not self._watch_batches
            and fit.StepsPerExecution.suits(model)
        )

    def _hooks(self, keeper: Keeper, *common: Any) -> callbacks.Hooks:
        """The hooks of this training; `common` are the arguments of every `Hooks`."""
        return callbacks.Hooks(*common)

    def _feed(self, model: tf.keras.Model, step: int) -> Any:
        """The stream of batches from `step` on."""
        self._wait.restart()
        stream = self._stream(step)
        feed = functools.partial(self._examples.shuffled, **stream, wait=self._wait)
        return self._distributed(model, feed)

    def _stream(self, step: int) -> dict[str, Any]:
        """The arguments of the stream of batches from `step` on."""
        return {
            "batch_size": self._spec.batch_size,
            "seed": self._spec.seed,
            "epochs": None,
            "first_step": step,
            "drop_last": self._context.drops_last_batch,
        }

    def _evaluation(self, model: tf.keras.Model) -> tuple[Any, int | None]:
        """The batches that `fit` evaluates on after each epoch, and their number."""
        rows = self._evaluated.rows
        batch_size = uneven_batches.evaluation_batch(
            rows, self._spec.batch_size, self._context.replicas
        )
        feed = functools.partial(self._evaluated.ordered, batch_size)
        return self._distributed(model, feed), self._evaluated.steps(batch_size)

    def _distributed(self, model: tf.keras.Model, feed: dataset.Feed) -> Any:
        feed = keras3.batches(model, feed)
        if keras3.is_model(model) and not self._code.run_fn:
            return feed()  # its `fit` divides them among the replicas
        return dataset.distributed(self._strategy, feed)

    def _write(self, model: tf.keras.Model, path: str) -> None:
        saved_weights.write(model, path)
        structure.write(model, path)
        answers.write(model, self._sample(), self._strategy, path)

    def _sample(self) -> dict[str, Any]:
        """Features of a few rows, on which the export's answers are compared."""
        return self._evaluated.ends(sample.ROWS)

    def _keeper(self, position: Position, followed: Callbacks) -> Keeper:
        folder = self._spec.checkpoint_dir
        copied = filesystems.needs_copies(folder)
        store = (CopiedCheckpoints if copied else Checkpoints)(
            folder,
            keep=self._operation.checkpoint_keep,
            is_chief=self._context.is_chief,
        )
        cadence = Cadence.of(self._operation.checkpoint_every)
        return Keeper(store, cadence, self._agreement, position, followed)

    @contextlib.contextmanager
    def _log_dir(self) -> Iterator[str]:
        """Folder for the logs of this task's callbacks; temporary unless chief."""
        if self._context.is_chief:
            yield self._spec.log_dir
            return
        with tempfile.TemporaryDirectory(prefix="logs-") as aside:
            yield aside

    @contextlib.contextmanager
    def _weights_path(self, path: str) -> Iterator[str]:
        """Path for this task's weights; temporary unless chief.

        All workers write, because reading a variable may be a collective.
        """
        if self._context.is_chief:
            yield path
            return
        with tempfile.TemporaryDirectory(prefix="weights-") as aside:
            yield f"{aside}/weights"

    def _facts(self, position: Position, progress: Progress) -> dict[str, Any]:
        epochs = position.epoch * self._context.rows_per_epoch
        return {
            "strategy": self._choice.name,
            "reason": self._choice.reason,
            "replicas": self._context.replicas,
            "workers": self._choice.workers,
            "rows": self._context.rows,
            "global_batch": self._spec.batch_size,
            "seed": self._spec.seed,
            "loss_sums_rows": self._sums_rows,
            "steps": position.step,
            "examples": epochs + position.offset * self._spec.batch_size,
            "examples_per_second": round(progress.examples_per_second, 1),
        }


def configure_step(model: tf.keras.Model, settings: Settings) -> None:
    """Sets XLA and the steps per execution of the model's `fit`.

    Args:
      model: The compiled model.
      settings: The settings of the run.
    """
    if keras3.is_model(model):
        keras3.compile_as(model, settings)
        return
    optimizers.compile_dense_updates_only(model)
    if settings.jit_compile:
        model.jit_compile = True
    if settings.steps_per_execution:
        model.steps_per_execution = settings.steps_per_execution
