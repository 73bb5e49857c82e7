"""Tests that metrics weigh their rows: those of plug-ins may count them instead."""

from __future__ import annotations

from collections.abc import Sequence

from strategos.components.evaluation.library.classes import is_known
from strategos.components.evaluation.metrics import METRICS, Batch, plain


def unweighted(names: Sequence[str], task: str) -> list[str]:
    """The metrics of plug-ins that ignore weights.

    Compares a few weighted rows with the same rows repeated as often as they weigh.

    Args:
      names: Names in `METRICS` that are defined for the task.
      task: One of `metrics.TASKS`.
    """
    known = (name for name in names if name in METRICS and not is_known(name))
    others = [name for name in known if plain(name) not in METRICS.own]
    return [name for name in others if _ignores(name, task)]


def _ignores(name: str, task: str) -> bool:
    import numpy as np

    times = np.array([3, 1, 2, 1])
    label, score = np.array([1.0, 0.0, 1.0, 0.0]), np.array([0.9, 0.2, 0.4, 0.7])
    columns = {"prediction": score}
    if task == "multi_class":
        columns = {"right": label, "loss": score, "predicted": label}
    ones = np.zeros(len(times), np.int64)
    weighted = Batch(task, label, columns, ones, 1, times.astype(np.float64))
    repeated = Batch(
        task,
        np.repeat(label, times),
        {key: np.repeat(column, times) for key, column in columns.items()},
        np.repeat(ones, times),
        1,
    )
    found, wanted = (_value(name, batch) for batch in (weighted, repeated))
    return not np.allclose(found, wanted, equal_nan=True)


def _value(name: str, batch: Batch) -> float:
    metric = METRICS[name]
    result = metric.finish(metric.sums(batch))
    values = result[0] if isinstance(result, tuple) else result
    return float(values[0])
