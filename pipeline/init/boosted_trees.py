"""Gradient-boosted trees on the rows of a first fit, to compare the network with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strategos.components.errors import require_extra
from strategos.components.records import columns as stored
from strategos.components.records import streams

if TYPE_CHECKING:
    from strategos.pipeline.init.label import Label

_CATEGORIES = 255  # of scikit-learn's trees, at most
_MOST_ROWS = 200_000  # to train on, and to judge


def require() -> None:
    """Raises BadInputError where scikit-learn is missing."""
    require_extra("sklearn", "baseline", "--baseline", "scikit-learn")


def metric(examples: str, label: Label, names: Sequence[str]) -> float:
    """The task's main metric of scikit-learn's HistGradientBoosting.

    The trees have default settings. They are trained on the splits `train` and
    `validation`, and judged on `eval`, by at most 200,000 rows each. A column of
    numbers is taken as it is; texts are categories, of which the 254 most frequent
    ones are told apart. Columns with several values in a row are left out.

    Args:
      examples: URI of the Examples artifact.
      label: The label.
      names: Names of the raw columns.

    Returns:
      AUC of a binary label, accuracy of several classes, mean absolute error of a
      regression.
    """
    from sklearn import ensemble, metrics

    train, judge = _rows(examples, "train", "validation"), _rows(examples, "eval")
    single = [name for name in names if not _is_list(train, name)]
    coded = [_coded(train.column(name), judge.column(name)) for name in single]
    features, answers = (
        np.column_stack([each[part] for each in coded]) for part in (0, 1)
    )
    settings: dict[str, Any] = {"random_state": 0}
    settings["categorical_features"] = [each[2] for each in coded]
    column = label.column.name
    known, wanted = (_labels(each.column(column), label) for each in (train, judge))
    if label.task == "regression":
        trees = ensemble.HistGradientBoostingRegressor(**settings)
        predictions = trees.fit(features, known).predict(answers)
        return float(metrics.mean_absolute_error(wanted, predictions))
    trees = ensemble.HistGradientBoostingClassifier(**settings).fit(features, known)
    if label.task == "multi_class":
        return float(metrics.accuracy_score(wanted, trees.predict(answers)))
    return float(metrics.roc_auc_score(wanted, trees.predict_proba(answers)[:, 1]))


def _rows(examples: str, *splits: str) -> pa.Table:
    """The stored columns of splits: flat, but those of several values in a row."""
    batches, rows = [], 0
    for split in splits:
        for file in stored.files(examples, split):
            for batch in streams.batches(file):
                if rows < _MOST_ROWS:
                    batches.append(batch.slice(0, _MOST_ROWS - rows))
                    rows += batches[-1].num_rows
    return pa.Table.from_batches(batches)


def _is_list(rows: pa.Table, name: str) -> bool:
    return bool(pa.types.is_list(rows.schema.field(name).type))


def _coded(
    train: pa.ChunkedArray, judge: pa.ChunkedArray
) -> tuple[np.ndarray, np.ndarray, bool]:
    """The values of both as float64[rows], NaN if missing; whether they are codes."""
    if not pa.types.is_binary(train.type):
        return _numbers(train), _numbers(judge), False
    counts = pc.value_counts(train.drop_null())
    order = pc.sort_indices(counts.field("counts"), sort_keys=[("", "descending")])
    frequent = counts.field("values").take(order[: _CATEGORIES - 1])
    codes = [_numbers(pc.index_in(each, value_set=frequent)) for each in (train, judge)]
    return codes[0], codes[1], True


def _numbers(values: pa.ChunkedArray) -> np.ndarray:
    numbers = values.cast(pa.float64()).to_numpy()
    return np.array(numbers, np.float64)


def _labels(values: pa.ChunkedArray, label: Label) -> np.ndarray:
    if label.task == "multi_class":
        return np.array(values.cast(pa.string()).to_pylist())
    if label.positives:
        spellings = pa.array([each.encode() for each in label.positives], pa.binary())
        return np.array(pc.is_in(values, value_set=spellings))
    return _numbers(values)
