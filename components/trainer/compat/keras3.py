"""Supports Keras 3 models (the package `keras`) next to those of tf-keras.

Both packages may be used in one process. `tf.keras` is one of them, tf-keras unless
`trainer.keras` is 3, so Strategos imports `tf_keras` where it means that package. A
Keras 3 model trains by steps of Strategos (`loop/steps.py`), because its own
`fit` fails between workers. The two packages share most names; the differences are
handled here.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import tensorflow as tf
import tf_keras

from strategos.components.trainer.spec import Settings

STRATEGIES = (
    *("one_device", "mirrored", "multi_worker_mirrored", "central_storage"),
    "parameter_server",
)
"""Strategies under which a Keras 3 model trains."""

_STEP = threading.local()  # replicas are threads; their rows, and share of a step's


def package_of(model: Any) -> Any:
    """The Keras package of a model: `tf_keras` or `keras`; None for anything else."""
    if isinstance(model, tf_keras.Model):
        return tf_keras
    return _package() if is_model(model) else None


def is_model(model: Any) -> bool:
    """Whether `model` is a Keras 3 model."""
    return isinstance(model, _class("Model"))


def is_optimizer(part: Any) -> bool:
    """Whether a part of a model is an optimizer, of either Keras."""
    kinds = (*classes("optimizers", "Optimizer"), tf_keras.optimizers.legacy.Optimizer)
    return isinstance(part, kinds)


def unscaled(optimizer: Any) -> Any:
    """An optimizer, or the one that a wrapper which scales the loss (float16) calls."""
    return getattr(optimizer, "inner_optimizer", optimizer)


def is_of_keras(part: Any) -> bool:
    """Whether an object's class, or a function, is of either Keras, not the user's."""
    return str(getattr(part, "__module__", "")).startswith(("tf_keras.", "keras."))


def classes(module: str, name: str) -> tuple[type, ...]:
    """The class of one name in each Keras package that this process has imported.

    Args:
      module: Module of the package, such as `callbacks`.
      name: Name of the class.
    """
    packages = filter(None, (tf_keras, _package()))
    return tuple(getattr(getattr(keras, module), name) for keras in packages)


def of_tensorflow(variable: Any) -> tf.Variable:
    """The TensorFlow variable of a variable of either Keras."""
    return variable.value if isinstance(variable, _class("Variable")) else variable


def is_total_of_replicas(part: Any) -> bool:
    """Whether `part` is a variable to which each replica adds its own part."""
    variable = of_tensorflow(part)
    kind = [getattr(variable, x, None) for x in ("synchronization", "aggregation")]
    return kind == [tf.VariableSynchronization.ON_READ, tf.VariableAggregation.SUM]


def unsynchronized(model: Any) -> list[Any]:
    """The variables of a Keras 3 model that each replica updates for itself.

    Keras 3 gives its variables no aggregation: each replica's copy of a moving average
    sees only the rows of that replica.

    Returns:
      Floating TensorFlow variables; [] for a single replica.
    """
    if tf.distribute.get_strategy().num_replicas_in_sync == 1:
        return []
    variables = map(of_tensorflow, model.non_trainable_variables)
    return [
        variable
        for variable in variables
        if variable.dtype.is_floating
        and variable.aggregation == tf.VariableAggregation.NONE
    ]


def normalizes_replicas(model: Any) -> bool:
    """Whether a Keras 3 model has BatchNormalization over the rows of each replica."""
    kind = _package().layers.BatchNormalization
    layers = (x for x in model._flatten_layers() if isinstance(x, kind))
    return not all(layer.synchronized for layer in layers)


def own_metrics(model: Any) -> list[str]:
    """Names of the metrics of a Keras 3 model's `compile` that are not of Keras."""
    config = model._compile_config.config
    lists = [config.get(name) or [] for name in ("metrics", "weighted_metrics")]
    metrics = tf.nest.flatten(lists)
    own = (x for x in metrics if not (isinstance(x, str) or is_of_keras(type(x))))
    return sorted({getattr(x, "name", None) or x.__name__ for x in own})


def layer_of_tf_keras(model: Any) -> Any:
    """A layer of tf-keras within a Keras 3 model; None if there is none.

    Keras 3 calls such a layer, but does not train its weights.
    """
    parts = tracked(model)
    return next((x for x in parts if isinstance(x, tf_keras.layers.Layer)), None)


def tracked(model: Any) -> Iterator[Any]:
    """All objects that TensorFlow finds in a model of either Keras, by attributes.

    Those in a Keras 3 model's lists and dicts, too.
    """
    for root in (model, *contained(model)):
        yield from tf.train.TrackableView(root).descendants()


