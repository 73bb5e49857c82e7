"""Keras 3 models (`import keras`) beside tf-keras, which `tf.keras` is here.

Both may be in one process. A Keras 3 model trains by its own `fit` under one device
and under Mirrored; elsewhere Keras 3 itself fails, and it is refused. The two packages
name most things alike, so that what differs is little and stands here.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import logging
import sys
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import tensorflow as tf

from strategos.components.trainer.spec import Settings

STRATEGIES = ("one_device", "mirrored")
"""Under which a Keras 3 model trains."""


def package_of(model: Any) -> ModuleType | None:
    """The Keras that `model` is made with: `tf.keras` or `keras`; None for no model."""
    if isinstance(model, tf.keras.Model):
        return tf.keras
    return _package() if is_model(model) else None


def is_model(model: Any) -> bool:
    """Whether `model` is one of Keras 3."""
    keras = _package()
    return keras is not None and isinstance(model, keras.Model)


def is_optimizer(part: Any) -> bool:
    """Whether `part` of a model is an optimizer, of either Keras."""
    kinds = (*classes("optimizers", "Optimizer"), tf.keras.optimizers.legacy.Optimizer)
    return isinstance(part, kinds)


def is_of_keras(part: Any) -> bool:
    """Whether the class of `part` is one of either Keras, not one of the user's."""
    return type(part).__module__.startswith(("tf_keras.", "keras."))


def classes(module: str, name: str) -> tuple[type, ...]:
    """The class of this name in each Keras that this process has imported."""
    packages = filter(None, (tf.keras, _package()))
    return tuple(getattr(getattr(keras, module), name) for keras in packages)


def misses_overflows(model: Any, replicas: int) -> bool:
    """Whether float16's loss scaling is blind to what overflows in a replica.

    Keras 3 asks the first replica alone whether gradients are finite, and that before
    they are summed: infinite ones of the others reach the weights.
    """
    if not is_model(model) or replicas == 1:
        return False
    return isinstance(model.optimizer, _package().optimizers.LossScaleOptimizer)


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


def prepare(settings: Settings, seed: int) -> None:
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


def divide_epoch(model: Any, steps: int) -> None:
    """Lets the executions of a Keras 3 model fill an epoch of `steps` steps.

    Keras 3 runs the last one whole, beyond the epoch; tf-keras only what is left.
    """
    asked = model.steps_per_execution
    fitting = max(n for n in range(1, asked + 1) if steps % n == 0)
    if fitting < asked:
        logging.info(
            "%d steps per execution do not divide the %d steps of an epoch, as a Keras "
            "3 model needs it: it takes %d",
            asked,
            steps,
            fitting,
        )
    model.steps_per_execution = fitting


def _package() -> ModuleType | None:
    """Keras 3, if anybody has imported it."""
    return sys.modules.get("keras")
