"""Has Keras 3 update weights and metrics on several replicas as on one device.

Keras 3 clips the gradients of each replica and asks the first replica whether they are
finite (float16), and only then sums them. Both must see the sum, as on one device.

Under CentralStorageStrategy the replicas share each variable. Keras 3 writes a variable
as its old value plus an increment, in each replica: the replicas' values of a weight
or a moving average are averaged, but a metric, of which TensorFlow adds them up, would
count its old value twice. So each replica has its own part of a metric, as under
MirroredStrategy.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.distribute import ps_values, values
from tensorflow.python.ops.resource_variable_ops import ResourceVariable

from strategos.components.trainer.compat import keras3

_of_replica = threading.local()  # TensorFlow traces each replica in its own thread


@contextlib.contextmanager
def weighted(rows: tf.Tensor | None) -> Iterator[None]:
    """Weighs the loss of which this replica takes gradients by its rows.

    Replicas of a global batch of N rows get n rows each. Keras divides the loss, a mean
    over n rows, by the R replicas. With the weight n * R / N the sum over the replicas
    is the mean over N rows; penalties, which each replica has in full, count once.
    Weighing gradients instead would be wrong after synchronized BatchNormalization: its
    gradients come from the losses of all replicas.

    Args:
      rows: Rows of this replica, int64 scalar; None if all replicas have equally many.
    """
    if rows is not None:
        replica = tf.distribute.get_replica_context()
        number = tf.cast(rows, tf.float32)
        in_all = replica.all_reduce(tf.distribute.ReduceOp.SUM, number)
        _of_replica.weight = number * replica.num_replicas_in_sync / in_all
    try:
        yield
    finally:
        _of_replica.weight = None


def sum_first(optimizer: Any) -> None:
    """Has an optimizer sum the gradients of all replicas before anything else.

    Args:
      optimizer: An optimizer of Keras 3, perhaps one that scales the loss (float16). It
        is changed in place; call this once, in the scope of its strategy.
    """
    apply, scale_loss = optimizer.apply, optimizer.scale_loss
    keras3.unscaled(optimizer)._all_reduce_sum_gradients = list  # they are sums already

    def apply_sum(gradients: Any, trainable_variables: Any = None) -> Any:
        return apply(_summed(list(gradients)), trainable_variables)

    def scale_weighted(loss: tf.Tensor) -> tf.Tensor:
        weight = getattr(_of_replica, "weight", None)
        return scale_loss(
            loss if weight is None else loss * tf.cast(weight, loss.dtype)
        )

    optimizer.apply, optimizer.scale_loss = apply_sum, scale_weighted


def share_variables(model: Any) -> None:
    """Lets replicas that share the variables of a model update them.

    Without effect under other strategies than CentralStorageStrategy.

    Args:
      model: A compiled Keras 3 model with all its variables, also those of its metrics,
        in the scope of its strategy. Totals of metrics are kept.
    """
    optimizer, metrics = model.optimizer, model.metrics
    owners = (model, optimizer, keras3.unscaled(optimizer), *metrics)
    variables = [x for owner in owners for x in owner.variables]
    variables += keras3.random_state(model).values()
    for variable in {id(x): x for x in variables}.values():
        shared = keras3.of_tensorflow(variable)
        if not isinstance(shared, ps_values.AggregatingVariable):
            continue
        if keras3.is_total_of_replicas(variable):
            variable._value = _parts(shared)
        elif shared.aggregation == tf.VariableAggregation.NONE:
            kind = tf.VariableAggregation
            is_mean = shared.dtype.is_floating
            shared._aggregation = kind.MEAN if is_mean else kind.ONLY_FIRST_REPLICA


def _parts(total: ps_values.AggregatingVariable) -> values.SyncOnReadVariable:
    """A variable of which each replica has a part; the first one has the total."""
    strategy = total.distribute_strategy
    others = range(1, strategy.num_replicas_in_sync)
    starts = [total.read_value(), *(tf.zeros_like(total) for _ in others)]
    parts = [ResourceVariable(x, trainable=False, name=total.name) for x in starts]
    return values.SyncOnReadVariable(strategy, parts, total.aggregation)


def _summed(gradients: Sequence[Any]) -> list[Any]:
    """The sums over the replicas; None for a variable without a gradient."""
    replica = tf.distribute.get_replica_context()
    present = [gradient for gradient in gradients if gradient is not None]
    sums = iter(replica.all_reduce(tf.distribute.ReduceOp.SUM, present))
    return [None if gradient is None else next(sums) for gradient in gradients]
