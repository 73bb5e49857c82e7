"""The rank of classes by the probabilities that a model gives them; numpy only."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from strategos.components.errors import UserError
from strategos.components.evaluation.metrics import top


def of(answer: np.ndarray, label: np.ndarray, task: str) -> np.ndarray:
    """How many classes of a row are likelier; of equally likely ones, the first is.

    Args:
      answer: float64 [rows, classes].
      label: float64 [rows], multi_class: the class of each row.
      task: `multi_class` or `multi_label`.

    Returns:
      float64 [rows], the rank of the label, NaN if an answer is; for multi_label
      float64 [rows, classes].
    """
    if task == "multi_label":
        order = np.argsort(-answer, axis=1, kind="stable")
        return np.argsort(order, axis=1, kind="stable").astype(np.float64)
    place = label.astype(np.int64)[:, np.newaxis]
    own = np.take_along_axis(answer, place, axis=1)
    earlier = np.arange(answer.shape[1]) < place
    rank = ((answer > own) | ((answer == own) & earlier)).sum(axis=1)
    return np.where(np.isfinite(answer).all(axis=1), rank, np.nan)


def check(classes: int, metrics: Sequence[str]) -> None:
    """Rejects metrics of more classes than there are.

    Args:
      classes: Number of classes.
      metrics: Names of metrics.

    Raises:
      UserError: A metric `…@topK` has a larger K.
    """
    for name in metrics:
        if top(name) > classes:
            raise UserError(
                f"`{name}` is of {top(name)} classes, and the model has {classes}",
                key="evaluator.metrics",
                remedy=f"Write a number below {classes} behind `@top`.",
            )
