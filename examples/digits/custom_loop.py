"""Trains the digits with a custom loop, under any synchronous strategy.

`strategos run pipeline.yaml --overlay custom_loop.yaml`; see docs/custom_training.md.
The loss of each step equals that of `model.fit` on one device, for any number of
replicas, also if the rows of a batch do not divide evenly among them.
"""

from __future__ import annotations

import model as digits
import tensorflow as tf


def build_model(context) -> tf.keras.Model:
    """The network and optimizer of model.py."""
    return digits.build_model(context)


def run_fn(context) -> None:
    """Trains `context.model`.

    Args:
      context: The context of `build_model`, plus `strategy`, `model`, `loop`,
        `eval_dataset()` and `eval_rows`.
    """
    strategy, model, loop = context.strategy, context.model, context.loop
    losses_of = tf.keras.losses.SparseCategoricalCrossentropy(reduction="none")

    def step_of_replica(features, labels):
        replica = tf.distribute.get_replica_context()
        rows = replica.all_reduce("SUM", tf.shape(labels)[0])  # of the global batch
        with tf.GradientTape() as tape:
            losses = losses_of(labels, model(features, training=True))
            # Divided by the rows of all replicas: the optimizer adds up the replicas'
            # gradients, which gives the gradient of the mean over the batch.
            loss = tf.reduce_sum(losses) / tf.cast(rows, losses.dtype)
        gradients = tape.gradient(loss, model.trainable_variables)
        model.optimizer.apply_gradients(
            zip(gradients, model.trainable_variables, strict=True)
        )
        return loss

    def right_of_replica(features, labels):
        digit = tf.argmax(model(features, training=False), axis=1)
        return tf.reduce_sum(tf.cast(digit == labels[:, 0], tf.int64))

    def summed(function):
        """Runs `function` on all replicas, and adds up the results."""

        @tf.function(reduce_retracing=True)
        def on_replicas(batch):
            return strategy.reduce("SUM", strategy.run(function, args=batch), axis=None)

        return on_replicas

    train_step, count_right = summed(step_of_replica), summed(right_of_replica)
    evaluation = strategy.experimental_distribute_dataset(context.eval_dataset())
    for _ in loop.epochs():
        for batch in loop.steps():
            loop.report(loss=train_step(batch))
        right = sum(int(count_right(batch)) for batch in evaluation)
        loop.end_epoch(val_accuracy=right / context.eval_rows)
