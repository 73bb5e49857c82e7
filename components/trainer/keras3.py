"""Keras 3 models (`import keras`) beside tf-keras, which `tf.keras` is here.

Both may be in one process. A Keras 3 model trains by its own `fit` under one device
and under Mirrored; elsewhere Keras 3 itself fails, and it is refused. The two packages
name most things alike, so that what differs is little and stands here.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import tensorflow as tf

from strategos.components.trainer.spec import Settings

STRATEGIES = ("one_device", "mirrored")
"""Under which a Keras 3 model trains."""

_HOOKS = ("train", "test", "predict")


def package_of(model: Any) -> ModuleType | None:
    """The Keras that `model` is made with: `tf.keras` or `keras`; None for no model."""
    if isinstance(model, tf.keras.Model):
        return tf.keras
    return _package() if is_model(model) else None


def is_model(model: Any) -> bool:
    """Whether `model` is one of Keras 3."""
    keras = _package()
    return keras is not None and isinstance(model, keras.Model)


def inputs_of(model: Any) -> dict[str, Any]:
    """The inputs of a functional model, by name of the feature; `{}` of others."""
    tensors = []
    with contextlib.suppress(ValueError):  # Keras 3: a Sequential that is not built
        tensors = getattr(model, "inputs", None) or []
    if is_model(model):
        # A dict goes by its keys. Keras 3 keeps `inputs` in the order of these.
        given = model.input if tensors else None
        names = sorted(given) if isinstance(given, dict) else [x.name for x in tensors]
    else:
        names = getattr(model, "input_names", None) or []
    return dict(zip(names, tensors, strict=True))


def taken(model: Any, features: Mapping[str, Any]) -> Mapping[str, Any]:
    """Those of `features` that a functional model of Keras 3 takes.

    Keras 3.14 pairs a dict with the inputs by position: one feature more and each input
    may silently get another's values. tf-keras goes by name.
    """
    names = inputs_of(model) if is_model(model) else None
    return {name: features[name] for name in names} if names else features


def batches(
    model: Any, feed: Callable[..., tf.data.Dataset]
) -> Callable[..., tf.data.Dataset]:
    """`feed`, whose batches of (features, label) are as `model` takes them."""
    if not is_model(model):
        return feed

    @tf.autograph.experimental.do_not_convert
    def pick(features: Mapping[str, Any], label: Any) -> tuple[Any, Any]:
        return taken(model, features), label

    return lambda *args, **kwargs: feed(*args, **kwargs).map(pick)


def is_callback(callback: Any) -> bool:
    """Whether `callback` is one of Keras 3."""
    keras = _package()
    return keras is not None and isinstance(callback, keras.callbacks.Callback)


def prepare(settings: Settings, seed: int, replicas: int) -> None:
    """Settings of Keras 3 as a package, where the user's module has imported it.

    To be called before the model is built.
    """
    keras = _package()
    if keras is None:
        return
    keras.utils.set_random_seed(seed)
    if settings.mixed_precision:
        policy = f"mixed_{settings.mixed_precision}"
        keras.mixed_precision.set_global_policy(policy)
    if replicas > 1 and keras.__version__.startswith("3.3."):
        _add_up_over_replicas(keras)


def compile_as(model: Any, settings: Settings) -> None:
    """What the settings say of how the `fit` of a Keras 3 model runs a step."""
    model.jit_compile = settings.jit_compile  # Keras's "auto" may choose XLA
    model.steps_per_execution = settings.steps_per_execution
    compute_loss = model.compute_loss
    signature = inspect.signature(compute_loss)

    @functools.wraps(compute_loss)
    def of_rows(*args: Any, **kwargs: Any) -> tf.Tensor:
        """0 for a replica without a row: Keras's mean over none is NaN."""
        loss = compute_loss(*args, **kwargs)
        labels = signature.bind(*args, **kwargs).arguments["y"]
        empty = tf.equal(tf.size(tf.nest.flatten(labels)[0]), 0)
        return tf.where(empty, tf.zeros_like(loss), loss)

    model.compute_loss = of_rows


def join(callback: Any) -> Any:
    """Lets a callback of Keras 3 be called by tf-keras's `CallbackList`; returns it."""
    if is_callback(callback):
        for name in _HOOKS:
            setattr(callback, f"_implements_{name}_batch_hooks", lambda: True)
    return callback


def _package() -> ModuleType | None:
    """Keras 3, if anybody has imported it."""
    return sys.modules.get("keras")


def _add_up_over_replicas(keras: ModuleType) -> None:
    """Makes replicas one training under Keras 3.3, as later versions do.

    It neither adds up the gradients of the replicas, which then go separate ways, nor
    divides the loss by their number, nor adds up what their metrics count.
    """
    from keras.src.backend.tensorflow.optimizer import TFOptimizer

    optimizer, metric = keras.optimizers.Optimizer, keras.metrics.Metric
    if getattr(metric, "_added_up", False):
        return
    update, scale = TFOptimizer._backend_update_step, optimizer.scale_loss
    add_variable = metric.add_variable

    def update_by_sum(self: Any, grads: Any, variables: Any, rate: Any) -> Any:
        pairs = self._all_reduce_sum_gradients(zip(grads, variables, strict=True))
        return update(self, [gradient for gradient, _ in pairs], variables, rate)

    def scale_by_replicas(self: Any, loss: tf.Tensor) -> tf.Tensor:
        return scale(self, loss) / tf.distribute.get_strategy().num_replicas_in_sync

    def add_summed_variable(self: Any, *args: Any, **kwargs: Any) -> Any:
        with tf.variable_creator_scope(_summed):
            return add_variable(self, *args, **kwargs)

    TFOptimizer._backend_update_step = update_by_sum
    optimizer.scale_loss = scale_by_replicas
    metric.add_variable = add_summed_variable
    metric._added_up = True


def _summed(create: Any, **kwargs: Any) -> tf.Variable:
    kwargs["synchronization"] = tf.VariableSynchronization.ON_READ
    kwargs["aggregation"] = tf.VariableAggregation.SUM
    return create(**kwargs)
