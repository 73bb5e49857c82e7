"""The script of an engineer by hand: pyarrow, NumPy, Keras 3, from CSV to SavedModel.

    python plain_script.py 'data/*/*.csv' OUT --epochs 4

The same features, network, steps and metrics by slice as examples/flights, without
lineage, validation, cache or gates. Part of whole_run; also runs alone.
"""

from __future__ import annotations

import argparse
import glob
import json
import os
import sys
import time
import zlib
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ["KERAS_BACKEND"] = "tensorflow"

import keras
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "flights"))
from features import (
    CARRIERS,
    CROSS_BUCKETS,
    DAYS,
    DISTANCE_BUCKETS,
    HOURS,
    ORIGINS,
    USUAL_WEATHER,
)

BATCH = 1024
DAYS_BEFORE_MONTH = np.cumsum([0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30])
SLICES = ("carrier", "origin", "month")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("pattern")
    parser.add_argument("out", type=Path)
    parser.add_argument("--epochs", type=int, default=4)
    arguments = parser.parse_args()
    started = time.monotonic()
    table = read(arguments.pattern)
    is_train = np.random.default_rng(1).random(table.num_rows) < 0.8
    features = transform(table, is_train)
    took = {"read and transform": time.monotonic() - started}
    label = np.asarray(table["late"], np.float32)
    model = train(features, label, is_train, arguments.epochs)
    took["train"] = time.monotonic() - started - sum(took.values())
    held = {name: values[~is_train] for name, values in features.items()}
    scores = model.predict(held, batch_size=8192, verbose=0)[:, 0]
    report = evaluate(table.filter(pa.array(~is_train)), label[~is_train], scores)
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / "metrics.json").write_text(json.dumps(report))
    model.export(str(arguments.out / "model"), verbose=False)
    took["evaluate and export"] = time.monotonic() - started - sum(took.values())
    print(json.dumps({"auc": report["all"]["auc"], "seconds": took}))


def read(pattern: str) -> pa.Table:
    return pa.concat_tables(csv.read_csv(path) for path in sorted(glob.glob(pattern)))


def transform(table: pa.Table, is_train: np.ndarray) -> dict[str, np.ndarray]:
    """The features of the example's preprocessing.py, fitted on the training rows."""
    column = {name: table[name].combine_chunks() for name in table.column_names}
    number = {name: _number(column[name], 0) for name in ("hour", "minute", "arrival")}
    day = DAYS_BEFORE_MONTH[_number(column["month"], 1) - 1] + _number(column["day"], 1)
    distance = _number(column["distance"], 0).astype(np.float32)
    edges = np.quantile(distance[is_train], np.arange(1, DISTANCE_BUCKETS) / 10)
    numeric = [distance]
    numeric += [_number(column[n], usual) for n, usual in USUAL_WEATHER.items()]
    numeric = np.stack(numeric, axis=1).astype(np.float32)
    mean, deviation = numeric[is_train].mean(axis=0), numeric[is_train].std(axis=0)
    found = pc.value_counts(column["dest"].filter(pa.array(is_train)))
    order = np.argsort(-found.field("counts").to_numpy(), kind="stable")
    destinations = found.field("values").take(pa.array(order))
    wind = _number(column["wind_dir"], -1).astype(np.float32)
    cycles = [
        _on_circle(number["hour"] * 60 + number["minute"], 24 * 60),
        _on_circle(number["arrival"], 24 * 60),
        _on_circle(_number(column["weekday"], 1), 7),
        _on_circle(day, 365),
        np.where(wind[:, None] < 0, 0, _on_circle(wind, 360)),
    ]
    return {
        "carrier": _index_in(pa.array(CARRIERS), column["carrier"]),
        "origin": _index_in(pa.array(ORIGINS), column["origin"]),
        "dest": _index_in(destinations, column["dest"]),
        "carrier_at_origin": _crossed(column["carrier"], column["origin"]),
        "distance_bucket": np.searchsorted(edges, distance, side="right")[:, None],
        "hour": number["hour"][:, None],
        "day_of_year": day[:, None],
        "numeric": (numeric - mean) / np.where(deviation, deviation, 1),
        "cyclic": np.concatenate(cycles, axis=1).astype(np.float32),
    }


def _number(column: pa.Array, missing: float) -> np.ndarray:
    return pc.fill_null(column, pa.scalar(missing).cast(column.type)).to_numpy()


