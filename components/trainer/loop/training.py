"""Training in one task of a gang: the same model code under every strategy."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import logging
import os
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf
import tf_keras

from strategos.components import events
from strategos.components.errors import required
from strategos.components.trainer.compat import keras3, keras_names
from strategos.components.trainer.data import tensor_values
from strategos.components.trainer.data.split import Split
from strategos.components.trainer.distribution import batch_checks, strategy
from strategos.components.trainer.distribution.environment import ClusterSpec
from strategos.components.trainer.gang import heartbeat
from strategos.components.trainer.gang.agreement import Agreement
from strategos.components.trainer.loop import callbacks, custom_loop, fit
from strategos.components.trainer.loop.checkpoint import checkpoints
from strategos.components.trainer.loop.checkpoint.cadence import Cadence
from strategos.components.trainer.loop.checkpoint.checkpoints import Found
from strategos.components.trainer.loop.checkpoint_callback import (
    Keeper,
    newest,
    phase_starts,
)
from strategos.components.trainer.loop.model_builder import ModelBuilder
from strategos.components.trainer.loop.phases import stopping as phase_stopping
from strategos.components.trainer.loop.phases.order import PhaseOrder
from strategos.components.trainer.loop.position import Position
from strategos.components.trainer.loop.progress import (
    EvaluatedWeights,
    Progress,
    Recorder,
    TerminateOnNaN,
    numerics_checked,
    step_named,
)
from strategos.components.trainer.loop.servers.asynchronous import Asynchronous
from strategos.components.trainer.loop.state import saved_weights
from strategos.components.trainer.loop.synchronous import Synchronous
from strategos.components.trainer.model import effects, out_of_memory
from strategos.components.trainer.model.comparison import answers, structure
from strategos.components.trainer.model.context import TrainingContext
from strategos.components.trainer.operation import Operation
from strategos.components.trainer.spec import WorkerSpec
from strategos.components.transformed import sample

Callbacks = list[tf_keras.callbacks.Callback]


class Training:
    """Trains the user's model: the same code under every strategy.

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
        self._choice = choice
        self._task = "" if cluster.is_chief else required(cluster.task).name
        self._strategy = distribution
        # An asynchronous training's coordinator decides alone.
        workers = choice.workers if choice.is_synchronous else 1
        self._agreement = Agreement(distribution, workers)
        self._store = checkpoints.of(
            spec.checkpoint_dir,
            keep=operation.checkpoint_keep,
            is_chief=cluster.is_chief,
        )
        replicas, size = distribution.num_replicas_in_sync, spec.batch_size
        batch_checks.check_replicas(size, replicas)
        self._builder = builder = ModelBuilder(
            spec, cluster, choice, replicas, self._agreement, operation
        )
        self._code, self._evaluated = builder.code, builder.evaluated
        self._way: Synchronous | Asynchronous = (
            Synchronous(builder, distribution, size)
            if choice.is_synchronous
            else Asynchronous(builder, choice.workers, size)
        )

    @property
    def _context(self) -> TrainingContext:
        return self._builder.context

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
            checkpoint = newest(self._store, self._agreement)
            starts = phase_starts(checkpoint)
            self._free_names = keras_names.mark()
            model = self._model(starts)
            position = self._position(starts)
            order = PhaseOrder(self._builder.phases, position)
            progress = Progress(self._context, position, order, self._way.wait)
            recorder = Recorder(reports=self._context.is_chief)
            checked = self._spec.settings.callbacks.get("terminate_on_nan", True)
            guard = TerminateOnNaN(position, self._culprits) if checked else None
            evaluated = EvaluatedWeights(recorder, guard)
            with (
                self._logs() as log_dir,
                step_named(position, self._culprits),
                self._code.blamed("training fails"),
            ):
                others = self._callbacks(model, position, order, log_dir)
                with (
                    out_of_memory.explained(self._context),
                    numerics_checked(self._operation),
                ):
                    guards = [guard] if guard else []
                    followed = [evaluated, progress, *guards, *others, recorder]
                    model = self._train(model, position, order, followed, checkpoint)
                epoch = evaluated.epoch()
            folder, name = os.path.split(weights)
            with self._of_chief(folder) as folder:
                self._write(model, os.path.join(folder, name))
        return {
            **self._facts(position, progress),
            "phases": order.record(),
            "parameters": model.count_params(),
            "history": recorder.history,
            "weights_epoch": epoch,
        }

    def _position(self, phase_starts: list[int]) -> Position:
        """The position before the first step."""
        steps = self._context.steps_per_epoch
        return Position(
            steps,
            total=self._spec.epochs * steps,
            evaluate_every=self._spec.settings.evaluate_every,
            phase_starts=phase_starts,
        )

    def _model(self, phase_starts: Sequence[int]) -> tf.keras.Model:
        """Builds the model of the last phase that has begun."""
        heartbeat.current().alive()
        model = self._way.model(phase_starts)
        if self._context.is_chief:
            model.summary(print_fn=logging.info)
        return model

    def _callbacks(
        self, model: tf.keras.Model, position: Position, order: PhaseOrder, log_dir: str
    ) -> Callbacks:
        settings, split = self._spec.settings.callbacks, self._spec.eval_split
        keras = keras3.package_of(model)
        all_callbacks = callbacks.configured(settings, log_dir, keras, order)
        if swa := self._spec.settings.optimizer.get("swa"):
            all_callbacks.append(callbacks.WeightAverage(swa["from_epoch"]))
        # They are made once, for all phases.
        whole = dataclasses.replace(self._context, epochs=self._spec.epochs, phase="")
        own = self._code.callbacks(whole)
        stopping, monitored = phase_stopping.of(self._builder.phases, order)
        if self._context.is_chief:
            last = self._builder.phases[-1]
            callbacks.note_best_weights(settings, model.optimizer, last)
            callbacks.warn_of_choices(settings, own, split, monitored)
        all_callbacks += own
        self._watch_batches = callbacks.watch_batches(settings, own)
        # A custom loop traces its steps itself.
        return (
            all_callbacks
            if self._code.run_fn
            else [*all_callbacks, *stopping, effects.Unchanged(model)]
        )

    def _train(
        self,
        model: tf.keras.Model,
        position: Position,
        order: PhaseOrder,
        accompanying: Callbacks,
        checkpoint: Found | None,
    ) -> tf.keras.Model:
        """Trains by the steps of the model, or by the user's own loop.

        Returns:
          The model of the last phase.
        """
        means = custom_loop.EpochMeans()
        if self._code.run_fn:
            accompanying = [means, *accompanying]
        keeper = self._keeper(position, accompanying)
        keeper.restore(model, checkpoint)
        followed = [*accompanying, keeper]
        if self._chooses_steps(model):
            due = keeper.steps_until_due
            followed.insert(0, fit.StepsPerExecution(position, due))
        hooks = self._way.hooks(keeper, followed, model, position, order.epochs)
        with keeper.writing():
            if self._code.run_fn:
                self._run_own_loop(model, position, hooks, means)
                return model
            hooks.on_train_begin()
            self._fit(model, position, order, hooks)
            while phase_stopping.end_phase(model, order, followed):
                model = self._next_model(model, position, order)
                hooks.set_model(model)
                self._fit(model, position, order, hooks)
            hooks.on_train_end()
        return model

    def _fit(
        self,
        model: tf.keras.Model,
        position: Position,
        order: PhaseOrder,
        hooks: callbacks.Hooks,
    ) -> None:
        """Trains to the end of the current phase."""
        if order.current.name and self._context.is_chief:
            events.emit("note", message=order.announcement(model))
        with numerics_checked(self._operation, False):
            evaluation, steps = self._way.evaluation(model)
        fit.fit(
            self._context,
            model,
            position,
            end_epoch=order.end_epoch,
            feed=functools.partial(self._feed, model),
            evaluation=evaluation,
            evaluation_steps=steps,
            hooks=hooks,
        )

    def _next_model(
        self, model: tf.keras.Model, position: Position, order: PhaseOrder
    ) -> tf.keras.Model:
        """Begins the next phase: a new model with the weights of the present one.

        All workers write and read their own copy, because reading a variable may be a
        collective.

        Raises:
          UserError: `build_model` makes a model for the next phase that differs.
        """
        before, built = order.current.name, structure.of(model)
        with tempfile.TemporaryDirectory(prefix="phase-") as folder:
            saved_weights.write(model, f"{folder}/weights")
            order.begin_next()
            self._free_names()
            model = self._model(position.phase_starts)
            names = (f"for phase `{x}`" for x in (order.current.name, before))
            structure.check(structure.of(model), built, *names)
            saved_weights.read(model, f"{folder}/weights")
        order.check_steps(self._context.steps_per_epoch)
        return model

    def _run_own_loop(
        self,
        model: tf.keras.Model,
        position: Position,
        hooks: callbacks.Hooks,
        means: custom_loop.EpochMeans,
    ) -> None:
        loop = custom_loop.Loop(
            model,
            self._context,
            position,
            feed=functools.partial(self._feed, model),
            hooks=hooks,
            means=means,
            taken=self._way.own_steps(model, hooks),
        )
        run_fn, evaluated = required(self._code.run_fn), self._evaluated
        custom_loop.run(run_fn, self._context, loop, model, self._strategy, evaluated)

    def _chooses_steps(self, model: tf.keras.Model) -> bool:
        """Whether `fit.StepsPerExecution` chooses the steps per execution."""
        return (
            self._spec.settings.steps_per_execution is None
            and self._choice.name == "one_device"
            and not self._code.run_fn
            and not self._watch_batches
            and not self._operation.check_numerics  # its errors name one step
            and fit.StepsPerExecution.suits(model)
        )

    def _feed(self, model: tf.keras.Model, step: int) -> Any:
        """The stream of batches from `step` on."""
        with numerics_checked(self._operation, False):
            return self._way.feed(
                model,
                batch_size=self._spec.batch_size,
                seed=self._spec.seed,
                epochs=None,
                first_step=step,
                drop_last=self._context.drops_last_batch,
            )

    def _culprits(self, steps: range) -> str:
        """A sentence about the features of some steps that are NaN or infinite.

        Empty if the rows of a step are not known, or only after reading all before.
        """
        examples = self._builder.examples
        known = isinstance(examples, Split) and examples.records is None
        if not known or not self._choice.is_synchronous:
            return ""
        with numerics_checked(self._operation, False):
            batches = examples.shuffled(
                self._spec.batch_size,
                seed=self._spec.seed,
                epochs=None,
                first_step=steps[0] - 1,
                drop_last=self._context.drops_last_batch,
            )
            return tensor_values.not_finite(batches, steps, self._spec.target.name)

    def _write(self, model: tf.keras.Model, path: str) -> None:
        model, its_strategy = self._way.trained(model)
        saved_weights.write(model, path)
        structure.write(model, path)
        rows = self._evaluated.ends(sample.ROWS)  # the export must answer the same
        answers.write(model, rows, its_strategy, path)

    def _keeper(self, position: Position, followed: Callbacks) -> Keeper:
        cadence = Cadence.of(self._operation.checkpoint_every)
        return Keeper(self._store, cadence, self._agreement, position, followed)

    @contextlib.contextmanager
    def _of_chief(self, folder: str) -> Iterator[str]:
        """The folder; for another task than the chief a temporary one.

        All workers write weights, because reading a variable may be a collective.
        """
        if self._context.is_chief:
            yield folder
            return
        with tempfile.TemporaryDirectory(prefix="copy-") as aside:
            yield aside

    @contextlib.contextmanager
    def _logs(self) -> Iterator[str]:
        """The folder of the logs; of another task one of which only profiles stay."""
        with self._of_chief(self._spec.log_dir) as folder:
            yield folder
            if task := self._task:
                callbacks.keep_profiles(folder, f"{self._spec.log_dir}/{task}")

    def _facts(self, position: Position, progress: Progress) -> dict[str, Any]:
        passes, more = divmod(position.step, self._context.steps_per_epoch)
        examples = passes * self._context.rows_per_epoch
        return {
            "strategy": self._choice.name,
            "reason": self._choice.reason,
            "replicas": self._context.replicas,
            "workers": self._choice.workers,
            "rows": self._context.rows,
            "global_batch": self._spec.batch_size,
            "seed": self._spec.seed,
            "loss_sums_rows": self._builder.sums_rows,
            "steps": position.step,
            "examples": examples + more * self._spec.batch_size,
            "examples_per_second": round(progress.examples_per_second, 1),
        }
