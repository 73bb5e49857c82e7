"""Batches of rows of similar length, so that little of a batch is padding.

The order of an epoch stays a function of the seed and the epoch: 50 batches at a time
of the shuffled rows are sorted by length and cut, and then the batches are shuffled.
The method is that of `tf.data`'s `bucket_by_sequence_length`, without its bounds: each
batch is full, and a step is still a position in the epoch.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from strategos.components.errors import UserError
from strategos.components.trainer.data.columns import Packed
from strategos.components.transformed.specs import Spec
from strategos.components.wording import choices, did_you_mean

KEY = "trainer.bucket_by"
_BATCHES = 50  # that are sorted together


def check(feature: str | None, spec: Spec) -> None:
    """Rejects a feature without lengths to sort rows by.

    Args:
      feature: Name of a feature, if any.
      spec: `tf.io` spec of each feature.

    Raises:
      UserError: It is unknown, or has the same length in each row.
    """
    kind = spec.get(feature) if feature else None
    if not feature or not isinstance(kind, tf.io.FixedLenFeature | None):
        return
    varying = sorted(
        name for name, x in spec.items() if not isinstance(x, tf.io.FixedLenFeature)
    )
    raise UserError(
        "every row has as many values of this feature"
        if kind
        else "`preprocessing_fn` returns no such feature",
        key=KEY,
        received=f"`{feature}`",
        expected=f"a feature of varying length: {choices(varying)}",
        remedy=did_you_mean(feature, varying, "Correct or remove the setting."),
    )


def check_memory(columns: Packed | None) -> None:
    """Rejects examples that are not in memory, where lengths are not known ahead.

    Args:
      columns: The examples, if they are in memory.

    Raises:
      UserError: They are not.
    """
    if columns is None:
        raise UserError(
            "the training examples take more memory than `trainer.cache_limit`, so "
            "they are streamed, and their lengths are not known ahead",
            key=KEY,
            remedy="Raise `trainer.cache_limit`, or remove the setting.",
        )


def lengths(columns: Packed, feature: str) -> tf.Tensor:
    """The number of values of a feature in each row, int64 [rows].

    Args:
      columns: Packed columns.
      feature: Name of a feature of varying length.
    """
    column: Any = columns[1][feature]
    parts = column[0] if isinstance(column, tuple) else column
    return tf.cast(parts.row_lengths(), tf.int64)


def sorted_batches(
    order: tf.Tensor, lengths: tf.Tensor, batch_size: int, key: tf.Tensor
) -> tf.Tensor:
    """Sorts a shuffled order by length within each 50 batches.

    Rows that do not fill a batch stay at the end: they are a random choice, not the
    longest ones.

    Args:
      order: Row numbers, shuffled: int64 [n].
      lengths: Length of each row: int64 [rows].
      batch_size: Rows of a global batch.
      key: Seed of the order of the batches: int64 [2].

    Returns:
      The same row numbers, int64 [n]: batches of rows of similar length, shuffled.
    """
    whole = tf.size(order, tf.int64) // batch_size * batch_size
    rows, rest = order[:whole], order[whole:]
    window = tf.range(whole) // (_BATCHES * batch_size)
    longest = tf.reduce_max(tf.concat([lengths, [0]], 0))
    rank = window * (longest + 1) + tf.gather(lengths, rows)
    by_length = tf.gather(rows, tf.argsort(rank, stable=True))
    batches = tf.reshape(by_length, [-1, batch_size])
    shuffled = tf.random.experimental.stateless_shuffle(batches, key)
    return tf.concat([tf.reshape(shuffled, [-1]), rest], 0)
