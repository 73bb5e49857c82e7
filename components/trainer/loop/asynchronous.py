"""Training under parameter servers, in the coordinator."""

from __future__ import annotations

import functools
from typing import Any

import tensorflow as tf

from strategos.components.trainer.compat import keras_names
from strategos.components.trainer.data.dataset import Split
from strategos.components.trainer.loop import (
    callbacks,
    parameter_server,
    update_lock,
)
from strategos.components.trainer.loop.checkpoint_callback import Keeper
from strategos.components.trainer.loop.state import saved_weights
from strategos.components.trainer.loop.synchronous import Training
from strategos.components.trainer.model.comparison import answers, structure


class AsyncTraining(Training):
    """Asynchronous training, with a second, ordinary model in the coordinator.

    The workers read examples and compute gradients. The ordinary model gets the weights
    for exact evaluation and for the export.
    """

    def run(self, weights: str) -> dict[str, Any]:
        """Trains and writes the weights; see `Training.run`.

        Args:
          weights: Prefix of the files that get the weights.
        """
        free_names = keras_names.mark()
        self._ordinary = self._model()
        free_names()
        return super().run(weights)

    def _agreeing(self) -> int:
        return 1  # the coordinator decides alone

    def _waiting(self) -> None:
        return None  # other processes read

    def _model(self) -> tf.keras.Model:
        model = super()._model()
        if tf.distribute.has_strategy():
            ours, ordinary = map(structure.of, (model, self._ordinary))
            structure.check(ours, ordinary, "for the workers", "for the coordinator")
            parameter_server.follow(model, self._ordinary)
            if self._choice.workers > 1:
                update_lock.lock_updates(model)
        return model

    def _warm_start(self, model: tf.keras.Model, path: str) -> None:
        """Reads into the ordinary model only; `follow` copies the weights from it."""
        if not tf.distribute.has_strategy():
            super()._warm_start(model, path)

    def _hooks(self, keeper: Keeper, *common: Any) -> callbacks.Hooks:
        return parameter_server.AsyncHooks(
            *common,
            workers=self._choice.workers,
            ordinary=self._ordinary,
            evaluation=self._evaluated.ordered(self._spec.batch_size),
            pauses=keeper.is_due,
        )

    def _feed(self, model: tf.keras.Model, step: int) -> Any:
        assert isinstance(self._examples, Split)  # nobody divides files here
        feed = functools.partial(self._examples.remote, **self._stream(step))
        return parameter_server.distributed(feed, self._choice.workers)

    def _evaluation(self, model: tf.keras.Model) -> tuple[Any, int | None]:
        return None, None  # the hooks do it

    def _write(self, model: tf.keras.Model, path: str) -> None:
        self._ordinary.set_weights(model.get_weights())
        saved_weights.write(self._ordinary, path)
        structure.write(self._ordinary, path)
        answers.write(self._ordinary, self._sample(), None, path)
