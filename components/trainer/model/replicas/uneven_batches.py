"""Weights rows equally in batches that replicas cannot share evenly.

The N rows of a batch are split among R replicas as evenly as possible, n each. Keras
averages the loss over the rows of a replica and then over the replicas; if the n
differ, the result is not the average over the N rows (off by 3e-3 for 3 + 2 rows).
Scaling the loss of a replica by n * R / N corrects it, so that gradients equal those of
one device. Nothing is padded: metrics see real rows only.
"""

from __future__ import annotations

import dataclasses
import inspect
import itertools
import logging
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from strategos.components.errors import UserError
from strategos.components.trainer.compat import compiled, keras3
from strategos.components.trainer.data.parts import rows_of
from strategos.components.trainer.distribution.batch_checks import (
    SEVERAL_STEPS,
    check_even_for_each,
)
from strategos.components.trainer.model.context import TrainingContext
from strategos.components.trainer.model.replicas import losses
from strategos.components.trainer.spec import Settings
from strategos.components.wording import counted, listed, quoted

_TPU = "a TPU takes batches of one size only"


def settle(
    model: tf.keras.Model,
    context: TrainingContext,
    settings: Settings,
    strategy: str,
    *,
    own_loop: bool = False,
    sums_rows: bool = False,
    sizes: Sequence[int] = (),
) -> TrainingContext:
    """Weights rows equally in uneven batches, or leaves the smaller last batch out.

    Args:
      model: The compiled model; its loss and metrics are changed in place.
      context: The training context.
      settings: The settings of the run.
      strategy: Name of the strategy.
      own_loop: Whether the user's loop trains instead of `fit`, and weights rows
        itself.
      sums_rows: Whether a loss of the model is a sum over rows, see `losses.combine`.
      sizes: Numbers of replicas that may train after one another in this training. The
        result is the same for each of them. By default, that of `context` alone.

    Returns:
      `context`, or a copy that leaves a smaller last batch out.

    Raises:
      UserError: All batches are uneven, and rows cannot be weighted equally.
    """
    size, sizes = context.global_batch_size, sizes or [context.replicas]
    fixed = strategy == "tpu"
    rest = context.rows_per_epoch % size
    even = not rest and all(size % each == 0 for each in sizes)
    if not fixed and (max(sizes) == 1 or even):
        return context
    few = 0 < rest < max(sizes)
    # A loop of the user's own takes one step at a time.
    steps = 1 if own_loop else settings.steps_per_execution or _steps(model)
    reason = _TPU if fixed else _obstacle(model, steps > 1, sums_rows, few)
    if not reason:
        if not keras3.is_model(model):  # `steps` weighs its gradients
            _weigh(model, context)
        return context
    if fixed or not own_loop:
        check_even_for_each(size, sizes, reason)
    if rest:
        logging.info("the smaller last batch of an epoch is left out: %s", reason)
    if context.drops_last_batch:
        return context
    return dataclasses.replace(context, drops_last_batch=True)


def evaluation_batch(rows: int, batch_size: int, replicas: int) -> int:
    """Chooses a batch size for evaluation so that the last batch feeds all replicas.

    A mean over no rows is NaN. The batch size does not change the result of evaluation.
    For example, for 20 rows on 8 replicas: batches of 18 leave 2 rows, batches of 12
    leave 8.

    Args:
      rows: Rows of the evaluation split.
      batch_size: Rows of a training batch.
      replicas: Replicas that share each batch.

    Raises:
      UserError: The split has fewer rows than there are replicas.
    """
    if rows < replicas:
        raise UserError(
            f"the eval split has {counted(rows, 'row')}, fewer than the {replicas} "
            "replicas that share its evaluation after each epoch",
            key="data.split",
            remedy="Give eval a larger share, or use fewer `workers` or `devices`.",
        )
    smaller, larger = range(batch_size, replicas - 1, -1), range(batch_size + 1, rows)
    for size in itertools.chain(smaller, larger):
        if rows % size == 0 or rows % size >= replicas:
            return size
    return rows


