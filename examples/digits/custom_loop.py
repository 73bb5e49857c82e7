"""Trains the digits with a custom loop, under any strategy.

`strategos run pipeline.yaml --overlay custom_loop.yaml`; see docs/custom_training.md.
The loss of each step equals that of `model.fit` on one device, for any number of
replicas, also if the rows of a batch do not divide evenly among them. Workers of
parameter servers take the same steps at their own pace.
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
      context: The context of `build_model`, plus `strategy`, `model` and `loop`.
    """
    strategy, model, loop = context.strategy, context.model, context.loop
    losses_of = tf.keras.losses.SparseCategoricalCrossentropy(reduction="none")

    def part_of_mean(values):
        """The sum of a replica's rows, divided by the rows of the global batch."""
        rows = tf.distribute.get_replica_context().all_reduce("SUM", tf.size(values))
        return tf.reduce_sum(values) / tf.cast(rows, values.dtype)

    def train(features, labels):
        with tf.GradientTape() as tape:
            # The optimizer adds up the replicas' gradients, which gives the gradient
            # of the mean over the global batch.
            loss = part_of_mean(losses_of(labels, model(features, training=True)))
        gradients = tape.gradient(loss, model.trainable_variables)
        model.optimizer.apply_gradients(
            zip(gradients, model.trainable_variables, strict=True)
        )
        return {"loss": loss}

    def test(features, labels):
        digit = tf.argmax(model(features, training=False), axis=1)
        return {"accuracy": part_of_mean(tf.cast(digit == labels[:, 0], tf.float32))}

    def on_replicas(function):
        """Runs `function` on all replicas, and adds up the results."""

        @tf.function(reduce_retracing=True)
        def step(batch):
            parts = strategy.run(function, args=batch)
            return {
                name: strategy.reduce("SUM", part, axis=None)
                for name, part in parts.items()
            }

        return step

    train_step, test_step = on_replicas(train), on_replicas(test)
    for _ in loop.epochs():
        loop.train(train_step)
        measured = loop.evaluate(test_step)
        loop.end_epoch(val_accuracy=measured["accuracy"])
