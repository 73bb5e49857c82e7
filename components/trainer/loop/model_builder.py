"""Builds the user's model for the examples of a training, ready for the first step."""

from __future__ import annotations

import dataclasses
import gc
import logging
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from strategos.components import events, processes
from strategos.components.trainer import phases
from strategos.components.trainer.compat import (
    keras3,
    keras3_replicas,
    keras_names,
    optimizers,
    partitioned_variables,
)
from strategos.components.trainer.data import distributed, file_shards
from strategos.components.trainer.distribution.batch_checks import check_steps
from strategos.components.trainer.distribution.environment import ClusterSpec
from strategos.components.trainer.distribution.strategy import Choice
from strategos.components.trainer.gang.agreement import Agreement
from strategos.components.trainer.loop.phases import trained_layers
from strategos.components.trainer.loop.warm_start import earlier_weights
from strategos.components.trainer.model import learning_rate, workload
from strategos.components.trainer.model.comparison import structure
from strategos.components.trainer.model.context import TrainingContext
from strategos.components.trainer.model.labels import reconstruction
from strategos.components.trainer.model.optimizer import settings as optimizer_settings
from strategos.components.trainer.model.replicas import (
    local_values,
    micro_batches,
    uneven_batches,
)
from strategos.components.trainer.model.tables import relations
from strategos.components.trainer.model.user_module import UserModule
from strategos.components.trainer.operation import Operation
from strategos.components.trainer.spec import Settings, WorkerSpec


