"""Compares the AUC of the flights model with scikit-learn's, on the same features.

    .venv/bin/strategos run examples/flights/pipeline.yaml
    .venv/bin/python benchmarks/flights_reference.py

Reads the model that was pushed last, and its examples for training and evaluation. The
reference, a HistGradientBoostingClassifier with default settings, is trained on the
output of the exported model's own preprocessing: the same rows and features, categories
as numbers. The exit code is 1 if the model's AUC is more than 0.01 below the
reference's.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import roc_auc_score

from strategos.pipeline.history.store import Store, properties, pushed_models
from strategos.pipeline.root import metadata

LABEL = "late"
TOLERANCE = 0.01
BATCH = 10_000
ROOT = Path(__file__).parents[1] / "examples" / "flights" / "runs"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--root", default=str(ROOT), help="the root of the run")
    model_path, examples_path = last_push(parser.parse_args().root)
    model = tf.saved_model.load(model_path)
    features, labels = transformed(model, examples_path, "train")
    started = time.time()
    reference = HistGradientBoostingClassifier(random_state=0).fit(features, labels)
    took = f"{time.time() - started:.0f} s to train"
    features, labels = transformed(model, examples_path, "eval")
    theirs = roc_auc_score(labels, reference.predict_proba(features)[:, 1])
    ours = roc_auc_score(labels, predictions(model, examples_path))
    print(f"{len(labels):,} flights, {features.shape[1]} columns, {model_path}")
    print(f"AUC of the model                         {ours:.4f}")
    print(f"AUC of HistGradientBoostingClassifier()  {theirs:.4f}  ({took})")
    print(f"difference                              {ours - theirs:+.4f}")
    return int(ours < theirs - TOLERANCE)


def last_push(root: str) -> tuple[str, str]:
    """The folders of the model that was pushed last and of its raw examples.

    Raises:
      SystemExit: No model was pushed.
    """
    store = Store(metadata.connection(root))
    pushed = pushed_models(store)
    if not pushed:
        raise SystemExit(f"{root}: no model was pushed yet: strategos run")
    upstream = {event.artifact_id for event in store.upstream(pushed[-1].id)}
    artifacts = store.mlmd.get_artifacts_by_id(sorted(upstream))
    raw = [a.uri for a in artifacts if "/ExampleGen/" in a.uri]
    return properties(pushed[-1])["pushed_destination"], raw[-1]


def transformed(model, folder: str, split: str) -> tuple[np.ndarray, np.ndarray]:
    """Features float32[n, columns] and labels [n] from the model's preprocessing."""
    parts, labels = [], []
    for examples in batches(folder, split):
        columns = model.signatures["transform_features"](examples=examples)
        rows = len(examples)
        labels.append(columns.pop(LABEL).numpy().reshape(rows))
        values = [columns[name].numpy().reshape(rows, -1) for name in sorted(columns)]
        parts.append(np.concatenate(values, axis=1, dtype=np.float32))
    return np.concatenate(parts), np.concatenate(labels)


def predictions(model, folder: str) -> np.ndarray:
    """The model's predictions, float32[n], for the raw evaluation examples."""
    answers = [
        model.signatures["serving_default"](examples=examples)["predictions"]
        for examples in batches(folder, "eval")
    ]
    return np.concatenate(answers)[:, 0]


def batches(folder: str, split: str) -> tf.data.Dataset:
    files = sorted(tf.io.gfile.glob(f"{folder}/Split-{split}/*.gz"))
    return tf.data.TFRecordDataset(files, "GZIP").batch(BATCH)


if __name__ == "__main__":
    raise SystemExit(main())
