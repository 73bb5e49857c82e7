"""One optimizer update at a time, for workers that share variables.

An optimizer of Keras reads and writes its slots and the weights in several operations.
Under parameter servers the update of another worker can run between any two of them:
Adam then divides a first moment that has a new gradient by the root of a second moment
that does not, and the row of an embedding grows by a factor of thousands in one step.
A lock around the whole update makes every optimizer correct, the user's own included,
because the lock assumes nothing about what the update does.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from strategos.components.errors import UserError
from strategos.components.trainer.compat import keras3

_numbers = itertools.count()


def lock_updates(model: tf.keras.Model) -> None:
    """Lets one worker at a time run `apply_gradients` of the model's optimizers.

    Each optimizer has its own lock, on the parameter server of its step counter. The
    lock is a tensor of the step that holds it: a step that fails releases it.

    Args:
      model: Compiled; its variables are on parameter servers. Its optimizers are all
        that TensorFlow tracks in it: those of a `train_step` with several included.

    Raises:
      UserError: The model is compiled with an optimizer that has no `apply_gradients`
        of Keras, one of `tf.compat.v1.train` for example.
    """
    if not keras3.is_optimizer(model.optimizer):
        kind = type(getattr(model.optimizer, "optimizer", model.optimizer))
        raise UserError(
            f"`build_model`: compiles the model with a {kind.__module__}."
            f"{kind.__qualname__}, expected an optimizer of `tf.keras.optimizers`: "
            "under parameter_server with several workers the updates of another one "
            "cannot be kept apart. Replace it, or set trainer.distribution.workers: 1."
        )
    for part in tf.train.TrackableView(model).descendants():
        if keras3.is_optimizer(part):
            _lock(part)


def _lock(optimizer: tf.keras.optimizers.Optimizer) -> None:
    device = optimizer.iterations.device
    with tf.device(device):
        mutex = tf.raw_ops.MutexV2(
            container="", shared_name=f"optimizer_update_{next(_numbers)}"
        )
    apply_gradients = optimizer.apply_gradients

    def apply_exclusively(
        grads_and_vars: Iterable[tuple[Any, tf.Variable]], *args: Any, **kwargs: Any
    ) -> Any:
        pairs = list(grads_and_vars)
        graph = tf.compat.v1.get_default_graph()
        # First the gradients, then the lock: nobody waits for another's backward pass.
        computed = [gradient for gradient, _ in pairs if gradient is not None]
        with tf.control_dependencies(computed), tf.device(device):
            lock = tf.raw_ops.MutexLock(mutex=mutex)
        first = len(graph.get_operations())
        with tf.control_dependencies([lock]):
            result = apply_gradients(pairs, *args, **kwargs)
        update = tf.group(*graph.get_operations()[first:])
        with tf.control_dependencies([update]), tf.device(device):
            tf.raw_ops.ConsumeMutexLock(mutex_lock=lock)
        return result

    optimizer.apply_gradients = apply_exclusively
