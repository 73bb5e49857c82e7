"""Scores pushed models on rows that they have not seen, with scikit-learn."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import tensorflow as tf
from sklearn.metrics import roc_auc_score

from strategos.components.data_files import columns
from strategos.components.data_files.sources import open_source
from strategos.components.data_files.values import features, numerals
from strategos.components.evaluation.inputs.models import Location, Model
from strategos.components.records import encode

_ROWS = 4096


_load = functools.lru_cache(maxsize=4)(
    lambda model: Model(Location("live", "model", model))
)


def auc(models: Sequence[str], file: Path, schema: Path) -> list[float]:
    """The area under the ROC curve of each model on all rows of a file.

    Args:
      models: SavedModels.
      file: The rows, with their label `late`.
      schema: The curated schema.
    """
    source = open_source(str(file))
    kinds = columns.from_schema([source], str(schema))
    labels, records = [], []
    (whole,) = source.parts(1 << 40)
    for raw in source.batches(whole):
        batch = features.convert(raw, kinds, numerals.ONLY_EMPTY)
        records += encode.serialize(batch).to_pylist()
        labels.append(np.asarray(batch.column("late").flatten()))
    truth = np.concatenate(labels)
    return [roc_auc_score(truth, _scores(_load(model), records)) for model in models]


def _scores(model: Model, records: Sequence[bytes]) -> np.ndarray:
    parts = (records[first : first + _ROWS] for first in range(0, len(records), _ROWS))
    return np.concatenate(
        [model.answer(model.predict(tf.constant(part))) for part in parts]
    )[:, 0]