def _index_in(domain: pa.Array, column: pa.Array) -> np.ndarray:
    index = pc.fill_null(pc.index_in(column, value_set=domain), len(domain))
    return index.to_numpy().astype(np.int64)[:, None]


def _crossed(left: pa.Array, right: pa.Array) -> np.ndarray:
    joined = pc.binary_join_element_wise(left, right, "@").dictionary_encode()
    words = joined.dictionary.to_pylist()
    hashes = np.array([zlib.crc32(word.encode()) % CROSS_BUCKETS for word in words])
    return hashes[joined.indices.to_numpy()][:, None]


def _on_circle(value: np.ndarray, period: float) -> np.ndarray:
    angle = value.astype(np.float32) * np.float32(2 * np.pi / period)
    return np.stack([np.sin(angle), np.cos(angle)], axis=1)


def train(
    features: dict[str, np.ndarray],
    label: np.ndarray,
    is_train: np.ndarray,
    epochs: int,
) -> keras.Model:
    rows = int(is_train.sum())
    model = build(int(features["dest"].max()) + 1, epochs * -(-rows // BATCH))
    splits = [
        ({name: values[wanted] for name, values in features.items()}, label[wanted])
        for wanted in (is_train, ~is_train)
    ]
    stop = keras.callbacks.EarlyStopping("val_auc", patience=2, mode="max")
    keras.utils.set_random_seed(1)
    model.fit(
        *splits[0],
        batch_size=BATCH,
        epochs=epochs,
        validation_data=splits[1],
        validation_batch_size=BATCH,
        callbacks=[stop],
        verbose=0,
    )
    return model


def build(destinations: int, steps: int) -> keras.Model:
    """The network of examples/flights/model.py."""
    embeddings = {
        "carrier": (len(CARRIERS) + 1, 4),
        "origin": (len(ORIGINS) + 1, 2),
        "dest": (destinations + 1, 8),
        "carrier_at_origin": (CROSS_BUCKETS, 4),
        "distance_bucket": (DISTANCE_BUCKETS, 2),
        "hour": (HOURS, 6),
        "day_of_year": (DAYS, 16),
    }
    inputs = {name: keras.Input([1], dtype="int64", name=name) for name in embeddings}
    inputs["numeric"] = keras.Input([9], name="numeric")
    inputs["cyclic"] = keras.Input([10], name="cyclic")
    parts = [inputs["numeric"], inputs["cyclic"]]
    for name, (values, size) in embeddings.items():
        embedding = keras.layers.Embedding(values, size)(inputs[name])
        parts.append(keras.layers.Flatten()(embedding))
    hidden = keras.layers.Concatenate()(parts)
    for units in (64, 32):
        hidden = keras.layers.Dense(units, activation="relu")(hidden)
    late = keras.layers.Dense(1, activation="sigmoid")(hidden)
    model = keras.Model(inputs, late)
    rate = keras.optimizers.schedules.CosineDecay(3e-3, steps)
    auc = keras.metrics.AUC(name="auc")
    model.compile(keras.optimizers.Adam(rate), "binary_crossentropy", metrics=[auc])
    return model


def evaluate(
    rows: pa.Table, label: np.ndarray, scores: np.ndarray
) -> dict[str, dict[str, float]]:
    """AUC, accuracy and calibration of all rows and of each slice."""
    found = {"all": _metrics(label, scores)}
    for name in SLICES:
        encoded = rows[name].combine_chunks().dictionary_encode()
        codes = encoded.indices.to_numpy()
        for code, value in enumerate(encoded.dictionary.to_pylist()):
            wanted = codes == code
            found[f"{name}={value}"] = _metrics(label[wanted], scores[wanted])
    return found


def _metrics(label: np.ndarray, scores: np.ndarray) -> dict[str, float]:
    _, ranks, counts = np.unique(scores, return_inverse=True, return_counts=True)
    middle = np.cumsum(counts) - (counts - 1) / 2
    late = label.sum()
    pairs = late * (len(label) - late)
    wins = middle[ranks][label == 1].sum() - late * (late + 1) / 2
    return {
        "auc": float(wins / pairs) if pairs else float("nan"),
        "accuracy": float(((scores > 0.5) == label).mean()),
        "calibration": float(scores.sum() / late) if late else float("nan"),
    }


if __name__ == "__main__":
    main()
