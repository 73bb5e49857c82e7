"""Private attributes of a compiled Keras model."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import tensorflow as tf
import tf_keras

from strategos.components.trainer.compat import keras3


def argument(model: tf.keras.Model, name: str) -> Any:
    """The user's argument of `compile`; None if Keras has not kept it.

    `get_compile_config` has only its serialized form.

    Args:
      model: A compiled model.
      name: Name of the argument.
    """
    config = getattr(model, "_compile_config", None)
    return config.config.get(name) if config is not None else None


def changed_trainable(model: tf.keras.Model) -> list[str]:
    """Names of the layers with a `trainable` that was changed after `compile`.

    tf-keras undoes the change for `fit`; Keras 3 does not, and the list is empty.
    """
    compiled = getattr(model, "_compiled_trainable_state", None) or {}
    return [x.name for x, value in compiled.items() if x.trainable != value]


def keep_trainable(model: tf.keras.Model) -> None:
    """Makes the present `trainable` of each layer the one that `fit` uses.

    tf-keras records it in `compile`, which would also make new metrics and an optimizer
    without its state. Keras 3 reads it when it traces a step.

    Args:
      model: A compiled model of either Keras, before its first step.
    """
    compiled = getattr(model, "_compiled_trainable_state", None)
    if compiled is not None:
        compiled.update(model._get_trainable_state())


def count_steps_from(model: tf.keras.Model, step: int) -> None:
    """Sets the step of the summaries that a training writes.

    Args:
      model: A compiled model of either Keras.
      step: Steps done, over all epochs.
    """
    counter = getattr(model, "_train_counter", None)
    if counter is not None:
        counter.assign(step)


def restart_test_steps(model: tf.keras.Model) -> None:
    """Counts the steps of an evaluation anew, as `fit` does for summaries.

    Args:
      model: A compiled model of either Keras.
    """
    counter = getattr(model, "_test_counter", None)
    if counter is not None:
        counter.assign(0)


def metrics_of_user(model: tf.keras.Model) -> set[str]:
    """Names of the metrics that are of the user's own classes or functions.

    Args:
      model: A compiled model of either Keras, after its first evaluation.
    """
    return {
        metric.name
        for metric in _flat(model.metrics)
        if not keras3.is_of_keras(metric)
        or not keras3.is_of_keras(function_of(metric) or metric)
    }


def function_of(metric: Any) -> Any:
    """The function that a metric of either Keras averages; None for other metrics."""
    return getattr(metric, "_fn", None)


def metric_of(model: tf.keras.Model, name: str) -> Any:
    """The metric that a model logs under a name; None if it is not found.

    Keras 3 prefixes a metric's name by its output's only in logs, e.g. `price_mae`.

    Args:
      model: A compiled model of either Keras, after its first step.
      name: Name in the logs, without `val_`.
    """
    known = {metric.name: metric for metric in _flat(model.metrics)}
    ends = (name[i + 1 :] for i, letter in enumerate(name) if letter == "_")
    return next((known[each] for each in (name, *ends) if each in known), None)


def _flat(metrics: Iterable[Any]) -> Iterator[Any]:
    """Metrics without the containers that Keras 3 puts them in."""
    for metric in metrics:
        inner = getattr(metric, "metrics", None)
        yield from _flat(inner) if inner else (metric,)


def layers(model: tf.keras.Model) -> list[tf.keras.layers.Layer]:
    """The model and all its layers, at any depth; `model.layers` has the top level.

    tf-keras also has `submodules`, Keras 3 does not.
    """
    return list(model._flatten_layers())


def variables(part: Any) -> list[Any]:
    """The variables of a model, layer or metric of either Keras, see `weights`."""
    return _without_tables(_in_one_order(part, part.variables))


def weights(part: Any) -> list[Any]:
    """The weights of a model or layer of either Keras that are variables.

    tf-keras lists the vocabulary of an adapted lookup layer, too: an object without
    name and value. `build_model` makes it again for the export.
    """
    return _without_tables(_in_one_order(part, part.weights))


def _in_one_order(part: Any, listed: Sequence[Any]) -> list[Any]:
    """The weights of a part in the order of tf-keras while all its layers train.

    tf-keras lists the weights of a layer made of layers in another order once it is
    frozen, e.g. in another phase of the training.
    """
    if not isinstance(part, tf_keras.layers.Layer):
        return list(listed)
    places: dict[int, int] = {}
    for place, each in enumerate(_while_trained(part)):
        places.setdefault(id(each), place)
    return sorted(listed, key=lambda each: places.get(id(each), len(places)))


def _while_trained(part: tf_keras.layers.Layer) -> list[Any]:
    """The weights of a model layer by layer; of a layer, first those that train."""
    if not isinstance(part, tf_keras.Model):
        return [each for kind in _by_kind(part) for each in kind]
    inner = [each for layer in _parts(part) for each in _while_trained(layer)]
    return [*inner, *part._trainable_weights, *part._non_trainable_weights]


def _by_kind(layer: tf_keras.layers.Layer) -> tuple[list[Any], list[Any]]:
    """The weights made to be trained, of all layers within a layer, and the others."""
    inner = [_by_kind(each) for each in _parts(layer)]
    trained = [each for trained, _ in inner for each in trained]
    others = [each for _, others in inner for each in others]
    return (
        [*layer._trainable_weights, *trained],
        [*layer._non_trainable_weights, *others],
    )


def _parts(layer: tf_keras.layers.Layer) -> list[tf_keras.layers.Layer]:
    """The layers directly within a layer or model of tf-keras."""
    return list(layer._flatten_layers(recursive=False, include_self=False))


def _without_tables(weights: Iterable[Any]) -> list[Any]:
    from tf_keras.src.engine.base_layer_utils import TrackableWeightHandler

    return [each for each in weights if not isinstance(each, TrackableWeightHandler)]


@contextlib.contextmanager
def weights_kept(model: tf.keras.Model) -> Iterator[None]:
    """Removes weights from a model that it gets inside of the `with` block.

    tf-keras counts a variable that is assigned to a model's attribute as a weight. The
    attribute stays, and so does its place in checkpoints.

    Args:
      model: A built model of either Keras; of Keras 3 it stays as it is.
    """
    names = ("_trainable_weights", "_non_trainable_weights", "_self_tracked_trackables")
    lists = [getattr(model, name, []) for name in names]
    before = [list(each) for each in lists]
    yield
    if not keras3.is_model(model):
        for current, kept in zip(lists, before, strict=True):
            current[:] = kept


def penalties(model: tf.keras.Model) -> list[tf.Tensor]:
    """The values of the regularizers of a tf-keras model; float scalars.

    `model.losses` has them among the losses that layers add from their inputs.
    """
    made = [loss() for layer in layers(model) for loss in layer._callable_losses]
    return [penalty for penalty in made if penalty is not None]


def adds_losses(model: tf.keras.Model) -> bool:
    """Whether a layer adds losses that it computes from its inputs.

    Args:
      model: A model that was called in a trace, of either Keras.
    """
    return any(layer._losses for layer in layers(model))


def has_batch_normalization(model: tf.keras.Model) -> bool:
    """Whether a tf-keras model has BatchNormalization, of any kind and at any depth."""
    from tf_keras.src.layers.normalization import batch_normalization

    base = batch_normalization.BatchNormalizationBase
    return any(isinstance(layer, base) for layer in model.submodules)


def batch_normalizations(model: tf.keras.Model) -> list[str]:
    """Names of the layers that normalize by the rows of a batch in training.

    A BatchNormalization with `trainable = False` uses its moving averages instead.

    Args:
      model: A model of either Keras.
    """
    from tf_keras.src.layers.normalization import batch_normalization

    kinds = (
        batch_normalization.BatchNormalizationBase,
        *keras3.classes("layers", "BatchNormalization"),
    )
    normalizations = [x for x in layers(model) if isinstance(x, kinds) and x.trainable]
    return [layer.name for layer in normalizations]


def metrics_in_layers(model: tf.keras.Model) -> list[Any]:
    """The metrics that the layers of a model of either Keras have of their own."""
    return [metric for layer in layers(model) for metric in layer._metrics]


def own_metrics(model: tf.keras.Model) -> list[str]:
    """Names of the metrics that may be a mean over no rows, which is NaN.

    These are metrics of `add_metric` and of the user's own classes, and Keras's mean of
    a function (`MeanMetricWrapper`).

    Args:
      model: A compiled tf-keras model that was called in a trace.
    """
    metrics = metrics_in_layers(model)
    stock = tf_keras.metrics
    lists = (argument(model, name) or [] for name in ("metrics", "weighted_metrics"))
    for metric in tf.nest.flatten(list(lists)):
        is_metric = isinstance(metric, stock.Metric)
        of_keras = type(metric).__module__.startswith("tf_keras.")
        if is_metric and (not of_keras or type(metric) is stock.MeanMetricWrapper):
            metrics.append(metric)
        elif not (is_metric or isinstance(metric, str) or inspect.isroutine(metric)):
            metrics.append(metric)  # an object that is called
    return sorted({getattr(x, "name", type(x).__name__) for x in metrics})


def has_own_call(loss: Any) -> bool:
    """Whether a `Loss` replaces the method of Keras that combines rows."""
    kind = tf_keras.losses.Loss
    return isinstance(loss, kind) and type(loss).__call__ is not kind.__call__


def around(loss: Any, by: Callable[[tf.Tensor, Any], tf.Tensor]) -> Any:
    """A `Loss` that changes another loss's value after that loss has combined rows.

    Args:
      loss: A `Loss`.
      by: Returns the new value, given the value and the labels; a vector is summed if
        the given value is a scalar.
    """

    class Around(tf_keras.losses.Loss):
        def __call__(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
            value = tf.convert_to_tensor(loss(y_true, y_pred, sample_weight))
            values = by(value, y_true)
            return values if value.shape.rank else tf.reduce_sum(values)

    loss._allow_sum_over_batch_size = True
    return Around(reduction=loss.reduction, name=loss.name)


def replace_losses(model: tf.keras.Model, by: Callable[[Any], Any]) -> None:
    """Replaces each loss of a compiled tf-keras model, before its first use.

    Args:
      model: A compiled model.
      by: Maps a loss as given (a name, a function, an object) to the new one.
    """
    losses = model.compiled_loss
    losses._losses = tf.nest.map_structure(by, losses._losses)


def replace_metrics(model: tf.keras.Model, by: Callable[[Any], Any]) -> None:
    """Replaces each metric of a compiled tf-keras model, before its first use.

    Args:
      model: A compiled model.
      by: Maps a metric as given (a name, a function, an object) to the new one.
    """
    metrics = model.compiled_metrics
    metrics._metrics = tf.nest.map_structure(by, metrics._metrics)
    weighted = metrics._weighted_metrics
    metrics._weighted_metrics = tf.nest.map_structure(by, weighted)


def gradients_of(model: Any, batch: tuple[Any, ...], weight: tf.Tensor) -> Any:
    """The gradients of some rows; counts their loss and metrics, too.

    Args:
      model: A compiled model with the `train_step` of its Keras.
      batch: The rows: features, label, and perhaps weights.
      weight: Factor of the loss that is minimized, not of the one that is reported;
        float32 scalar.

    Returns:
      For each trainable variable, its gradient: a tensor, `tf.IndexedSlices`, or None.
      Those of a Keras 3 model are still scaled (float16).
    """
    if keras3.is_model(model):
        return keras3.gradients(model, batch, weight)
    features, labels, *weights = batch
    with tf.GradientTape() as tape:
        outputs = model(features, training=True)
        loss = model.compute_loss(features, labels, outputs, *weights)
        loss *= tf.cast(weight, loss.dtype)
    pairs = model.optimizer.compute_gradients(loss, model.trainable_variables, tape)
    # Not `compute_metrics`: its results would be exchanged between the replicas.
    model.compiled_metrics.update_state(labels, outputs, *weights)
    return [gradient for gradient, _ in pairs]


def answered(
    model: Any, batch: tuple[Any, ...]
) -> tuple[Any, Callable[[], dict[str, Any]]]:
    """The outputs for some rows of an evaluation, before loss and metrics are counted.

    Args:
      model: A compiled model with the `test_step` of its Keras.
      batch: The rows: features, label, and perhaps weights.

    Returns:
      The outputs; and a function that counts loss and metrics, and returns the logs.
    """
    if keras3.is_model(model):
        return keras3.answered(model, batch)
    features, labels, *weights = batch
    outputs = model(features, training=False)

    def measure() -> dict[str, Any]:
        arguments = features, labels, outputs, weights[0] if weights else None
        model.compute_loss(*arguments)
        return model.compute_metrics(*arguments)

    return outputs, measure


def apply_gradients(model: Any, gradients: list[Any]) -> dict[str, Any]:
    """Updates the weights by gradients from `gradients_of`, or a sum of them.

    Args:
      model: The model.
      gradients: A gradient for each trainable variable.

    Returns:
      The logs of the step.
    """
    model.optimizer.apply_gradients(
        zip(gradients, model.trainable_variables, strict=True)
    )
    return model.get_metrics_result()