def _weigh(model: tf.keras.Model, context: TrainingContext) -> None:
    """Weights each row equally in the loss of batches that are split unevenly.

    The model must have Keras's own `train_step` and `compute_loss`.
    """
    replicas = context.replicas
    rest = context.rows_per_epoch % context.global_batch_size
    if not (rest % replicas or context.global_batch_size % replicas):
        return  # each replica has as many rows as any other
    if 0 < rest < replicas:
        _skip_no_rows(model)
    compute_loss = model.compute_loss

    def weighed(
        x: Any = None, y: Any = None, y_pred: Any = None, sample_weight: Any = None
    ) -> tf.Tensor:
        loss = compute_loss(x, y, y_pred, sample_weight)
        # Keras has divided the penalties by the replicas: they count once, unscaled.
        penalty = tf.cast(_penalty(model) / replicas, loss.dtype)
        rows = context.rows_of_step(tf.cast(model.optimizer.iterations, tf.int64))
        # The weights of micro-batches within a replica's batch are applied later.
        part = context.training_step.micro_batch
        mine = rows_of(y) if part is None else part.whole
        share = tf.cast(mine * replicas / rows, loss.dtype)
        return (loss - penalty) * share + penalty

    model.compute_loss = weighed


def _skip_no_rows(model: tf.keras.Model) -> None:
    """Keeps a replica without rows out of loss and metrics: a mean over no rows is NaN.

    Keras's own losses and metrics are 0 for no rows. The user's functions and losses,
    and losses that layers add, may be NaN.
    """
    whole = model.compiled_loss
    compiled.replace_losses(model, lambda loss: losses.changed(loss, _for_each_row))
    compiled.replace_metrics(model, _for_each_row_of)

    def compute_loss(
        x: Any = None, y: Any = None, y_pred: Any = None, sample_weight: Any = None
    ) -> tf.Tensor:
        added = [tf.where(rows_of(y) > 0, x, tf.zeros_like(x)) for x in model.losses]
        return whole(y, y_pred, sample_weight, regularization_losses=added)

    model.compute_loss = compute_loss


def _for_each_row(value: tf.Tensor, labels: Any) -> tf.Tensor:
    """Converts a scalar to a vector of length 1, or 0 if there are no rows."""
    return value if value.shape.rank else tf.reshape(value, [1])[: rows_of(labels)]


def _for_each_row_of(metric: Any) -> Any:
    """Changes a metric that is a function; metric objects accumulate themselves."""
    is_function = inspect.isroutine(metric)
    return losses.changed(metric, _for_each_row) if is_function else metric


def _penalty(model: tf.keras.Model) -> tf.Tensor:
    """The sum of the model's regularization losses, which do not depend on rows.

    Other losses that layers add are means over rows, and are weighted as such.
    """
    penalties = compiled.penalties(model)
    return tf.add_n([tf.cast(x, tf.float32) for x in penalties] or [0.0])


def _obstacle(
    model: tf.keras.Model, several_steps: bool, sums_rows: bool, without_rows: bool
) -> str | None:
    """The reason why a model cannot train on unevenly split batches, or None."""
    if several_steps:
        # Within one execution a collective keeps the shapes of its first step.
        return SEVERAL_STEPS
    if keras3.is_model(model):
        return _obstacle_of_keras3(model, sums_rows, without_rows)
    for name in ("train_step", "compute_loss"):
        if keras3.is_overridden(model, name):
            return f"the model has a `{name}` of its own"
    if compiled.has_batch_normalization(model):
        return "the model has BatchNormalization, which takes a mean over the batch"
    for loss in tf.nest.flatten(model.loss):
        if getattr(loss, "reduction", None) in ("sum", "none"):
            return "the model has a loss that is a sum over rows, not a mean"
    if without_rows and (own := compiled.own_metrics(model)):
        return f"a replica without rows cannot measure {listed(quoted(own))}"
    return None


def _steps(model: Any) -> int:
    """The steps per execution that `build_model` has compiled the model with."""
    steps = model.steps_per_execution
    return steps if keras3.is_model(model) else int(steps.numpy())


def _obstacle_of_keras3(model: Any, sums_rows: bool, without_rows: bool) -> str | None:
    if keras3.normalizes_replicas(model):
        return "the model has BatchNormalization, which takes a mean over the batch"
    if sums_rows:
        return "the model has a loss that is a sum over rows, not a mean"
    if without_rows and compiled.adds_losses(model):
        return "a replica without rows cannot compute what layers give to `add_loss`"
    if without_rows and (own := keras3.own_metrics(model)):
        return f"a replica without rows cannot measure {listed(quoted(own))}"
    return None
