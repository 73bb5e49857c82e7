"""Training by Keras `fit`, one stream of batches over all epochs."""

from __future__ import annotations

import dataclasses
import importlib.util
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from strategos.components.errors import UserError
from strategos.components.trainer.context import TrainingContext
from strategos.components.trainer.dataset import Split
from strategos.components.trainer.progress import MonitorCheck, Progress


@dataclasses.dataclass(frozen=True)
class Trained:
    """What training did.

    Attributes:
      history: Value per epoch of each metric, `val_…` for the evaluation split.
      steps: Steps done.
      examples: Examples that these steps saw.
      examples_per_second: The first step, which compiles, and evaluation excepted.
    """

    history: dict[str, list[float]]
    steps: int
    examples: int
    examples_per_second: float


def fit(
    model: tf.keras.Model,
    context: TrainingContext,
    train: Split,
    evaluation: Split,
    *,
    callbacks: list[tf.keras.callbacks.Callback],
) -> Trained:
    """Trains `model` for the context's epochs, evaluating after each.

    Args:
      model: A compiled model, in the scope of its strategy.
      context: The facts of this run.
      train: Training examples.
      evaluation: Examples to evaluate on after each epoch.
      callbacks: Callbacks besides the one that reports progress.
    """
    batch, steps = context.global_batch_size, context.steps_per_epoch
    progress = Progress(context.epochs, steps, context.rows)
    history = model.fit(
        train.shuffled(batch, seed=context.seed, epochs=context.epochs),
        epochs=context.epochs,
        steps_per_epoch=steps,
        validation_data=evaluation.ordered(batch),
        callbacks=[progress, *callbacks],
        verbose=0,
    )
    return Trained(
        history={
            name: [float(value) for value in values]
            for name, values in history.history.items()
        },
        steps=progress.steps_done,
        examples=progress.examples_done,
        examples_per_second=round(progress.examples_per_second, 1),
    )


def configured_callbacks(
    settings: Mapping[str, Any], log_dir: str
) -> list[tf.keras.callbacks.Callback]:
    """The callbacks that `trainer.callbacks` asks for."""
    found: list[tf.keras.callbacks.Callback] = []
    stopping = settings.get("early_stopping")
    if stopping:
        setting = "trainer.callbacks.early_stopping.monitor"
        found.append(MonitorCheck(stopping["monitor"], setting))
        found.append(
            tf.keras.callbacks.EarlyStopping(
                monitor=stopping["monitor"],
                patience=stopping.get("patience", 0),
                restore_best_weights=True,
            )
        )
    if settings.get("tensorboard"):
        if importlib.util.find_spec("tensorboard") is None:
            raise UserError(
                "trainer.callbacks.tensorboard: the package `tensorboard` is not "
                "installed here. Install it, or set the callback to false."
            )
        found.append(tf.keras.callbacks.TensorBoard(log_dir, profile_batch=0))
    return found


def user_callbacks(
    function: Callable[[TrainingContext], Any] | None,
    context: TrainingContext,
    where: str,
) -> list[tf.keras.callbacks.Callback]:
    """What the user's optional `callbacks(context)` returns.

    Raises:
      UserError: It returned something else than a list of callbacks.
    """
    if function is None:
        return []
    found = list(function(context) or [])
    for callback in found:
        if not isinstance(callback, tf.keras.callbacks.Callback):
            raise UserError(
                f"{where}: `callbacks` returned a {type(callback).__name__}, "
                "expected a list of `tf.keras.callbacks.Callback`."
            )
    return found
