"""A pipeline with a pushed model, made without a training."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from strategos.pipeline import cli

SCHEMA = """
feature { name: "carrier" type: BYTES shape { dim { size: 1 } } }
feature { name: "hour" type: INT shape { dim { size: 1 } } }
feature { name: "temp" type: FLOAT value_count { min: 0 max: 1 } }
feature { name: "late" type: INT shape { dim { size: 1 } } }
"""
YAML = """
name: flights
label: late
data: {examples: "data/span-{SPAN}/*.csv"}
transform: {module: preprocessing}
trainer: {module: model, epochs: 1, batch_size: 8}
pusher: {to: serving/flights}
run: {root: runs, engine: {workers: 2}}
"""
CLASSES = ("on time", "late", "lost")


def save(folder: Path) -> None:
    """A network over a vocabulary, with three classes, a vector and a text a row."""
    import tensorflow as tf

    spec = {
        "carrier": tf.io.FixedLenFeature([1], tf.string),
        "hour": tf.io.FixedLenFeature([1], tf.int64),
        "temp": tf.io.VarLenFeature(tf.float32),
    }
    carriers = tf.lookup.KeyValueTensorInitializer(
        ["AA", "B6", "Köln"], tf.constant([0, 1, 2], tf.int64)
    )
    module = tf.Module()
    module.table = tf.lookup.StaticVocabularyTable(carriers, num_oov_buckets=2)
    generator = tf.random.Generator.from_seed(7)
    module.first = tf.Variable(generator.normal([7, 16]))
    module.last = tf.Variable(generator.normal([16, 4]))

    def answer(examples):
        raw = tf.io.parse_example(examples, spec)
        hour = tf.cast(raw["hour"], tf.float32)
        tf.debugging.assert_less(hour, 1e6, "hour is too large")
        one_hot = tf.one_hot(module.table.lookup(raw["carrier"][:, 0]), 5)
        temp = tf.sparse.to_dense(raw["temp"], default_value=-100.0)
        temp = tf.concat([temp, tf.fill([tf.shape(temp)[0], 1], -100.0)], 1)[:, :1]
        inputs = tf.concat([one_hot, hour / 24, temp / 100], 1)
        logits = tf.nn.relu(inputs @ module.first) @ module.last
        return {
            "predictions": tf.nn.softmax(logits),
            "score": tf.reduce_sum(logits, 1, keepdims=True),
            "grid": tf.reshape(logits, [-1, 2, 2]),
            "text": tf.strings.join([raw["carrier"][:, 0], "!"]),
        }

    wanted = tf.TensorSpec([None], tf.string, name="examples")
    module.answer = tf.function(answer, input_signature=[wanted])
    signatures = {"serving_default": module.answer}
    tf.saved_model.save(module, str(folder), signatures=signatures)
    extra = folder / "assets.extra"
    extra.mkdir()
    (extra / "schema.pbtxt").write_text(SCHEMA)
    described = {"label": "late", "features": ["carrier", "hour", "temp"]}
    described |= {"classes": list(CLASSES), "null_values": ["NA"]}
    (extra / "serving.json").write_text(json.dumps(described))


@pytest.fixture(scope="session")
def project(tmp_path_factory) -> Path:
    """The folder of a pipeline.yaml with the pushed version 10."""
    folder = tmp_path_factory.mktemp("flights")
    (folder / "pipeline.yaml").write_text(YAML)
    for name in ("preprocessing", "model"):
        (folder / f"{name}.py").touch()
    save(folder / "serving" / "flights" / "10")
    return folder


@pytest.fixture
def predict(project, tmp_path, monkeypatch, warm_processes):
    """`strategos predict`: `predict(*words)` returns the exit code."""
    monkeypatch.chdir(tmp_path)

    def run(*words):
        yaml = str(project / "pipeline.yaml")
        return cli.main(["predict", yaml, *map(str, words)])

    return run
