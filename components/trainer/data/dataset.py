"""Reads the transformed examples of a split, and decides where they are kept.

Numbers of fixed size are read once, from columns if there are some (`column_files.py`),
and kept in memory if they are few, else in a temporary file, see `stored.py`. Other
examples are parsed once if they fit the cache limit. Examples that fit neither memory
nor disk are streamed in every epoch, see `records.py`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from strategos.components import events
from strategos.components.trainer.data import column_files, columns, parsing
from strategos.components.trainer.data.batches.weights import EQUAL, Weights
from strategos.components.trainer.data.records import Records
from strategos.components.trainer.data.split import Split
from strategos.components.trainer.data.stored import Stored, folder_for_rows
from strategos.components.trainer.spec import CACHE_LIMIT
from strategos.components.transformed import specs

_MATRIX_BYTES = 64 << 20  # in memory; the same rows are not read slower from a file
_FULL = (
    "{} has no space for parsed examples, so they are read and parsed anew in every "
    "epoch, in another order. Free space, or name another folder in TMPDIR, to have "
    "them parsed once."
)


def read(
    files: Sequence[str],
    spec: Mapping[str, Any],
    label: str,
    cache_limit: int = CACHE_LIMIT,
    anywhere: Callable[[bool], bool] = bool,
    weights: Weights = EQUAL,
) -> Split:
    """Counts the examples of `files`, and keeps them parsed if that is possible.

    Args:
      files: TFRecord files; `.gz` at the end of a name means GZIP.
      spec: `tf.io` spec of the features and the label.
      label: The label, as `Label.text`.
      cache_limit: Bytes of parsed examples that may be kept in memory.
      anywhere: Returns whether something holds in any of the processes that divide
        global batches: all of them need the same order of rows.
      weights: How much each row counts.

    Raises:
      UserError: The files have no examples.
    """
    files = tuple(sorted(files))
    made = functools.partial(Split, files, spec, label, weights=weights)
    blocks = parsing.blocks(files, spec, cache_limit)
    if specs.is_fixed(spec):
        matrices: Iterator[dict[str, Any]] = (matrices for matrices, _ in blocks)
        if ready := column_files.beside(files):
            matrices = column_files.blocks(ready, specs.widths(spec))
        # Not in memory first, where the parts and the whole would take twice as much.
        stored = Stored.write(matrices, cache_limit)
        if stored is None:
            events.emit("warning", message=_FULL.format(folder_for_rows()))
        if anywhere(stored is None) or stored is None:
            return _streamed(made, files, cache_limit)
        if stored.size > min(cache_limit, _MATRIX_BYTES):
            return made(stored.rows, None, stored=stored)
        with tf.device("CPU"):  # else they fill the first GPU, which does not use them
            whole = tf.nest.map_structure(tf.constant, stored.whole())
        return made(stored.rows, (whole, {}))
    kept = parsing.whole(blocks, cache_limit)
    if kept is not None:
        return made(columns.count(kept), kept)
    return _streamed(made, files, cache_limit)


def _streamed(
    made: Callable[..., Split], files: tuple[str, ...], cache_limit: int
) -> Split:
    streamed = Records.count(files, cache_limit)
    return made(streamed.rows, None, streamed)
