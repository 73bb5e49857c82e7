"""Makes losses that are means or sums over rows correct on several replicas.

Keras divides the loss of each replica by the number of replicas, which is right for a
mean over rows. A sum, e.g. `tf.nn.compute_average_loss(…, global_batch_size=64)`, would
be divided once too often, gradients included. A loss that compares rows depends on the
rows that a replica has. The code of a loss does not show its kind, so the loss is
computed on a few rows and on their halves.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras

from strategos.components.errors import UserError
from strategos.components.trainer.compat import autograph, compiled, keras3, tracing
from strategos.components.trainer.data.parts import cut, rows_of
from strategos.components.trainer.model import effects
from strategos.components.trainer.model.replicas import local_values

SAYS = "loss_over_replicas"
"""Attribute of a model that declares its losses over rows to be `mean` or `sum`."""

_TOLERANCE = 1e-3
_ADDS_UP = (
    "is a sum over rows, or divides by a fixed number of them: on several replicas "
    "Keras takes it as a mean over the rows of each. Divide by the rows of the batch, "
    "as `tf.reduce_mean` does."
)

_OF_KERAS_3 = (
    "the loss is one number for a batch, and a mean over its rows: Keras 3 adds up the "
    "numbers of several replicas. Return one value for each row, which Keras averages, "
    "or train with trainer.distribution.strategy: one_device."
)

Judge = Callable[[Any, Any], tf.Tensor]


def combine(
    model: tf.keras.Model,
    outputs: Any,
    features: Mapping[str, Any],
    labels: Any,
    where: str,
) -> bool:
    """Finds whether each loss is a mean or a sum over rows, and makes it count as such.

    Call it for a model of several replicas, or one that trains its batches in parts,
    before its first loss. A `train_step` of the model's own usually computes the
    compiled losses, too.

    Args:
      model: A compiled model with all its variables; its losses are changed in place.
      outputs: Its outputs on a sample batch, `[rows, …]`, flat or nested.
      features: The features of the sample.
      labels: The labels of the sample, `[rows, k]`; of several heads by output.
      where: Name of the function that made the model, for messages.

    Returns:
      Whether a loss is a sum: its value depends on the number of rows in a batch.

    Raises:
      UserError: A loss is neither a mean nor a sum and the model does not declare it,
        e.g. a loss that compares rows; the losses of `add_loss` are a sum; the declared
        kind is unknown; or a loss of a Keras 3 model is a mean.
    """
    losses = effects.by_output(model, outputs)
    reductions = {getattr(loss, "reduction", None) for loss, _ in losses.values()}
    rows = tf.nest.flatten(labels)[0].shape[0] // 2 * 2
    if not rows:
        return "sum" in reductions
    probe = _Probe(model, rows, where)
    kinds = probe.kinds(losses, labels)
    several = tf.distribute.get_strategy().num_replicas_in_sync > 1
    if several and keras3.is_model(model) and "mean" in kinds.values():
        raise UserError(f"{where}: {_OF_KERAS_3}")
    if not keras3.is_model(model):
        compiled.replace_losses(model, lambda loss: _counted(loss, kinds.get(id(loss))))
    if compiled.adds_losses(model):
        probe.check_added(keras3.taken(model, features))
    return "sum" in {*kinds.values(), *reductions}


def check_weighted(
    model: tf.keras.Model, outputs: Any, labels: Any, where: str
) -> None:
    """Rejects a loss that is one number for a batch, of rows that have weights.

    Keras multiplies each row's loss by its weight; it would multiply the number by the
    mean of the weights.

    Args:
      model: A compiled model with Keras's own `train_step`.
      outputs: Its outputs on a sample batch, `[rows, …]`, flat or nested.
      labels: The labels of the sample, `[rows, k]`; of several heads by output.
      where: Name of the function that made the model, for messages.

    Raises:
      UserError: A loss of the user's own gives no value for each row.
    """
    for name, (loss, output) in effects.by_output(model, outputs).items():
        is_own = callable(loss) and not keras3.is_of_keras(loss)
        if (
            is_own
            and not compiled.has_own_call(loss)
            and _is_scalar(loss, _of(labels, name), output)
        ):
            raise UserError(
                f"{where}: the loss of the output `{name}` is one number for a batch, "
                "which the weights of its rows cannot weigh (`weight`, "
                "`trainer.class_weight`). Return one value for each row, which Keras "
                "weighs and averages."
            )


def _of(labels: Any, output: str) -> tf.Tensor:
    """The labels of an output: those of its head, or the only ones."""
    return labels[output] if isinstance(labels, Mapping) else labels


def _is_scalar(loss: Any, labels: tf.Tensor, output: tf.Tensor) -> bool:
    if labels.dtype.is_floating:
        labels = tf.cast(labels, output.dtype)
    compute = autograph.converted(_function_of(loss))
    value = tracing.shapes(lambda: tf.convert_to_tensor(compute(labels, output)))
    return value.shape.rank == 0


class _Probe:
    """Computes losses on an even number of rows and on their two halves."""

    def __init__(self, model: tf.keras.Model, rows: int, where: str):
        self._model, self._where = model, where
        half = rows // 2
        self._parts = (slice(0, rows), slice(0, half), slice(half, rows))
        self._says = getattr(model, SAYS, None)
        if self._says not in (None, "mean", "sum"):
            raise UserError(
                f"{where}: `model.{SAYS}` is {self._says!r}, expected 'mean' or 'sum'."
            )

    def kinds(
        self, losses: Mapping[str, tuple[Any, tf.Tensor]], labels: Any
    ) -> dict[int, str]:
        """The kind of each loss of the user's by its id: `rows`, `mean` or `sum`."""
        kinds_of = {}
        for name, (loss, output) in losses.items():
            if loss is None or keras3.is_of_keras(loss) or isinstance(loss, str):
                continue  # Keras's own give a value for each row
            own = _of(labels, name)
            kinds_of[id(loss)] = self._kind(loss, output, own, name)
        return kinds_of

    def _kind(self, loss: Any, output: Any, labels: tf.Tensor, name: str) -> str:
        if labels.dtype.is_floating:
            labels = tf.cast(labels, output.dtype)
        compute = autograph.converted(_function_of(loss))

        def values() -> list[Any]:
            computed = (compute(labels[part], output[part]) for part in self._parts)
            return [tf.convert_to_tensor(value) for value in computed]

        kind = _judged(*self._computed(values))
        if kind == "rows" or (kind and not self._says):
            return kind
        return self._said(f"the loss of the output `{name}`")

    def check_added(self, features: Mapping[str, Any]) -> None:
        """Checks the losses of `add_loss`, which Keras takes as means over rows.

        Args:
          features: The features of the sample.

        Raises:
          UserError: The losses are a sum, or neither a mean nor a sum.
        """

        def added(part: slice) -> tf.Tensor:
            self._model(cut(dict(features), part.start, part.stop))
            return tf.add_n([tf.cast(x, tf.float32) for x in self._model.losses])

        def values() -> list[tf.Tensor]:
            return local_values.of_first(lambda: list(map(added, self._parts)))

        kind = _judged(*self._computed(values))
        if not kind or self._says:
            kind = self._said("what layers give to `add_loss`")
        if kind == "sum":
            raise UserError(f"{self._where}: what layers give to `add_loss` {_ADDS_UP}")

    def _computed(self, values: Callable[[], list[Any]]) -> list[np.ndarray]:
        losses = values() if self._model.run_eagerly else tracing.values(values)
        return [np.asarray(value, np.float64) for value in losses]

    def _said(self, what: str) -> str:
        if self._says:
            return self._says
        raise UserError(
            f"{self._where}: {what} is neither a mean nor a sum over the rows of a "
            "batch: its values on two halves of a batch do not make up the value on "
            "the whole, as with a loss that compares rows or is random. Each of "
            "several replicas, and each part of a batch (trainer.accumulate_steps), "
            "would compute it on its own rows. If that is meant, set "
            f'`model.{SAYS} = "mean"` (or "sum") in `build_model`; otherwise use '
            "trainer.distribution.strategy: one_device without accumulate_steps."
        )


