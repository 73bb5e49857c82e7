"""Computes the answers of a model on a few rows, to compare them with its export."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from strategos.components.trainer.compat import compiled, keras3

Answers = dict[str, np.ndarray]
"""Output by name: `[rows, …]`."""

TOLERANCES = {"float32": 1e-3, "tf32": 1e-2, "float16": 1e-2, "bfloat16": 5e-2}
"""Largest allowed difference by the model's precision, relative to the largest value.

Measured in float32 on a CPU between eager calls, traced calls and other batches, for
deep MLPs, convolutions, LSTMs and attention of both Keras packages: at most 1.4e-6. The
faults to be found change answers by more than 5e-3.
"""

_ROWS_OF_OTHERS = 0.05  # of integers and strings: an argmax of equal values may flip


def of(
    model: tf.keras.Model,
    features: Mapping[str, Any],
    strategy: tf.distribute.Strategy | None = None,
) -> Answers:
    """Computes the answers of a model in inference mode.

    Args:
      model: A built model.
      features: Tensors `[rows, …]` by feature.
      strategy: The strategy of the model; all its tasks must call this function. None
        for a model outside of any strategy.
    """
    inputs = keras3.taken(model, features)
    if strategy is None:
        output = model(inputs, training=False)
    else:
        tensors = strategy.run(lambda: model(inputs, training=False))
        output = strategy.experimental_local_results(tensors)[0]
    tensors = named(output, getattr(model, "output_names", None))
    return {k: v.numpy() for k, v in tensors.items() if isinstance(v, tf.Tensor)}


def named(output: Any, names: list[str] | None) -> dict[str, tf.Tensor]:
    """Names the outputs of a model as the signatures of its export do.

    Args:
      output: The output of the model's call.
      names: The model's `output_names`; None or empty without names.

    Returns:
      Tensors `[rows, …]` of rank 2 or more by name; floating ones as float32.
    """
    if isinstance(output, Mapping):
        by_name = dict(output)
    elif isinstance(output, (list, tuple)) and len(output) > 1:
        keys = names or [f"output_{i}" for i in range(len(output))]
        by_name = dict(zip(keys, output, strict=True))
    else:
        by_name = {"predictions": tf.nest.flatten(output)[0]}
    return {name: _as_answer(value) for name, value in by_name.items()}


def write(
    model: tf.keras.Model,
    features: Mapping[str, Any],
    strategy: tf.distribute.Strategy | None,
    path: str,
) -> None:
    """Writes the answers of a trained model, unless they differ from call to call.

    Args:
      model: The trained model.
      features: Tensors `[rows, …]` by feature.
      strategy: The strategy of the model, see `of`.
      path: Prefix of the files with the weights, local.
    """
    first, second = (of(model, features, strategy) for _ in range(2))
    if difference(first, second, tolerance(model)):
        logging.info(
            "the model answers the same rows otherwise at a second call: the answers "
            "of its export are not compared"
        )
        return
    arrays: dict[str, Any] = first
    np.savez(_file(path), **arrays)


def read(path: str) -> Answers | None:
    """Reads the answers stored by `write`; None if there are none.

    Args:
      path: Prefix of the files with the weights, local.
    """
    if not os.path.exists(_file(path)):
        return None
    with np.load(_file(path)) as arrays:
        return dict(arrays)


def tolerance(model: tf.keras.Model) -> float:
    """The tolerance between two computations of one model, see `TOLERANCES`.

    Args:
      model: A built model.
    """
    kinds = {str(layer.compute_dtype) for layer in compiled.layers(model)}
    has_gpu = bool(tf.config.list_physical_devices("GPU"))
    if has_gpu and tf.config.experimental.tensor_float_32_execution_enabled():
        kinds.add("tf32")
    return max([TOLERANCES.get(kind, TOLERANCES["float32"]) for kind in kinds])


def difference(actual: Answers, expected: Answers, allowed: float) -> str:
    """Describes differences between answers; "" if there are none.

    Args:
      actual: Answers of one model.
      expected: Answers of the other model, on the same rows.
      allowed: Tolerance, relative to the largest value of an output.
    """
    if actual.keys() != expected.keys():
        return f"outputs {', '.join(sorted(actual))} for {', '.join(sorted(expected))}"
    texts = (_differing(n, actual[n], expected[n], allowed) for n in sorted(actual))
    return "; ".join(filter(None, texts))


def _differing(
    name: str, actual: np.ndarray, expected: np.ndarray, allowed: float
) -> str:
    if actual.shape != expected.shape:
        return f"`{name}` of shape {actual.shape} for {expected.shape}"
    rows = len(actual)
    one, other = (each.reshape(rows, -1) for each in (actual, expected))
    if not np.issubdtype(one.dtype, np.floating):
        wrong = (one != other).any(axis=1)
        place = int(np.argmax(wrong))
        if wrong.sum() <= _ROWS_OF_OTHERS * rows:
            return ""
        return _shown(name, wrong, one[place], other[place], place)
    largest = np.max(np.abs(other), initial=0.0, where=np.isfinite(other))
    off = np.where(_same(one, other), 0.0, np.abs(one - other))
    off = np.nan_to_num(off, nan=np.inf)
    wrong = (off > allowed * largest).any(axis=1)
    if not wrong.any():
        return ""
    place, column = map(int, np.unravel_index(np.argmax(off), off.shape))
    one, other = one[place, column], other[place, column]
    return _shown(name, wrong, f"{one:.5g}", f"{other:.5g}", place)


def _same(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Mask of equal values; NaN equals NaN."""
    return (one == other) | (np.isnan(one) & np.isnan(other))


def _shown(name: str, wrong: np.ndarray, one: Any, other: Any, place: int) -> str:
    return (
        f"`{name}` differs in {int(wrong.sum())} of {len(wrong)} rows, for example "
        f"{one} for {other} in row {place + 1} of them"
    )


def _as_answer(value: tf.Tensor) -> tf.Tensor:
    if value.shape.rank == 1:
        value = value[:, tf.newaxis]
    return tf.cast(value, tf.float32) if value.dtype.is_floating else value


def _file(path: str) -> str:
    return f"{path.rpartition('/')[0]}/answers.npz"
