"""Lets tf-keras's `CallbackList` call callbacks of this project and of Keras 3."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import tf_keras

from strategos.components.trainer.compat import keras3


class TensorCallback(tf_keras.callbacks.Callback):
    """A callback that gets logs as tensors.

    tf-keras converts the logs of each step to NumPy, which waits for the device, unless
    every callback does without.
    """

    def __init__(self) -> None:
        super().__init__()
        self._supports_tf_logs = True


def join(callback: Any) -> tf_keras.callbacks.Callback:
    """Makes a callback of either Keras callable by tf-keras's `CallbackList`.

    Args:
      callback: A callback of tf-keras or Keras 3.

    Returns:
      The callback itself, or an adapter around it.
    """
    return _Adapter(callback) if keras3.is_callback(callback) else callback


def own(callback: tf_keras.callbacks.Callback) -> Any:
    """The callback that was passed to `join`."""
    return callback.adapted if isinstance(callback, _Adapter) else callback


def set_mode(callback: Any, mode: str) -> None:
    """Sets whether a monitoring callback takes lower or higher values as better.

    May be called at the end of each epoch.

    Args:
      callback: `EarlyStopping` or `ReduceLROnPlateau` of either Keras, or a callback
        with `monitor_op`, which compares a value with `best`.
      mode: `min` or `max`.
    """
    judge, larger = own(callback), mode == "max"
    delta = abs(getattr(judge, "min_delta", 0.0))
    is_plateau = isinstance(judge, keras3.classes("callbacks", "ReduceLROnPlateau"))
    if is_plateau and not hasattr(judge, "_is_improvement"):
        judge.monitor_op = functools.partial(_beats, larger, delta)
    else:  # the caller of `monitor_op` subtracts `min_delta` from the value
        judge.monitor_op = np.greater if larger else np.less
        if delta:
            judge.min_delta = delta if larger else -delta
    if judge.best is not None and np.isinf(judge.best):  # nothing was measured so far
        judge.best = -np.inf if larger else np.inf


def _beats(larger: bool, delta: float, value: float, best: float) -> bool:
    return value > best + delta if larger else value < best - delta


def watches_batches(callback: Any) -> bool:
    """Whether a callback is called for single batches of training.

    Args:
      callback: A callback of tf-keras or Keras 3.
    """
    return join(callback)._implements_train_batch_hooks()


class _Adapter(tf_keras.callbacks.Callback):
    """Forwards all calls to a Keras 3 callback."""

    def __init__(self, adapted: Any):
        super().__init__()
        self.adapted = adapted


def _passing_on(name: str) -> Callable[..., None]:
    def call(self: _Adapter, *args: Any, **kwargs: Any) -> None:
        getattr(self.adapted, name)(*args, **kwargs)

    return call


for _name in vars(tf_keras.callbacks.Callback):
    if _name.startswith(("on_", "set_")):
        setattr(_Adapter, _name, _passing_on(_name))
