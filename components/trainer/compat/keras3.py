"""Supports Keras 3 models (`import keras`) next to tf-keras, which is `tf.keras` here.

Both packages may be used in one process. A Keras 3 model trains by its own `fit` on one
device and under Mirrored; under other strategies Keras 3 itself fails, so such a model
is rejected. The two packages share most names; the differences are handled here.
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
"""Strategies under which a Keras 3 model trains."""


def package_of(model: Any) -> ModuleType | None:
    """The Keras package of a model: `tf.keras` or `keras`; None for anything else."""
    if isinstance(model, tf.keras.Model):
        return tf.keras
    return _package() if is_model(model) else None


def is_model(model: Any) -> bool:
    """Whether `model` is a Keras 3 model."""
    keras = _package()
    return keras is not None and isinstance(model, keras.Model)


def is_optimizer(part: Any) -> bool:
    """Whether a part of a model is an optimizer, of either Keras."""
    kinds = (*classes("optimizers", "Optimizer"), tf.keras.optimizers.legacy.Optimizer)
    return isinstance(part, kinds)


def is_of_keras(part: Any) -> bool:
    """Whether an object's class, or a function, is of either Keras, not the user's."""
    return str(getattr(part, "__module__", "")).startswith(("tf_keras.", "keras."))


def classes(module: str, name: str) -> tuple[type, ...]:
    """The class of one name in each Keras package that this process has imported.

    Args:
      module: Module of the package, such as `callbacks`.
      name: Name of the class.
    """
    packages = filter(None, (tf.keras, _package()))
    return tuple(getattr(getattr(keras, module), name) for keras in packages)


def misses_overflows(model: Any, replicas: int) -> bool:
    """Whether float16 loss scaling misses overflows in some replicas.

    Keras 3 checks only the gradients of the first replica, before they are summed:
    infinite gradients of other replicas reach the weights.

    Args:
      model: A compiled model.
      replicas: Copies of the model that train together.
    """
    if not is_model(model) or replicas == 1:
        return False
    return isinstance(model.optimizer, _package().optimizers.LossScaleOptimizer)


def inputs_of(model: Any) -> dict[str, Any]:
    """The inputs of a functional model by feature name; `{}` for other models."""
    tensors = []
    with contextlib.suppress(ValueError):  # Keras 3: a Sequential that is not built
        tensors = getattr(model, "inputs", None) or []
    if is_model(model):
        # Keras 3 orders `inputs` by the sorted keys of a dict.
        given = model.input if tensors else None
        names = sorted(given) if isinstance(given, dict) else [x.name for x in tensors]
    else:
        names = getattr(model, "input_names", None) or []
    return dict(zip(names, tensors, strict=True))


def taken(model: Any, features: Mapping[str, Any]) -> Mapping[str, Any]:
    """The features that a functional Keras 3 model takes; all of them for other models.

    Keras 3.14 pairs a dict with the inputs by position: with one feature more, each
    input may silently get another feature's values. tf-keras pairs them by name.

    Args:
      model: The model.
      features: Tensors by feature name.
    """
    names = inputs_of(model) if is_model(model) else None
    return {name: features[name] for name in names} if names else features


def batches(
    model: Any, feed: Callable[..., tf.data.Dataset]
) -> Callable[..., tf.data.Dataset]:
    """Wraps `feed` so that its batches have only the features that `model` takes.

    Args:
      model: The model.
      feed: Returns a dataset of (features, label).
    """
    if not is_model(model):
        return feed

    @tf.autograph.experimental.do_not_convert
    def pick(features: Mapping[str, Any], label: Any) -> tuple[Any, Any]:
        return taken(model, features), label

    return lambda *args, **kwargs: feed(*args, **kwargs).map(pick)


def is_callback(callback: Any) -> bool:
    """Whether `callback` is a Keras 3 callback."""
    keras = _package()
    return keras is not None and isinstance(callback, keras.callbacks.Callback)


def prepare(settings: Settings, seed: int) -> None:
    """Sets seed and precision of Keras 3, if the user's module has imported it.

    Must be called before the model is built.

    Args:
      settings: The settings of the run.
      seed: The seed of the run.
    """
    keras = _package()
    if keras is None:
        return
    keras.utils.set_random_seed(seed)
    if settings.mixed_precision:
        policy = f"mixed_{settings.mixed_precision}"
        keras.mixed_precision.set_global_policy(policy)


def compile_as(model: Any, settings: Settings) -> None:
    """Sets XLA and the steps per execution of a Keras 3 model's `fit`.

    Also makes the loss of a replica without rows 0 instead of NaN.

    Args:
      model: The compiled model.
      settings: The settings of the run.
    """
    model.jit_compile = settings.jit_compile  # Keras's "auto" may choose XLA
    model.steps_per_execution = settings.steps_per_execution or 1
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
    """Chooses steps per execution that divide an epoch of a Keras 3 model.

    Keras 3 runs the last execution in full, beyond the epoch; tf-keras runs only the
    steps that are left.

    Args:
      model: The compiled model.
      steps: Steps of an epoch.
    """
    asked = model.steps_per_execution
    fitting = max(n for n in range(1, asked + 1) if steps % n == 0)
    if fitting < asked:
        logging.info(
            "%d steps per execution do not divide the %d steps of an epoch, which a "
            "Keras 3 model requires: using %d",
            asked,
            steps,
            fitting,
        )
    model.steps_per_execution = fitting


def _package() -> ModuleType | None:
    """Keras 3, if it has been imported."""
    return sys.modules.get("keras")
