"""Parses the examples of files."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from strategos.components.errors import UserError
from strategos.components.trainer.data import columns, records
from strategos.components.trainer.data.columns import Packed
from strategos.components.trainer.data.parts import no_autograph
from strategos.components.trainer.gang import heartbeat

PARALLEL_CALLS = min(os.cpu_count() or 1, 8)

_PARSE_ROWS = 4096


def whole(blocks: Iterator[Packed], limit: int) -> Packed | None:
    """All examples; None if they take more bytes than the limit."""
    used, parts = 0, []
    for part in blocks:
        used += columns.size(part)
        if used > limit:
            return None
        parts.append(part)
    with tf.device("CPU"):  # otherwise they fill the first GPU, which does not use them
        return columns.concatenate(parts)


def blocks(
    files: tuple[str, ...], spec: Mapping[str, Any], limit: int
) -> Iterator[Packed]:
    """All examples, in blocks; dozens of blocks fit the limit.

    Raises:
      UserError: There are no examples.
    """
    records_of = records.ordered(files)
    sizes = [len(record) for record in records_of.take(16).as_numpy_iterator()]
    if not sizes:
        raise UserError(
            f"there is no example in {', '.join(files) or 'the split'}",
            key="data.split",
            remedy="Give the split a larger share, or add data.",
        )
    rows = records.rows_within(limit, max(sizes), _PARSE_ROWS)
    blocks = records_of.batch(rows).map(
        packer(spec), PARALLEL_CALLS, deterministic=True
    )
    for block in ready(blocks):
        yield block
        heartbeat.current().alive()


def column(files: Sequence[str], spec: Mapping[str, Any], feature: str) -> tf.Tensor:
    """The values of a dense feature in all rows of some files, `[rows, k]`.

    Args:
      files: TFRecord files.
      spec: `tf.io` spec of the features.
      feature: Name of the feature.
    """
    parse = parser({feature: spec[feature]})
    parts = []
    for block in records.ordered(sorted(files)).batch(_PARSE_ROWS):
        parts.append(parse(block)[feature])
        heartbeat.current().alive()
    return tf.concat(parts, 0)


def packer(spec: Mapping[str, Any]) -> Any:
    """A function from serialized examples to their packed columns."""
    parse = parser(spec)
    return no_autograph(lambda serialized: columns.pack(parse(serialized), spec))


def parser(spec: Mapping[str, Any]) -> Any:
    """A function from serialized examples to their columns."""
    return no_autograph(lambda serialized: columns.parse(serialized, spec))


def ready(dataset: tf.data.Dataset, of_step: int = 1) -> tf.data.Dataset:
    """Prefetches two steps, without autotuning: its thread can hold up the end."""
    options = tf.data.Options()
    options.autotune.enabled = False
    return dataset.prefetch(2 * of_step).with_options(options)
