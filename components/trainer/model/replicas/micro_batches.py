"""Trains each batch in parts, one after the other: `trainer.accumulate_steps`.

The gradients of the parts (micro-batches) are added up, and one update follows: the
same as for the whole batch, in the memory of one part. All of it is one `train_step`,
so Keras sees a step for each update: schedules, callbacks, checkpoints and history
count updates, and gradients are clipped and exchanged between replicas once, as a sum.
"""

from __future__ import annotations

import functools
from typing import Any

import tensorflow as tf
import tf_keras

from strategos.components.errors import UserError
from strategos.components.trainer.compat import compiled, keras3
from strategos.components.trainer.data.parts import cut, rows_of
from strategos.components.trainer.distribution.batch_checks import check_parts
from strategos.components.trainer.model.context import TrainingContext
from strategos.components.trainer.model.dropout import MicroBatch
from strategos.components.wording import listed, quoted

_KEY = "trainer.accumulate_steps"
_OWN = ("train_step", "compute_loss", "compute_metrics")


def accumulate(model: tf.keras.Model, context: TrainingContext, parts: int) -> None:
    """Makes a model's step compute its batch in micro-batches.

    A micro-batch has as many rows as `parts` equal parts of a full batch need; a
    smaller last batch of an epoch has fewer micro-batches.

    Args:
      model: The compiled model; its `train_step` is replaced.
      context: The training context.
      parts: Micro-batches of a full batch.

    Raises:
      UserError: The model cannot be trained in parts, or a replica's batch has fewer
        rows than `parts`.
    """
    of_replica = -(-context.global_batch_size // context.replicas)
    check_parts(context.global_batch_size, context.replicas, parts)
    if reason := _obstacle(model, context.target.outputs):
        raise _rejected(*reason)
    size = -(-of_replica // parts)
    model.train_step = functools.partial(_step, model, context, size)


def reject_sum() -> None:
    """Rejects a loss that is a sum over rows.

    Raises:
      UserError: Always.
    """
    raise _rejected(*_SUM)


_SUM = (
    "the model has a loss that is a sum over rows, not a mean",
    "Return a value for each row, or their mean; or remove the setting.",
)


def _rejected(why: str, remedy: str) -> UserError:
    return UserError(why, key=_KEY, remedy=remedy)


def _obstacle(model: tf.keras.Model, heads: tuple[str, ...]) -> tuple[str, str] | None:
    """Why a model cannot train in parts, and a remedy; None if it can."""
    remove = "Remove the setting, and choose a smaller `batch_size`."
    for name in _OWN:
        if keras3.is_overridden(model, name):
            return f"the model has a `{name}` of its own", remove
    inner = keras3.unscaled(model.optimizer)
    if getattr(inner, "gradient_accumulation_steps", None):
        return "the optimizer has `gradient_accumulation_steps`, too", "Remove one."
    if isinstance(inner, tf_keras.optimizers.legacy.Optimizer):
        return (
            f"{type(inner).__name__} is an optimizer of before Keras 2.11",
            "Use one of `tf.keras.optimizers`.",
        )
    if model.jit_compile:
        return "XLA compiles the step, and needs parts of a fixed size", remove
    if names := compiled.batch_normalizations(model):
        return (
            f"{listed(quoted(names))}: BatchNormalization takes the mean over a part, "
            "not over the batch",
            "Use LayerNormalization or GroupNormalization, set `trainable = False`, or "
            "remove the setting.",
        )
    if keras3.is_model(model) and heads:
        return (
            "Keras 3 logs the loss of each of several outputs as the mean over parts, "
            "not over batches",
            "Build the model with tf-keras (`import tf_keras as keras`), or remove the "
            "setting.",
        )
    for loss in tf.nest.flatten(model.loss):
        if getattr(loss, "reduction", None) in ("sum", "none"):
            return _SUM
    return None


def _step(
    model: tf.keras.Model, context: TrainingContext, size: int, data: Any
) -> dict[str, Any]:
    """A training step of at most `size` rows at a time."""
    whole = rows_of(data[1])

    def part(first: tf.Tensor) -> list[Any]:
        end = tf.minimum(first + size, whole)
        batch = cut(data, first, end)
        rows = end - first
        # Of no row the loss is 0, and the penalties count in full.
        weight = tf.where(whole > 0, rows / tf.maximum(whole, 1), 1.0)
        with context.training_step.on(MicroBatch(first, rows, whole)):
            return compiled.gradients_of(model, batch, weight)

    # The first part tells which gradients are sparse.
    sums = _Sums(part(tf.constant(0, tf.int64)))

    def following(first: tf.Tensor, *totals: Any) -> tuple[Any, ...]:
        return first + size, *sums.plus(totals, part(first))

    _, *totals = tf.while_loop(
        lambda first, *_: first < whole,
        following,
        (tf.constant(size, tf.int64), *sums.start),
        shape_invariants=(tf.TensorShape([]), *sums.shapes),
        parallel_iterations=1,  # or the parts are in memory together
    )
    return compiled.apply_gradients(model, sums.gradients(totals))


class _Sums:
    """Sums of gradients as tensors that a loop carries.

    Sparse gradients, e.g. of embeddings, are joined: optimizers add up the values of a
    row that occurs twice, as within one batch.

    Args:
      first: The gradients of the first part: tensors, `tf.IndexedSlices` or None.

    Attributes:
      start: Tensors of `first`.
      shapes: Their shapes; None for the number of rows of sparse gradients.
    """

    def __init__(self, first: list[Any]):
        self._first = first
        self.start = self._parts(first)
        self.shapes = self._parts([_shapes(each) for each in first])

    def plus(self, totals: tuple[Any, ...], more: list[Any]) -> list[Any]:
        """The tensors of the sums so far and of the gradients of another part."""
        parts, left = self._parts(more), list(totals)
        sums = []
        for gradient in self._first:
            if isinstance(gradient, tf.IndexedSlices):
                for _ in range(2):
                    sums.append(tf.concat([left.pop(0), parts.pop(0)], 0))
            elif gradient is not None:
                sums.append(left.pop(0) + parts.pop(0))
        return sums

    def gradients(self, totals: list[Any]) -> list[Any]:
        """The sums as gradients."""
        left, gradients = list(totals), []
        for gradient in self._first:
            if isinstance(gradient, tf.IndexedSlices):
                values, indices = left.pop(0), left.pop(0)
                gradients.append(
                    tf.IndexedSlices(values, indices, gradient.dense_shape)
                )
            else:
                gradients.append(None if gradient is None else left.pop(0))
        return gradients

    def _parts(self, gradients: list[Any]) -> list[Any]:
        parts = []
        for each in gradients:
            if isinstance(each, tf.IndexedSlices):
                parts += [each.values, each.indices]
            elif isinstance(each, tuple):
                parts += each
            elif each is not None:
                parts.append(each)
        return parts


def _shapes(gradient: Any) -> Any:
    if isinstance(gradient, tf.IndexedSlices):
        return (
            tf.TensorShape([None, *gradient.values.shape[1:]]),
            tf.TensorShape([None]),
        )
    return None if gradient is None else gradient.shape