def _judged(whole: np.ndarray, first: np.ndarray, second: np.ndarray) -> str | None:
    """The kind of a loss, `rows`, `mean` or `sum`, from its values; None if unknown."""
    if whole.ndim and first.shape != whole.shape:
        by_row = np.concatenate([first, second])
        same = by_row.shape == whole.shape and _close(by_row, whole)
        return "rows" if same else None
    if not np.isfinite(whole).all() or _close((first + second) / 2, whole):
        return "mean"
    return "sum" if _close(first + second, whole) else None


def _close(a: np.ndarray, b: np.ndarray) -> bool:
    return np.allclose(a, b, rtol=_TOLERANCE, atol=1e-6, equal_nan=True)


def _function_of(loss: Any) -> Judge:
    """The function that computes a loss before Keras combines its rows.

    The loss itself if Keras does not combine its rows.
    """
    if not hasattr(loss, "call") or compiled.has_own_call(loss):
        return loss
    return loss.call


def _counted(loss: Any, kind: str | None) -> Any:
    """Scales a loss so that Keras combines the replicas' values correctly.

    Keras divides a loss by the number of replicas, and logs the mean of the replicas'
    values, weighted by their rows. It adds up a loss with the reduction `sum`, and logs
    the value times the number of replicas: right if all have equally many rows.

    Args:
      loss: The loss as given.
      kind: `rows`, `mean` or `sum`; None for a loss of Keras.
    """
    adds_up = getattr(loss, "reduction", None) == "sum"
    if not adds_up and kind != "sum":
        return loss

    def counted(value: tf.Tensor, labels: Any) -> tf.Tensor:
        replica = tf.distribute.get_replica_context()
        if replica is None:
            return value
        if adds_up and kind == "mean":
            return value / replica.num_replicas_in_sync
        rows = tf.cast(rows_of(labels), value.dtype)
        whole = replica.all_reduce(tf.distribute.ReduceOp.SUM, rows)
        if adds_up:
            whole /= replica.num_replicas_in_sync
        return value * tf.math.divide_no_nan(whole, rows)

    return changed(loss, counted)


def changed(loss: Any, by: Callable[[tf.Tensor, Any], tf.Tensor]) -> Any:
    """A loss or metric that changes the values of a given one.

    Args:
      loss: A function, a callable object or a `Loss`; anything else, e.g. a name, is
        returned unchanged.
      by: Returns the new value, given the value and the labels.
    """
    if isinstance(loss, tf_keras.losses.Loss):  # not in place: it may be shared
        return compiled.around(loss, by)
    if isinstance(loss, str) or not callable(loss):
        return loss

    @functools.wraps(loss)
    def values(labels: Any, *args: Any, **kwargs: Any) -> tf.Tensor:
        losses = autograph.converted(loss)(labels, *args, **kwargs)
        return by(tf.convert_to_tensor(losses), labels)

    return values
