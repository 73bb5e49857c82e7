"""Scores a pushed model on a month that it has not seen, with scikit-learn."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import tensorflow as tf
from sklearn.metrics import roc_auc_score

from strategos.components.evaluator.models import Location, Model
from strategos.components.example_gen import columns, features, numerals
from strategos.components.example_gen.sources import open_source
from strategos.components.records import encode

_ROWS = 4096


def auc(model: Path, file: Path, schema: Path) -> float:
    """The area under the ROC curve of a model on all rows of a file.

    Args:
      model: A SavedModel.
      file: The rows, with their label `late`.
      schema: The curated schema.
    """
    source = open_source(str(file))
    kinds = columns.from_schema([source], str(schema))
    loaded = Model(Location("live", "model", str(model)))
    labels, scores = [], []
    (whole,) = source.parts(1 << 40)
    for raw in source.batches(whole):
        batch = features.convert(raw, kinds, numerals.Nulls.of(()))
        records = encode.serialize(batch).to_pylist()
        for first in range(0, len(records), _ROWS):
            scores.append(loaded.predict(tf.constant(records[first : first + _ROWS])))
        labels.append(np.asarray(batch.column("late").flatten()))
    return roc_auc_score(np.concatenate(labels), np.concatenate(scores)[:, 0])
