"""Synchronous training: all replicas take each step together."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from strategos.components.trainer.compat import keras3
from strategos.components.trainer.data import distributed
from strategos.components.trainer.data.input_wait import InputWait
from strategos.components.trainer.loop import callbacks
from strategos.components.trainer.loop.checkpoint_callback import Keeper
from strategos.components.trainer.loop.model_builder import ModelBuilder
from strategos.components.trainer.loop.own_steps import ReplicaSteps
from strategos.components.trainer.model.replicas import uneven_batches


class Synchronous:
    """The parts of a synchronous training; `Asynchronous` has the same methods.

    Args:
      builder: Builds the model, and has its examples.
      distribution: The strategy object.
      batch_size: Rows of a global batch.

    Attributes:
      wait: Measures the time for which steps wait for input.
    """

    def __init__(
        self,
        builder: ModelBuilder,
        distribution: tf.distribute.Strategy,
        batch_size: int,
    ):
        self._builder, self._strategy = builder, distribution
        self._batch_size = batch_size
        self.wait: InputWait = InputWait()

    def model(self, phase_starts: Sequence[int]) -> tf.keras.Model:
        """The model that is trained; called in the scope of the strategy.

        Args:
          phase_starts: First epoch of each phase begun, see `ModelBuilder.build`.
        """
        return self._builder.build(phase_starts)

    def hooks(self, keeper: Keeper, *common: Any) -> callbacks.Hooks:
        """The hooks of the training; `common` are the arguments of every `Hooks`."""
        return callbacks.Hooks(*common)

    def feed(self, model: tf.keras.Model, **stream: Any) -> Any:
        """A stream of training batches.

        Args:
          model: The model that is trained.
          **stream: The arguments of `Split.shuffled`, e.g. `first_step`.
        """
        self.wait.restart()
        shuffled = self._builder.examples.shuffled
        return self._distributed(
            model, functools.partial(shuffled, **stream, wait=self.wait)
        )

    def evaluation(self, model: tf.keras.Model) -> tuple[Any, int | None]:
        """The batches to evaluate on after each epoch, and their number."""
        if keras3.is_model(model):
            keras3.build(model, self._builder.sample(model))
        batches, rows = self._evaluated(model)
        return batches, len(rows)

    def own_steps(self, model: tf.keras.Model, hooks: callbacks.Hooks) -> ReplicaSteps:
        """How the replicas take the steps of the user's own loop.

        Args:
          model: The model that is trained.
          hooks: The hooks of the training.
        """
        return ReplicaSteps(functools.partial(self._evaluated, model))

    def _evaluated(self, model: tf.keras.Model) -> tuple[Any, list[int]]:
        """The evaluation batches without end, and the rows of each one of a pass."""
        split = self._builder.evaluated
        size = uneven_batches.evaluation_batch(
            split.rows, self._batch_size, self._builder.context.replicas
        )
        feed = functools.partial(split.ordered, size, epochs=None)
        firsts = range(0, split.rows, size)
        rows = [min(size, split.rows - first) for first in firsts]
        return self._distributed(model, feed), rows

    def _distributed(self, model: tf.keras.Model, feed: distributed.Feed) -> Any:
        feed = keras3.batches(model, feed)
        return distributed.batches(self._strategy, feed)

    def trained(
        self, model: tf.keras.Model
    ) -> tuple[tf.keras.Model, tf.distribute.Strategy | None]:
        """The model with the weights for the export, and its strategy."""
        return model, self._strategy
