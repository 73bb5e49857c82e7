"""Computes metrics of TFMA and Keras on a few rows, before data are read.

A class is rejected that fails on rows of the task, that gives anything but one number,
or whose parts do not merge: workers compute parts of a metric, and these are merged.
"""

from __future__ import annotations

import contextlib
import math
import os
import pickle
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from strategos.components.errors import UserError, first_line, required
from strategos.components.evaluation.library.by_class import Accumulators, ByClass
from strategos.components.evaluation.library.names import parsed
from strategos.components.evaluation.metrics import Batch, probability
from strategos.components.user_code import user_errors
from strategos.components.worker_process import serve

_ROWS = 24
_CLOSE = 1e-4  # relative; Keras adds up in single precision
_REMEDY = (
    "Use a class for this task (docs/configuration/metric_classes.md), or a metric of "
    "your own (docs/plugins.md)."
)


def check(name: str, task: str, *, weighted: bool) -> None:
    """Rejects a metric that cannot be computed in parts for rows of a task.

    Args:
      name: Name of a metric by its class.
      task: One of `metrics.TASKS`.
      weighted: Whether rows have weights.

    Raises:
      UserError: See the module.
    """
    metric = ByClass(name)

    def sums(first: int, end: int) -> Accumulators:
        return metric.sums(_batch(name, task, slice(first, end), weighted))

    with _rejected(f"`{name}` cannot be computed for the task {task}"):
        wanted = _value(sums(0, _ROWS))
    with _rejected(f"`{name}` does not merge"):
        merged = _value(_merged([sums(20, _ROWS), sums(0, 7), sums(7, 20)]))
    if not math.isclose(merged, wanted, rel_tol=_CLOSE, abs_tol=_CLOSE) and not (
        math.isnan(merged) and math.isnan(wanted)
    ):
        raise UserError(
            f"`{name}` does not merge: {wanted:.6g} from {_ROWS} rows at once, and "
            f"{merged:.6g} from three parts of them",
            remedy=_REMEDY,
        )


@contextlib.contextmanager
def _rejected(message: str) -> Iterator[None]:
    """Turns an error of a metric class into one for users."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # each class raises errors of its own
        cause: BaseException = error
        while cause.__cause__ is not None:
            cause = cause.__cause__
        reason = first_line(user_errors.explain(cause, folder=os.devnull))
        raise UserError(f"{message}: {reason}", remedy=_REMEDY) from error


def _merged(parts: Sequence[Accumulators]) -> Accumulators:
    """The parts together, each sent as a worker sends it."""
    merged = parts[0].empty()
    for part in parts:
        part.compact()
        merged.merge(pickle.loads(pickle.dumps(part)), np.array([0]))
    return merged


def _value(sums: Accumulators) -> float:
    (value,) = sums.values()
    return float(value)


def _batch(name: str, task: str, rows: slice, weighted: bool) -> Batch:
    """Some of the same rows for each call; labels are 0 and 1, or numbers above 0."""
    draw = np.random.default_rng(0)
    score, noise = draw.uniform(0.05, 0.95, _ROWS), draw.uniform(size=_ROWS)
    label = (score > noise).astype(np.float64)
    weight = draw.integers(1, 4, _ROWS).astype(np.float64) if weighted else None
    columns, width = {"prediction": score}, 1
    if task == "regression":
        label = score + noise
    if task == "multi_class":
        shares = draw.dirichlet(np.ones(_classes(name)), _ROWS)
        columns = {probability(i): shares[:, i] for i in range(shares.shape[1])}
    if task == "multi_label":
        width = _classes(name)
        label = draw.integers(0, 2, _ROWS * width).astype(np.float64)
        columns = {"prediction": draw.uniform(size=_ROWS * width)}
        weight = None if weight is None else weight.repeat(width)
    chosen = slice(rows.start * width, rows.stop * width)
    return Batch(
        task,
        label[chosen],
        {key: column[chosen] for key, column in columns.items()},
        np.zeros(chosen.stop - chosen.start, np.int64),
        1,
        None if weight is None else weight[chosen],
        width,
    )


def _classes(name: str) -> int:
    """Enough classes for each that the arguments name, such as `class_id: 4`."""
    values = required(parsed(name)).config.values()
    named = [each for each in values if isinstance(each, int) and 0 < each < 100]
    return max([2, *(each + 1 for each in named)])


def main(request: Mapping[str, Any]) -> dict[str, Any]:
    """Checks metrics; `problems` in the answer has the first of each, or None.

    Args:
      request: `metrics`, a list of [name, task]; `weighted`.
    """
    problems: list[dict[str, str] | None] = []
    for name, task in request["metrics"]:
        try:
            check(name, task, weighted=request["weighted"])
            problems.append(None)
        except UserError as error:
            parts = ("message", "received", "expected", "remedy")
            problems.append({part: getattr(error, part) for part in parts})
    return {"problems": problems}


if __name__ == "__main__":
    serve(main)
