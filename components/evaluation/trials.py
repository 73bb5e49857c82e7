"""Tries metrics of plug-ins on a few rows: they merge, and weigh their rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from strategos.components.evaluation.library.classes import is_known
from strategos.components.evaluation.metrics import METRICS, Batch, plain
from strategos.components.evaluation.slices.slicing import part_of
from strategos.components.slow_imports import np

_LABEL = (1.0, 0.0, 1.0, 0.0, 1.0, 1.0, 0.0, 0.0)
_SCORE = (0.9, 0.2, 0.4, 0.7, 0.6, 0.1, 0.3, 0.8)
_SLICE = (1, 0, 0, 1, 1, 0, 1, 0)
_PARTS = (slice(5, 8), slice(0, 2), slice(2, 5))


def unmerged(names: Sequence[str], task: str) -> dict[str, str]:
    """The metrics of plug-ins that fail, or depend on how rows are divided, and why.

    Workers compute parts of a metric, and these are merged in any order.

    Args:
      names: Names in `METRICS` that are defined for the task.
      task: One of `metrics.TASKS`.
    """
    reasons = {}
    for name in _of_plugins(names):
        try:
            whole, *parts = (_sums(name, task, rows) for rows in (slice(8), *_PARTS))
            merged = parts[0].merge(parts[1]).merge(parts[2])
            pairs = zip(merged.metrics("m"), whole.metrics("m"), strict=True)
            values = [
                (mine.metrics[name], other.metrics[name]) for mine, other in pairs
            ]
        except Exception as error:  # a plug-in may raise any
            reasons[name] = f"fails on a few rows: {type(error).__name__}: {error}"
            continue
        for mine, wanted in values:
            if not np.allclose(mine, wanted, equal_nan=True):
                reasons[name] = (
                    f"does not merge: {wanted:.6g} from 8 rows at once, and "
                    f"{mine:.6g} from three parts of them"
                )
                break
    return reasons


def unweighted(names: Sequence[str], task: str) -> list[str]:
    """The metrics of plug-ins that ignore weights.

    Compares a few weighted rows with the same rows repeated as often as they weigh.

    Args:
      names: Names in `METRICS` that are defined for the task.
      task: One of `metrics.TASKS`.
    """
    return [name for name in _of_plugins(names) if _ignores(name, task)]


def _of_plugins(names: Sequence[str]) -> Iterator[str]:
    for name in names:
        if name in METRICS and not is_known(name) and plain(name) not in METRICS.own:
            yield name


def _sums(name: str, task: str, rows: slice) -> Any:
    """The sums of some rows, over all and by slice."""
    # Sums import numpy, and this module is imported by every check of a configuration.
    from strategos.components.evaluation.classes.entries import SliceMembership
    from strategos.components.evaluation.sums import Sums

    label, columns = np.array(_LABEL)[rows], _columns(task, rows)
    values, code = np.unique(np.array(_SLICE)[rows], return_inverse=True)
    member = SliceMembership(values.tolist(), np.arange(len(label)), code)
    classes: tuple[str, ...] = ()
    if part_of(task):
        classes = ("a", "b")
        label = np.stack([label, 1 - label], axis=1)
        columns = {key: np.stack([x, x / 2], axis=1) for key, x in columns.items()}
    sums = Sums([name], task)
    sums.add(label, {"m": columns}, {"f": member}, classes=classes)
    sums.compact()
    return sums


def _columns(task: str, rows: slice) -> dict[str, np.ndarray]:
    label, score = np.array(_LABEL)[rows], np.array(_SCORE)[rows]
    if task == "multi_class":
        return {"right": label, "loss": score, "predicted": label}
    return {"prediction": score}


def _ignores(name: str, task: str) -> bool:
    times = np.array([3, 1, 2, 1])
    label, columns = np.array(_LABEL)[:4], _columns(task, slice(4))
    ones = np.zeros(len(times), np.int64)
    weighted = Batch(task, label, columns, ones, 1, times.astype(np.float64))
    repeated = Batch(
        task,
        np.repeat(label, times),
        {key: np.repeat(column, times) for key, column in columns.items()},
        np.repeat(ones, times),
        1,
    )
    actual, wanted = (_value(name, batch) for batch in (weighted, repeated))
    return not np.allclose(actual, wanted, equal_nan=True)


def _value(name: str, batch: Batch) -> float:
    metric = METRICS[name]
    result = metric.finish(metric.sums(batch))
    values = result[0] if isinstance(result, tuple) else result
    return float(values[0])
