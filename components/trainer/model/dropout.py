"""A dropout layer, for either Keras, that keeps a resumed training bit-exact."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from strategos.components.trainer.compat import keras3

_NOT_ROWS = (
    "The first axis of the input of `context.dropout` must be the batch, or have "
    "as many entries for each of its rows: otherwise replicas cannot find their parts "
    "of the mask. Use Keras's own `Dropout` there."
)


@dataclasses.dataclass(frozen=True)
class MicroBatch:
    """A part of a replica's batch, see `trainer.accumulate_steps`; int64 scalars.

    Attributes:
      first: Number of its first row in the replica's batch.
      rows: Its rows.
      whole: Rows of the replica's batch.
    """

    first: tf.Tensor
    rows: tf.Tensor
    whole: tf.Tensor


class TrainingStep:
    """The step of a training, for layers that are made before its optimizer exists.

    Layers may be made anywhere, e.g. in `build` of another layer, or be called by a
    function that no model tracks. So all layers of one context share this object.
    """

    def __init__(self) -> None:
        self._model: tf.keras.Model | None = None
        self._first = 0
        self._of_thread = threading.local()  # each replica is traced in its own

    @property
    def micro_batch(self) -> MicroBatch | None:
        """The part of the batch that this thread traces; None for all of it."""
        return getattr(self._of_thread, "micro_batch", None)

    @contextlib.contextmanager
    def on(self, micro_batch: MicroBatch) -> Iterator[None]:
        """Marks operations traced in the `with` block: their batch is a micro-batch."""
        self._of_thread.micro_batch = micro_batch
        try:
            yield
        finally:
            self._of_thread.micro_batch = None

    def follow(self, model: tf.keras.Model, first: int = 0) -> None:
        """Takes the step from the optimizer of a model.

        Args:
          model: The compiled model that trains, of either Keras.
          first: Steps of earlier phases, which had optimizers of their own.
        """
        self._model, self._first = model, first

    def __call__(self) -> tf.Tensor:
        """Number of updates since the start of training, int64 scalar; 0 at first."""
        if self._model is None:
            return tf.constant(0, tf.int64)
        optimizer = self._model.optimizer
        if keras3.is_model(self._model):  # around it, float16 counts more than updates
            optimizer = keras3.unscaled(optimizer)
        updates = keras3.of_tensorflow(optimizer.iterations)
        return tf.cast(updates, tf.int64) + self._first


def layer(keras: Any, rate: float, **masks: Any) -> Any:
    """A dropout layer of a Keras package with masks from seed, step and row.

    Keras's Dropout draws other masks on two replicas than on one device, and tf-keras's
    keeps its random state in an operation that no checkpoint stores. Here the mask of a
    global batch is drawn from (seed, optimizer step), and each replica uses its own
    rows of the mask. So masks are equal after a resume and under every synchronous
    strategy. Made by `TrainingContext.dropout`.

    A step is an update of the optimizer, one for each batch; the micro-batches of
    `trainer.accumulate_steps` use their rows of the same mask. A model that accumulates
    the gradients of several batches in its own step uses one mask for all of them; if
    the last batch is smaller, its result depends on the number of replicas.

    Input shape: `[rows, …]`, any floating dtype; output shape and dtype are the same.
    The first axis may also hold several entries for each row, row after row, as after
    `tf.reshape(x, [-1, d])`.

    Args:
      keras: The package: `keras` or `tf_keras`.
      rate: Fraction of the values to drop, in [0, 1).
      **masks: Arguments of `Masks`.

    Raises:
      ValueError: `rate` is outside of [0, 1).
    """
    if not 0 <= rate < 1:
        raise ValueError(f"`rate` must be in [0, 1). Received: rate={rate}")
    return _kind(keras.layers.Layer)(Masks(rate, **masks))


def is_ours(layer: Any) -> bool:
    """Whether a layer was made by `layer`."""
    return isinstance(getattr(layer, "masks", None), Masks)


@functools.cache  # a model names its layers by their class
def _kind(base: type) -> type:
    class Dropout(base):
        def __init__(self, masks: Masks):
            super().__init__()
            self.masks = masks

        def call(self, inputs: tf.Tensor, training: bool | None = None) -> tf.Tensor:
            if not tf.is_tensor(inputs):
                raise TypeError(f"expected a tensor. Received: inputs={inputs}")
            return self.masks(inputs) if training and self.masks.rate else inputs

    Dropout.__qualname__ = Dropout.__name__  # in messages
    return Dropout


@dataclasses.dataclass(frozen=True)
class Masks:
    """The masks of a dropout layer in training.

    Attributes:
      rate: Fraction of the values to drop, in [0, 1).
      seed: Seed of the masks; different for each layer of a model.
      step: The current step; for a micro-batch, its place in the replica's batch.
      rows_of: Returns the rows of the global batch of a step; int64 scalar to int64
        scalar.
    """

    rate: float
    seed: int
    step: TrainingStep
    rows_of: Callable[[tf.Tensor], tf.Tensor]

    def __call__(self, inputs: tf.Tensor) -> tf.Tensor:
        """Drops values of `inputs`, `[rows, …]`, and scales the others."""
        step = self.step()
        rows = tf.shape(inputs, tf.int64)[0]
        first, in_all = place(rows, lambda: self.rows_of(step), self.step.micro_batch)
        drawn = tf.random.stateless_uniform(
            tf.concat([[in_all], tf.shape(inputs, tf.int64)[1:]], 0),
            seed=tf.stack([tf.constant(self.seed, tf.int64), step]),
        )
        kept = drawn[first : first + rows] >= self.rate
        return tf.where(kept, inputs / (1 - self.rate), tf.zeros_like(inputs))


def place(
    rows: tf.Tensor, in_all: Callable[[], tf.Tensor], part: MicroBatch | None
) -> tuple[tf.Tensor, tf.Tensor]:
    """The first row of this input in the global batch, and the rows of all replicas.

    Args:
      rows: Rows of this replica, or entries if each row has several; int64 scalar.
      in_all: Returns the rows of the global batch, int64 scalar.
      part: The micro-batch that is computed on; None for the whole batch.

    A single replica has all rows. This includes parameter servers, where the step does
    not identify the batch, and a call on a sample outside of a step.
    """
    replica = tf.distribute.get_replica_context()
    if replica is None or replica.num_replicas_in_sync == 1:
        if part is None:
            return tf.constant(0, tf.int64), rows
        return _checked(rows, part.rows, part.first, part.whole)
    whole = in_all()
    number = tf.cast(replica.replica_id_in_sync_group, tf.int64)
    share = whole // replica.num_replicas_in_sync
    more = whole % replica.num_replicas_in_sync
    first = number * share + tf.minimum(number, more)
    if part is not None:
        return _checked(rows, part.rows, first + part.first, whole)
    mine = share + tf.cast(number < more, tf.int64)
    return _checked(rows, mine, first, whole)


def _checked(
    rows: tf.Tensor, mine: tf.Tensor, first: tf.Tensor, whole: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """`first` and `whole` for an input with several entries for each of its rows."""
    entries = rows // tf.maximum(mine, 1)  # of each row
    with tf.control_dependencies(
        [tf.debugging.assert_equal(rows, mine * entries, _NOT_ROWS)]
    ):
        return first * entries, whole * entries
