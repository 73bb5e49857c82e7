"""One optimizer update at a time, for workers that share variables.

A Keras optimizer reads and writes its slots and the weights in several operations.
Under parameter servers, another worker's update can run between any two of them: Adam
then divides a first moment that includes a new gradient by the root of a second moment
that does not, and the row of an embedding grows by a factor of thousands in one step. A
lock around the whole update makes every optimizer correct, including the user's own,
because it assumes nothing about the update.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from strategos.components.errors import UserError
from strategos.components.trainer.compat import keras3

_numbers = itertools.count()


def lock_updates(model: tf.keras.Model) -> list[Any]:
    """Lets one worker at a time run `apply_gradients` of the model's optimizers.

    Each optimizer has its own lock, on the parameter server of its step counter. The
    lock is a tensor of the step that holds it, so a step that fails releases it. An
    optimizer that is locked already stays as it is.

    Args:
      model: A compiled model with variables on parameter servers. All optimizers that
        TensorFlow tracks in it are locked, e.g. a second one for a `train_step`.

    Returns:
      These optimizers.

    Raises:
      UserError: The model is compiled with an optimizer without Keras's
        `apply_gradients`, e.g. an optimizer of `tf.compat.v1.train`.
    """
    if not keras3.is_optimizer(model.optimizer):
        kind = type(getattr(model.optimizer, "optimizer", model.optimizer))
        raise UserError(
            f"`build_model`: compiles the model with a {kind.__module__}."
            f"{kind.__qualname__}, expected an optimizer of `tf.keras.optimizers`: "
            "under parameter_server with several workers the updates of another one "
            "cannot be kept apart. Replace it, or set trainer.distribution.workers: 1."
        )
    parts = tf.train.TrackableView(model).descendants()
    optimizers = list(filter(keras3.is_optimizer, parts))
    for optimizer in optimizers:
        # That of Keras 3 calls its `apply`, which a loop may call, too.
        name = "apply" if hasattr(optimizer, "apply") else "apply_gradients"
        if name not in vars(optimizer):
            lock = _lock_apply if name == "apply" else _lock_apply_gradients
            lock(optimizer)
    return optimizers


def lock_of(
    optimizer: Any,
) -> Callable[[Sequence[Any]], contextlib.AbstractContextManager[None]]:
    """A lock for updates of an optimizer and of other variables in the same step.

    Args:
      optimizer: An optimizer of either Keras with its step counter.

    Returns:
      A function for a traced step. It takes the tensors that are computed before the
      lock is taken, so that no worker waits for a backward pass, and returns a context
      manager: one worker at a time runs the operations made in its `with` block.
    """
    device = keras3.of_tensorflow(optimizer.iterations).device
    with tf.device(device):
        mutex = tf.raw_ops.MutexV2(
            container="", shared_name=f"optimizer_update_{next(_numbers)}"
        )

    @contextlib.contextmanager
    def locked(computed: Sequence[Any]) -> Iterator[None]:
        graph = tf.compat.v1.get_default_graph()
        with tf.control_dependencies(computed), tf.device(device):
            lock = tf.raw_ops.MutexLock(mutex=mutex)
        first = len(graph.get_operations())
        with tf.control_dependencies([lock]):
            yield
        update = tf.group(*graph.get_operations()[first:])
        with tf.control_dependencies([update]), tf.device(device):
            tf.raw_ops.ConsumeMutexLock(mutex_lock=lock)

    return locked


def _lock_apply_gradients(optimizer: Any) -> None:
    locked, apply_gradients = lock_of(optimizer), optimizer.apply_gradients

    def apply_exclusively(
        grads_and_vars: Iterable[tuple[Any, tf.Variable]], *args: Any, **kwargs: Any
    ) -> Any:
        pairs = list(grads_and_vars)
        with locked([gradient for gradient, _ in pairs if gradient is not None]):
            return apply_gradients(pairs, *args, **kwargs)

    optimizer.apply_gradients = apply_exclusively


def _lock_apply(optimizer: Any) -> None:
    locked, apply = lock_of(optimizer), optimizer.apply

    def apply_exclusively(
        grads: Iterable[Any], trainable_variables: Iterable[Any] | None = None
    ) -> None:
        gradients, variables = list(grads), trainable_variables
        if variables is not None:
            variables = list(variables)
            if not optimizer.built:  # initial values cannot wait for a lock
                with tf.init_scope():
                    optimizer.build(variables)
        with locked([each for each in gradients if each is not None]):
            apply(gradients, variables)

    optimizer.apply = apply_exclusively
