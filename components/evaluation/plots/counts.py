"""Mergeable counts of a model's answers over all rows; numpy only.

They take memory for bins and classes, not for rows. However the rows are divided,
merged counts are the same (those of weighted rows but for their last digits).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from strategos.components.evaluation.plots import errors
from strategos.components.evaluation.plots.errors import Errors

BINS = 1024
"""Bins of scores; see `edges`."""
MOST_CLASSES = 100
"""Classes that are counted one by one."""


def edges() -> np.ndarray:
    """The borders of the bins, float64 [BINS + 1], from 0 to 1; 0.5 is one of them.

    A bin holds the scores above its lower border, up to its upper one. Bins are narrow
    near 0 and 1, as the arcsine of the root gives an estimated share about the same
    variance everywhere (Anscombe 1948): a model of rare events predicts near 0.
    """
    borders = np.sin(np.linspace(0, np.pi / 2, BINS + 1)) ** 2
    borders[[0, BINS // 2, BINS]] = 0.0, 0.5, 1.0
    return borders


@dataclass
class Counts:
    """The answers of one model to the rows that count.

    Attributes:
      names: Names of the classes: of multi_label one for each row of `bins`, of
        multi_class in the order of the model's outputs. () if there are none.
      bins: float64 [scores, 3, BINS]: by bin of the score the sum of the weights, of
        the weights of positive rows, and of weights times scores. The score of
        multi_class is the probability of the predicted class, and a row is positive if
        that class is right.
      confusion: float64 [classes, classes]: sum of the weights by label and predicted
        class; multi_class only, and only of at most `MOST_CLASSES` classes.
      is_multi_class: Whether the task is multi_class.
    """

    names: tuple[str, ...]
    bins: np.ndarray
    confusion: np.ndarray | None = None
    is_multi_class: bool = False

    def merge(self, later: Counts) -> Counts:
        """The counts of these and of other rows."""
        confusion = None
        if self.confusion is not None and later.confusion is not None:
            confusion = self.confusion + later.confusion
        bins = self.bins + later.bins
        return dataclasses.replace(self, bins=bins, confusion=confusion)


def of(
    task: str,
    label: np.ndarray,
    answer: np.ndarray,
    weight: np.ndarray | None = None,
    names: Sequence[str] = (),
    earlier: Counts | Errors | None = None,
) -> Counts | Errors:
    """Counts the answers to a batch of rows; those that are not finite are left out.

    Args:
      task: One of `metrics.TASKS`.
      label: float64 [rows]; multi_label: [rows, classes]; of reconstruction, the
        features [rows, values].
      answer: float64 [rows, k], probabilities; of regression and reconstruction,
        predictions.
      weight: float64 [rows], not negative; None for 1.
      names: Names of all classes of multi_label; of multi_class those that are known.
      earlier: Counts that these will be merged with.

    Returns:
      The counts; of regression and reconstruction, as their answers have no bounds,
      the counts of errors.
    """
    if task == "regression":
        return errors.of(label, answer[:, 0], weight, earlier)  # type: ignore[arg-type]
    if task == "reconstruction":
        return errors.of_rows(label, answer, weight, earlier)  # type: ignore[arg-type]
    weight = np.ones(len(label)) if weight is None else weight
    finite = np.isfinite(answer).all(axis=1)
    label, answer, weight = label[finite], answer[finite], weight[finite]
    if task == "multi_class":
        chosen = answer.argmax(axis=1)
        score, right = answer.max(axis=1), (chosen == label).astype(np.float64)
        confusion = _confusion(label, chosen, weight, answer.shape[1])
        bins = _binned(score, right, weight)[np.newaxis]
        return Counts(tuple(names), bins, confusion, is_multi_class=True)
    if task == "binary":
        return Counts((), _binned(answer[:, 0], label, weight)[np.newaxis])
    few = len(names) <= MOST_CLASSES
    columns = range(answer.shape[1])
    bins = np.stack([_binned(answer[:, i], label[:, i], weight) for i in columns])
    return Counts(*((tuple(names), bins) if few else ((), bins.sum(0, keepdims=True))))


def _binned(score: np.ndarray, label: np.ndarray, weight: np.ndarray) -> np.ndarray:
    place = np.clip(np.searchsorted(edges(), score) - 1, 0, BINS - 1)
    sums = weight, weight * label, weight * score
    return np.stack([np.bincount(place, each, BINS) for each in sums])


def _confusion(
    label: np.ndarray, chosen: np.ndarray, weight: np.ndarray, classes: int
) -> np.ndarray | None:
    if classes > MOST_CLASSES:
        return None
    place = label.astype(np.int64) * classes + chosen
    return np.bincount(place, weight, classes**2).reshape(classes, classes)