def layer_called(error: BaseException) -> Any:
    """The layer of tf-keras that failed on a symbolic tensor of Keras 3, or None."""
    kind = _class("KerasTensor")
    for frame, _ in traceback.walk_tb(error.__traceback__):
        arguments = frame.f_locals.get("args", ())  # of the wrapper around `__call__`
        layer, *inputs = (
            arguments if isinstance(arguments, tuple) and arguments else (None,)
        )
        is_layer = isinstance(layer, tf_keras.layers.Layer)
        if is_layer and any(isinstance(x, kind) for x in tf.nest.flatten(inputs)):
            return layer
    return None


def lacks_package(error: BaseException) -> bool:
    """Whether Keras 3 failed on a symbolic tensor of tf-keras, such as an input."""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        if frame.f_globals.get("__name__", "").startswith("keras."):
            arguments = tf.nest.flatten([*map(frame.f_locals.get, ("args", "kwargs"))])
            if any(isinstance(x, tf_keras.__internal__.KerasTensor) for x in arguments):
                return True
    return False


def random_state(model: Any) -> dict[str, Any]:
    """The state of the random numbers that Keras 3 draws without a seed generator.

    Returns:
      The argument `random` of a Checkpoint; {} if `model` is not of Keras 3.
    """
    if not is_model(model):
        return {}
    from keras.src.random import seed_generator

    return {"random": seed_generator.global_seed_generator().state}


def contained(model: Any) -> list[Any]:
    """Trackable objects in the lists, dicts and sets of a Keras 3 model's layers.

    Keras wraps these containers, and TensorFlow does not look into them.
    """
    if not is_model(model):
        return []
    keys = [(x, name) for x in model._flatten_layers() for name in x._tracked]
    attributes = (tf.nest.flatten(getattr(layer, name, None)) for layer, name in keys)
    kind = tf.__internal__.tracking.Trackable
    return [x for parts in attributes for x in parts if isinstance(x, kind)]


def scaling_optimizer() -> type:
    """The class of the optimizer of Keras 3 that scales the loss for float16.

    It checks only the gradients of the first replica, before they are summed: infinite
    gradients of other replicas reach the weights.
    """
    return _package().optimizers.LossScaleOptimizer


def is_overridden(model: Any, method: str) -> bool:
    """Whether a model's class overrides a method of Keras's `Model`."""
    plain = package_of(model).Model
    return getattr(type(model), method) is not getattr(plain, method)


def inputs_of(model: Any) -> dict[str, Any]:
    """The inputs of a functional model by feature name; `{}` for other models."""
    tensors: list[Any] = []
    with contextlib.suppress(ValueError):  # Keras 3: a Sequential that is not built
        tensors = getattr(model, "inputs", None) or []
    if is_model(model):
        # Keras 3 orders `inputs` by the sorted keys of a dict.
        functional = getattr(model, "_functional", None) or model  # of a Sequential
        declared = functional.input if tensors else None
        names = [x.name for x in tensors]
        if isinstance(declared, dict):
            names = sorted(declared)
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
      feed: Returns a dataset of (features, label), perhaps with weights.
    """
    if not is_model(model):
        return feed

    @tf.autograph.experimental.do_not_convert
    def pick(features: Mapping[str, Any], *others: Any) -> tuple[Any, ...]:
        return taken(model, features), *others

    return lambda *args, **kwargs: feed(*args, **kwargs).map(pick)


def is_callback(callback: Any) -> bool:
    """Whether `callback` is a Keras 3 callback."""
    keras = _package()
    return keras is not None and isinstance(callback, keras.callbacks.Callback)


def prepare(settings: Settings, seed: int, is_imported: bool = False) -> None:
    """Sets seed and precision of Keras 3, if the user's module uses it.

    Must be called before the model is built.

    Args:
      settings: The settings of the run.
      seed: The seed of the run.
      is_imported: Whether the module imports `keras`, perhaps not before `build_model`.
    """
    uses = is_imported or settings.keras == 3  # which imports nothing by that name
    keras = importlib.import_module("keras") if uses else _package()
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
    random_state(model)  # at a fixed place: making it draws from Python's `random`
    model.jit_compile = settings.jit_compile  # Keras's "auto" may choose XLA
    steps = settings.steps_per_execution
    model.steps_per_execution = steps or model.steps_per_execution
    compute_loss = model.compute_loss
    signature = inspect.signature(compute_loss)

    @functools.wraps(compute_loss)
    def of_rows(*args: Any, **kwargs: Any) -> tf.Tensor:
        """0 for a replica without a row: Keras's mean over none is NaN."""
        labels = tf.nest.flatten(signature.bind(*args, **kwargs).arguments["y"])
        with _counted_by_rows(model, labels):
            loss = compute_loss(*args, **kwargs)
        empty = tf.equal(tf.size(labels[0]), 0)
        return tf.where(empty, tf.zeros_like(loss), loss)

    model.compute_loss = of_rows


