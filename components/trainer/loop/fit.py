"""Training by Keras `fit`, over one stream of batches for all epochs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from strategos.components.trainer.compat import keras3
from strategos.components.trainer.loop.callbacks import Hooks
from strategos.components.trainer.loop.position import Position
from strategos.components.trainer.model.context import TrainingContext

_FINALIZE = "finalize_variable_values"


def fit(
    model: tf.keras.Model,
    context: TrainingContext,
    position: Position,
    *,
    feed: Callable[[int], Any],
    evaluation: Any,
    evaluation_steps: int | None,
    hooks: Hooks,
) -> None:
    """Trains `model` from `position` to the end, evaluating after each epoch.

    Starting in the middle of an epoch takes two calls of Keras's `fit`, which runs the
    same number of steps in each epoch. An optimizer's work at the end of training is
    done once, after the last call, and also if no step is left.

    Args:
      model: A compiled model, in the scope of its strategy.
      context: The facts of this run.
      position: Where training starts; updated after each step.
      feed: Returns the stream of batches from a given step on.
      evaluation: Batches to evaluate on after each epoch; None if the hooks evaluate.
      evaluation_steps: Number of batches of `evaluation`.
      hooks: The callbacks.
    """
    is_keras3 = keras3.is_model(model)
    if is_keras3:
        keras3.divide_epoch(model, context.steps_per_epoch)
    hooks.begin()
    with _unfinalized(model.optimizer):
        while position.epoch < context.epochs and not model.stop_training:
            epoch, offset = position.epoch, position.offset
            model.fit(
                feed(position.step),
                initial_epoch=epoch,
                epochs=epoch + 1 if offset else context.epochs,
                steps_per_epoch=context.steps_per_epoch - offset,
                validation_data=evaluation,
                # Keras 3 restarts the iterator only if it finds the end itself.
                validation_steps=None if is_keras3 else evaluation_steps,
                # In a list, Keras 3 treats the hooks as one callback, called in order.
                callbacks=[hooks] if is_keras3 else hooks,
                verbose=0,
            )
    finalize = getattr(model.optimizer, _FINALIZE, None)
    if finalize:  # the optimizers before Keras 2.11 have no such method
        finalize(model.trainable_variables)
    hooks.end()


@contextlib.contextmanager
def _unfinalized(optimizer: Any) -> Iterator[None]:
    """Keeps `fit` from replacing the weights by their averages (`use_ema`)."""
    finalize = getattr(optimizer, _FINALIZE, None)
    if finalize is None:
        yield
        return
    setattr(optimizer, _FINALIZE, lambda _: None)
    try:
        yield
    finally:
        setattr(optimizer, _FINALIZE, finalize)
