"""Values that differ between replicas: moving averages, and logs of their rows."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any

import tensorflow as tf
import tf_keras

from strategos.components.trainer.compat import compiled, keras3
from strategos.components.trainer.data.parts import rows_of

_STEPS = ("train_step", "test_step", "compute_metrics", "get_metrics_result")
_AVERAGED = (
    tf.VariableAggregation.MEAN,
    tf.VariableAggregation.ONLY_FIRST_REPLICA,
)

Step = Callable[[Any], Any]


def average(model: tf.keras.Model) -> None:
    """Sets variables that replicas update separately to their values in a checkpoint.

    The moving averages of a plain BatchNormalization differ between replicas. A
    checkpoint and the export have their mean, so evaluation must use the mean, too.
    Training is not affected: moving averages are linear, and no step reads them. A
    checkpoint of Keras 3 has the values of the first replica: call this before saving.

    Args:
      model: A model, outside of a step; all workers must call this together.
    """
    if keras3.is_model(model):
        _average_on_replicas(keras3.unsynchronized(model))
        return
    variables = compiled.variables(model) if isinstance(model, tf_keras.Model) else ()
    for variable in variables:
        local = variable.synchronization == tf.VariableSynchronization.ON_READ
        if local and variable.aggregation in _AVERAGED:
            variable.assign(variable.read_value())


def _average_on_replicas(variables: list[Any]) -> None:
    """Sets variables of which each replica has its own value to their mean."""
    if not variables:
        return

    def average_each() -> None:
        replica = tf.distribute.get_replica_context()
        means = replica.all_reduce(
            tf.distribute.ReduceOp.MEAN, [x.read_value() for x in variables]
        )
        for variable, mean in zip(variables, means, strict=True):
            variable.assign(mean)

    here = tf.distribute.get_strategy()
    tf.function(lambda: here.run(average_each))()


def of_first(function: Callable[[], Any]) -> Any:
    """Calls a function on each replica of this process; returns the first's result.

    On a replica, moving averages are read without communication between workers.

    Args:
      function: Returns tensors in any structure.
    """
    strategy = tf.distribute.get_strategy()
    return strategy.experimental_local_results(strategy.run(function))[0]


def report_means(model: tf.keras.Model) -> None:
    """Makes `fit` report values of a model's own steps as means over all replicas.

    tf-keras sums the logs of the replicas. Metrics have the same value on each replica.
    Other values, e.g. the norm of a gradient, belong to the rows of one replica: they
    become means over the rows of the global batch.

    Args:
      model: A compiled tf-keras model, before its first step.
    """
    if keras3.is_model(model):
        return
    model.distribute_reduction_method = "first"
    if any(keras3.is_overridden(model, name) for name in _STEPS):
        model.train_step = _reporting_means(model, model.train_step)
        model.test_step = _reporting_means(model, model.test_step)


def _reporting_means(model: tf.keras.Model, step: Step) -> Step:
    @functools.wraps(step)
    def averaged(data: Any) -> Any:
        logs = step(data)
        replica = tf.distribute.get_replica_context()
        if replica is None or not isinstance(logs, dict):
            return logs
        metrics = {metric.name for metric in model.metrics}
        others = {name: logs[name] for name in logs if name not in metrics}
        numbers = {name: x for name, x in others.items() if _is_number(x)}
        if not numbers:
            return logs
        logging.info(
            "%s: no metrics of the model; each is reported as the mean of its values "
            "on %d replicas, weighted by their rows",
            ", ".join(sorted(numbers)),
            replica.num_replicas_in_sync,
        )
        rows = tf.cast(rows_of(data[1]), tf.float32)
        means = {name: _mean(replica, rows, x) for name, x in numbers.items()}
        return {**logs, **means}

    return averaged


def _is_number(value: Any) -> bool:
    if not tf.is_tensor(value):
        return isinstance(value, (int, float))
    return isinstance(value, tf.Tensor) and (
        value.dtype.is_floating or value.dtype.is_integer
    )


def _mean(replica: Any, rows: tf.Tensor, value: Any) -> tf.Tensor:
    """The mean of the replicas' values, weighted by their rows; float32."""
    value = tf.cast(value, tf.float32)
    mine = tf.where(rows > 0, value * rows, tf.zeros_like(value))
    total, count = replica.all_reduce(tf.distribute.ReduceOp.SUM, [mine, rows])
    return total / count
