"""Summaries of tensors: shape, dtype, range, and values that are no numbers."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import tensorflow as tf

from strategos.components.wording import counted, listed

_SHOWN_ROWS = 5


@dataclasses.dataclass(frozen=True)
class Values:
    """The summary of one tensor.

    Attributes:
      name: Name of the tensor.
      dtype: Name of its dtype; "" without a tensor.
      shape: Its shape, e.g. "[10, 1]"; "[10, None]" if rows have several lengths.
      smallest: Smallest of its finite values; None for text, or without any.
      largest: Largest of its finite values; None for text, or without any.
      mean: Mean of its finite values; None for text, or without any.
      norm: Euclidean norm of all values; None unless it was asked for.
      not_finite: Number of values that are NaN or infinite.
      rows: The first rows, from 0, with a value that is NaN or infinite; empty for a
        tensor of one row.
      note: Whatever else is to be said, e.g. the first texts.
    """

    name: str
    dtype: str = ""
    shape: str = ""
    smallest: float | None = None
    largest: float | None = None
    mean: float | None = None
    norm: float | None = None
    not_finite: int = 0
    rows: tuple[int, ...] = ()
    note: str = ""


def summary(name: str, tensor: Any, *, norm: bool = False) -> Values:
    """Summarizes a tensor.

    Args:
      name: Name of the tensor.
      tensor: A dense, ragged or sparse tensor, `tf.IndexedSlices`, or anything that
        `np.asarray` takes.
      norm: Whether to compute its norm.
    """
    shape, flat, row_of = _flat(tensor)
    dtype = str(getattr(tensor, "dtype", flat.dtype)).split("'")
    values = Values(name, dtype[1] if len(dtype) > 1 else dtype[0], shape)
    if flat.dtype.kind not in "biuf":
        texts = ", ".join(repr(_text(each)) for each in flat[:3])
        more = ", …" if flat.size > 3 else ""
        return dataclasses.replace(values, note=f"{texts}{more}")
    if not flat.size:
        return dataclasses.replace(values, note="empty")
    numbers = flat.astype(np.float64)
    finite = np.isfinite(numbers)
    bad = dict.fromkeys(row_of[~finite].tolist())
    some = numbers[finite]
    extent = (some.min(), some.max(), some.mean()) if some.size else (None,) * 3
    smallest, largest, mean = (None if x is None else float(x) for x in extent)
    return dataclasses.replace(
        values,
        smallest=smallest,
        largest=largest,
        mean=mean,
        norm=math.sqrt(float(np.square(numbers).sum())) if norm else None,
        not_finite=int((~finite).sum()),
        rows=tuple(list(bad)[:_SHOWN_ROWS]) if row_of.any() else (),
    )


def not_finite(batches: Iterable[Any], steps: range, label: str) -> str:
    """Names the features of the first batch with a value that is NaN or infinite.

    Args:
      batches: Batches of (features, label), perhaps with weights, from the first of
        the steps on.
      steps: Numbers of the steps.
      label: Name of the label.

    Returns:
      A sentence, e.g. "In the rows of step 3, `distance` has 2 values that are NaN or
      infinite (rows 4 and 7 of the batch)."; without such a value it says so.
    """
    for step, (features, labels, *weights) in zip(steps, batches, strict=False):
        of_heads = labels.items() if isinstance(labels, dict) else [(label, labels)]
        named = [*sorted(features.items()), *of_heads]
        named += [("weight", each) for each in weights]
        summaries = [summary(f"`{name}`", x) for name, x in named]
        if texts := [_counted(each) for each in summaries if each.not_finite]:
            return f"In the rows of step {step:,}, {listed(texts)}."
    which = counted(len(steps), "step")
    of = f"step {steps[0]:,}" if len(steps) == 1 else f"these {which}"
    return f"All features and labels of {of} are finite."


def _counted(values: Values) -> str:
    rows = listed([str(row + 1) for row in values.rows])
    where = f" (row{'s' * (len(values.rows) > 1)} {rows} of the batch)" if rows else ""
    number = counted(values.not_finite, "value")
    is_ = "is" if values.not_finite == 1 else "are"
    return f"{values.name} has {number} that {is_} NaN or infinite{where}"


def first_rows(tensor: Any, rows: int) -> Any:
    """The first rows of a dense, ragged or sparse tensor.

    Args:
      tensor: `[batch, …]`.
      rows: Number of rows.
    """
    if isinstance(tensor, tf.SparseTensor):
        size = tf.concat([[min(rows, tensor.shape[0])], tensor.dense_shape[1:]], 0)
        return tf.sparse.slice(tensor, tf.zeros_like(size), size)
    return tensor[:rows]


def _flat(tensor: Any) -> tuple[str, np.ndarray, np.ndarray]:
    """The shape, all values, and the row of each value."""
    if isinstance(tensor, tf.SparseTensor):
        shape = [int(tensor.shape[0]), *([None] * (len(tensor.shape) - 1))]
        return str(shape), tensor.values.numpy(), tensor.indices.numpy()[:, 0]
    if isinstance(tensor, tf.RaggedTensor):
        flat = tensor.flat_values.numpy()
        rows = tensor.merge_dims(1, -1).value_rowids().numpy()
        if flat.ndim > 1:
            rows = rows[:: int(np.prod(flat.shape[1:]))] if rows.size else rows
        return _listed(tensor.shape), *_by_row(flat, rows)
    if isinstance(tensor, tf.IndexedSlices):
        values, rows = tensor.values.numpy(), tensor.indices.numpy()
        of = "" if tensor.dense_shape is None else f" of {_listed(tensor.dense_shape)}"
        return f"{_listed(values.shape)}{of}", *_by_row(values, rows)
    dense = np.asarray(tensor)
    rows = np.arange(dense.shape[0] if dense.ndim else 1)
    return _listed(dense.shape), *_by_row(dense, rows)


def _by_row(values: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    flat = values.reshape(-1)
    return flat, np.repeat(rows, flat.size // max(rows.size, 1))


def _listed(shape: Any) -> str:
    return str([None if x is None else int(x) for x in shape])


def _text(value: Any) -> str:
    text = value.decode(errors="replace") if isinstance(value, bytes) else str(value)
    return text if len(text) <= 20 else f"{text[:19]}…"
