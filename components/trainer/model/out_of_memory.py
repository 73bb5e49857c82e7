"""Explains an out-of-memory error: the failed allocation, and remedies."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import tensorflow as tf
import tf_keras

from strategos.components.errors import UserError
from strategos.components.trainer.model.context import TrainingContext


@contextlib.contextmanager
def explained(context: TrainingContext) -> Iterator[None]:
    """Turns TensorFlow's error of a failed allocation into a UserError with a remedy.

    Args:
      context: The training context, for the message.

    Raises:
      UserError: Memory ran out in the body.
    """
    try:
        yield
    except tf.errors.ResourceExhaustedError as error:
        lines = [line for line in str(error).splitlines() if "OOM" in line]
        if not lines:
            raise
        policy = tf_keras.mixed_precision.global_policy()
        raise UserError(
            f"out of memory with {context.per_replica_batch_size:,} rows per replica "
            f"on {context.replicas} replica(s), computing in {policy.compute_dtype}: "
            f"{lines[0].strip()}",
            key="trainer.batch_size",
            received=f"{context.global_batch_size:,}",
            remedy="Use a smaller batch, more replicas, `mixed_precision: bfloat16`, "
            "or a smaller model.",
        ) from error