@contextlib.contextmanager
def _counted_by_rows(model: Any, labels: list[tf.Tensor]) -> Iterator[None]:
    """Lets the loss of each output count by a replica's share of the rows of a step.

    Keras counts it once for each replica, also for one without a row.
    """
    replica = tf.distribute.get_replica_context()
    several = len(labels) > 1 and replica and replica.num_replicas_in_sync > 1
    if not several:
        yield
        return
    rows = tf.cast(tf.shape(labels[0])[0], tf.float32)
    whole = replica.all_reduce(tf.distribute.ReduceOp.SUM, rows)
    for tracker in getattr(model._compile_loss, "metrics", ()):
        if "update_state" not in vars(tracker):
            tracker.update_state = _by_share(tracker.update_state)
    _STEP.rows, _STEP.share = rows, tf.math.divide_no_nan(rows, whole)
    try:
        yield
    finally:
        _STEP.rows = _STEP.share = None


def _by_share(update: Callable[..., Any]) -> Callable[..., Any]:
    def counted(value: tf.Tensor, sample_weight: Any = None) -> Any:
        if (rows := getattr(_STEP, "rows", None)) is None:
            return update(value, sample_weight=sample_weight)
        value = tf.where(rows > 0, value, tf.zeros_like(value))
        return update(value, sample_weight=_STEP.share)

    return counted


def gradients(model: Any, batch: tuple[Any, ...], weight: tf.Tensor) -> list[Any]:
    """As `compiled.gradients_of`, for a Keras 3 model."""
    result, measure = gradients_alone(model, batch, weight)
    measure()
    return result


def gradients_alone(
    model: Any, batch: tuple[Any, ...], weight: Any = 1.0
) -> tuple[list[Any], Callable[[], dict[str, Any]]]:
    """The gradients of some rows, before their loss and metrics are counted.

    Args:
      model: A compiled Keras 3 model.
      batch: The rows: features, label, and perhaps weights.
      weight: Factor of the loss that is minimized; float32 scalar.

    Returns:
      For each trainable variable, its gradient: a tensor, `tf.IndexedSlices`, or None;
      and a function that counts loss and metrics, and returns the logs of the step.
    """
    with tf.GradientTape() as tape:
        answers = _answers(model, batch, training=True)
        loss = model._compute_loss(**answers, training=True)
        scaled = model.optimizer.scale_loss(loss * tf.cast(weight, loss.dtype))
    result = tape.gradient(scaled, model.trainable_weights)
    return result, lambda: _measured(model, answers, loss)


def answered(
    model: Any, batch: tuple[Any, ...]
) -> tuple[Any, Callable[[], dict[str, Any]]]:
    """As `compiled.answered`, for a Keras 3 model."""
    answers = _answers(model, batch, training=False)

    def measure() -> dict[str, Any]:
        loss = model._compute_loss(**answers, training=False)
        return _measured(model, answers, loss)

    return answers["y_pred"], measure


def _answers(model: Any, batch: tuple[Any, ...], *, training: bool) -> dict[str, Any]:
    """The arguments of a loss: some rows, and the model's outputs for them."""
    features, labels, *weights = batch
    mode = {"training": training} if model._call_has_training_arg else {}
    return {
        "x": features,
        "y": labels,
        "y_pred": model(features, **mode),
        "sample_weight": weights[0] if weights else None,
    }


def _measured(model: Any, answers: dict[str, Any], loss: tf.Tensor) -> dict[str, Any]:
    # Keras has divided the loss by the replicas.
    replicas = tf.distribute.get_strategy().num_replicas_in_sync
    mean = loss * tf.cast(replicas, loss.dtype)
    rows = tf.shape(tf.nest.flatten(answers["y"])[0])[0]
    model._loss_tracker.update_state(mean, sample_weight=rows)
    return model.compute_metrics(**answers)


def build(model: Any, rows: Any) -> None:
    """Creates the metrics and losses of a Keras 3 model, and unbuilt layers.

    Args:
      model: The compiled model, in the scope of its strategy.
      rows: Features and labels of some rows.
    """
    model._symbolic_build(data_batch=rows)


def _class(name: str) -> Any:
    """A class of Keras 3; (), of which nothing is an instance, if not imported."""
    return getattr(_package(), name, ())


def _package() -> Any:
    """Keras 3, if it has been imported."""
    return sys.modules.get("keras")