class ModelBuilder:
    """Reads the examples of a training and builds the user's model for them.

    Args:
      spec: The model, data and settings of the training.
      cluster: All tasks, and the task of this process.
      choice: The strategy of the training.
      replicas: Copies of the model that train together.
      agreement: Sums values over the workers.
      operation: Of it, the workers with which the training goes on after a loss, and
        the Evaluator's task.

    Attributes:
      code: The user's module.
      examples: The training examples.
      evaluated: The evaluation examples.
      phases: The phases of the training.
      context: The context of `build_model`. A build may find that the last batch of an
        epoch must be left out; it then replaces the context.
      sums_rows: Whether a loss of the last build is a sum over rows, see
        `UserModule.combine_losses`.

    Raises:
      UserError: The user's module, settings or data are invalid.
    """

    def __init__(
        self,
        spec: WorkerSpec,
        cluster: ClusterSpec,
        choice: Choice,
        replicas: int,
        agreement: Agreement,
        operation: Operation,
    ):
        self._spec, self._cluster, self._choice = spec, cluster, choice
        self._agreement = agreement
        # A gang of any size must take the steps of the whole gang.
        whole = agreement.workers + len(cluster.lost)
        each = replicas // agreement.workers
        least = operation.min_workers or whole
        self._sizes = [each * n for n in range(least, whole + 1)]
        self._judged_as = operation.judged_as
        self.code = UserModule(spec, choice.name)
        self.sums_rows = False
        events.emit("progress", message="reading examples")
        self.examples = workload.training_split(spec, cluster, agreement)
        self.evaluated = workload.split(spec, spec.eval_files, spec.eval_rows)
        processes.return_freed_memory()  # parsed blocks take as much as the columns
        self.phases = phases.of(spec)
        self._phase = self.phases[0]
        rows = self.examples.rows
        self.context = workload.context(spec, rows, replicas, is_chief=cluster.is_chief)
        if isinstance(self.examples, file_shards.FileShare):
            # Pipelines cannot fill up each other's last batch.
            self.context = dataclasses.replace(self.context, drops_last_batch=True)
        self._check_steps()
        pipeline = cluster.tasks.index(cluster.task) if cluster.task else 0
        share = distributed.share_of(pipeline, agreement.workers, replicas)
        logging.info("reads %s", self.examples.reads(replicas, share))

    def build(
        self, phase_starts: Sequence[int] = (0,), *, warm: bool = True
    ) -> tf.keras.Model:
        """Builds the user's model in the current strategy, ready for `fit`.

        Builds the model a second time if the first build shows that the last batch of
        an epoch must be left out: schedules and dropout depend on the steps per epoch.

        Args:
          phase_starts: First epoch of each phase begun; the model is built for the last
            of these phases, with an optimizer of its own.
          warm: Whether the model gets the weights of `trainer.warm_start`, if set.

        Raises:
          UserError: The user's code fails, or the model cannot be trained.
        """
        self._phase = phase = self.phases[len(phase_starts) - 1]
        self.context = dataclasses.replace(
            self.context, epochs=phase.epochs, phase=phase.name
        )
        free_names, planned = keras_names.mark(), self.context.steps_per_epoch
        model, outputs = self._built()
        self.context = self._settled_by(model)
        if self.context.steps_per_epoch != planned:
            self._check_steps()
            del model
            gc.collect()  # its variables may fill half of a GPU
            free_names()
            model, outputs = self._built()
        first = phase_starts[-1] * self.context.steps_per_epoch
        self.context.training_step.follow(model, first)
        configure_step(model, self._spec.settings)
        if parts := self._spec.settings.accumulate_steps:
            micro_batches.accumulate(model, self.context, parts)
        if self.context.replicas > 1:
            local_values.report_means(model)
        self.code.check(model, outputs, self.examples, self.evaluated)
        values = sum(reconstruction.widths(self.context).values())
        self.code.check_judged(model, outputs, self._judged_as, values)
        partitioned_variables.settle_weights(model)
        optimizers.build(model)
        structure.check_tasks(model, self._agreement, self._cluster)
        if warm and self._spec.warm_start and len(phase_starts) == 1:
            self._warm_start(model, f"{self._spec.warm_start}/weights")
        return model

    def sample(self, model: tf.keras.Model) -> tuple[Any, Any]:
        """Features and label of a few rows.

        Args:
          model: The model that they are for.
        """
        features, label = self.evaluated.sample(2)
        return keras3.taken(model, features), label

    def _warm_start(self, model: tf.keras.Model, path: str) -> None:
        """Reads the weights of an earlier model, the same values in each task."""
        features, _ = self.evaluated.sample(relations.ROWS)
        context = self.context
        tables = relations.find(model, features, context.ids, context.label)
        moved = earlier_weights.read(model, path, tables, is_chief=context.is_chief)
        structure.check_warm_start(model, path, resized=bool(moved))

    def _built(self) -> tuple[tf.keras.Model, Any]:
        """The user's model with all variables of its layers, and its first outputs."""
        spec, replicas, whole = self._spec, self.context.replicas, self._sizes[-1]
        model = self.code.build_model(self.context)
        optimizer_settings.configure(model, spec.settings.optimizer)
        trained_layers.set_rate(model, self._phase)
        learning_rate.scale(model, spec.settings, spec.batch_size, whole)
        if self._choice.name == "central_storage":
            optimizers.let_replicas_set_rate(model)
        self.code.check_scope(model, tf.distribute.get_strategy())
        outputs = self.code.outputs(model, self.examples)
        trained_layers.choose(model, self._phase, self.phases)
        parts = spec.settings.accumulate_steps
        if replicas > 1 or parts:
            self.sums_rows = self.code.combine_losses(model, outputs, self.examples)
        if parts and self.sums_rows:
            micro_batches.reject_sum()
        return model, outputs

    def _settled_by(self, model: tf.keras.Model) -> TrainingContext:
        return uneven_batches.settle(
            model,
            self.context,
            self._spec.settings,
            self._choice.name,
            own_loop=bool(self.code.run_fn),
            sums_rows=self.sums_rows,
            sizes=self._sizes,
        )

    def _check_steps(self) -> None:
        steps, rows = self.context.steps_per_epoch, self.context.rows
        check_steps(steps, rows, self._spec.batch_size)


def configure_step(model: tf.keras.Model, settings: Settings) -> None:
    """Sets XLA and the steps per execution of the model's `fit`.

    Args:
      model: The compiled model.
      settings: The settings of the run.
    """
    if keras3.is_model(model):
        keras3.compile_as(model, settings)
        if tf.distribute.get_strategy().num_replicas_in_sync > 1:
            keras3_replicas.sum_first(model.optimizer)
        return
    optimizers.compile_dense_updates_only(model)
    if settings.jit_compile:
        model.jit_compile = True
    if settings.steps_per_execution:
        model.steps_per_execution = settings.steps_per_execution
