"""Runs one component, on the engine of the environment: `of(NODE)(INPUTS, URI)`.

Both are folders, here or in an object store. Inputs are cut into more shards than a job
would otherwise be worth.
"""

from __future__ import annotations

import json
from pathlib import Path

import tensorflow as tf
import tensorflow_transform as tft
from tensorflow_metadata.proto.v0 import schema_pb2
from tfx.dsl.io import fileio
from tfx.types import standard_artifacts as artifacts

from strategos.components.data_files import shards
from strategos.components.evaluation import scoring
from strategos.components.evaluator import executor as evaluator
from strategos.components.example_gen import executor as example_gen
from strategos.components.files import storage
from strategos.components.records import columns
from strategos.components.shards.engine import Engine
from strategos.components.statistics_gen import executor as statistics_gen
from strategos.components.transform import analysis
from strategos.components.transform.materialize import materialize

SHARDS = 8
SPLITS = ("train", "eval")
scoring.SHARD_BYTES = 1  # a file is a shard


def of(node):
    return {
        "ExampleGen": write_examples,
        "StatisticsGen": write_statistics,
        "analysis": analyze,
        "output": transform,
        "Evaluator": evaluate,
    }[node]


def prepare(inputs):
    """Makes what components after ExampleGen read, from `data/a.csv`."""
    write_examples(inputs, f"{inputs}/examples")
    analyze(inputs, f"{inputs}/graph")
    prepare_evaluation(inputs)


def prepare_evaluation(inputs, described=None):
    save(Model(), f"{inputs}/model/Format-Serving")
    fileio.makedirs(f"{inputs}/schema")
    with fileio.open(f"{inputs}/schema/schema.pbtxt", "w") as file:
        file.write(str(described or schema()))


def write_examples(inputs, uri, table="a.csv"):
    table = f"{inputs}/data/{table}"
    (status,) = storage.statuses([table])
    shards._LEAST_BYTES = status.size // SHARDS
    names = ("fingerprint", "schema_file", "schema_fingerprint")
    names += ("label", "stack", "unlabelled")
    properties = dict.fromkeys(names, "") | {
        "pattern": table,
        "spans": "[]",
        "null_values": "[]",
        "split": json.dumps({"by": "hash", "keys": ["key"], "train": 8, "eval": 2}),
    }
    made = artifact(artifacts.Examples, uri)
    example_gen.Executor().Do({}, {"examples": [made]}, properties)


def write_statistics(inputs, uri):
    examples = artifact(artifacts.Examples, f"{inputs}/examples")
    examples.split_names = json.dumps(SPLITS)
    made = artifact(artifacts.ExampleStatistics, uri)
    outputs = {"statistics": [made]}
    statistics_gen.Executor().Do({"examples": [examples]}, outputs, {})


def analyze(inputs, uri, function=None, described=None):
    files = columns.files(f"{inputs}/examples", "train")
    function, described = function or preprocessing_fn, described or schema()
    engine = Engine.from_environment()
    analysis.analyze(engine, function, files, described, str(uri))


def transform(inputs, uri, graph=None):
    files = {split: columns.files(f"{inputs}/examples", split) for split in SPLITS}
    graph = str(graph or f"{inputs}/graph")
    materialize(Engine.from_environment(), graph, files, str(uri))


def evaluate(inputs, uri, store=None):
    examples = artifact(artifacts.Examples, f"{store or inputs}/examples")
    examples.split_names = json.dumps(SPLITS)
    section = {"task": "regression", "metrics": ["mse", "mae"], "slices": ["text"]}
    settings = json.dumps({"evaluator": section, "label": "key"})
    given = {
        "examples": [examples],
        "model": [artifact(artifacts.Model, f"{inputs}/model")],
        "schema": [artifact(artifacts.Schema, f"{inputs}/schema")],
    }
    outputs = {
        "evaluation": [artifact(artifacts.ModelEvaluation, f"{uri}/evaluation")],
        "blessing": [artifact(artifacts.ModelBlessing, f"{uri}/blessing")],
    }
    for made in outputs.values():
        tf.io.gfile.makedirs(made[0].uri)
    evaluator.Executor().Do(given, outputs, {"settings": settings})


def artifact(kind, uri):
    made = kind()
    made.uri = str(uri)
    return made


def schema():
    made = schema_pb2.Schema()
    made.feature.add(name="text", type=schema_pb2.BYTES)  # missing in some rows
    key = made.feature.add(name="key", type=schema_pb2.INT)
    key.presence.min_fraction = 1
    key.shape.dim.add(size=1)
    return made


def preprocessing_fn(inputs):
    text = tft.compute_and_apply_vocabulary(inputs["text"])
    return {"text": text, "key": tft.scale_to_z_score(inputs["key"])}


class Model(tf.Module):
    """Predicts a number from the text's length."""

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="examples")])
    def serve(self, examples):
        spec = {"text": tf.io.FixedLenFeature([], tf.string, "")}
        text = tf.io.parse_example(examples, spec)["text"]
        return {"predictions": tf.cast(tf.strings.length(text), tf.float32)[:, None]}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="examples")])
    def transform(self, examples):
        spec = {"key": tf.io.FixedLenFeature([], tf.int64, 0)}
        return tf.io.parse_example(examples, spec)


def save(model, folder):
    signatures = {"serving_default": model.serve, "transform_features": model.transform}
    tf.saved_model.save(model, str(folder), signatures=signatures)


def files(uri):
    """All files below a folder, by their names there."""
    found = (path for path in Path(uri).rglob("*") if path.is_file())
    return {str(path.relative_to(uri)): path.read_bytes() for path in found}
