"""Examples, models, and the Evaluator and TFMA that evaluate them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_model_analysis as tfma
from google.protobuf import text_format
from tensorflow_metadata.proto.v0 import schema_pb2
from tfx.types import standard_artifacts

from strategos.components.evaluation import metrics
from strategos.components.evaluation.outcome import summary
from strategos.components.evaluator.executor import Executor
from strategos.components.evaluator.tfma import eval_config
from strategos.components.records import counts

ROWS = 1200
GRADES = ["low", "mid", "top"]
LABELS = {"binary": "late", "multi_class": "grade", "regression": "delay"}

SCHEMA = """
feature { name: "x" type: FLOAT } feature { name: "late" type: INT }
feature { name: "grade" type: INT } feature { name: "grade_name" type: BYTES }
feature { name: "delay" type: FLOAT } feature { name: "carrier" type: BYTES }
feature { name: "month" type: INT } feature { name: "number" type: FLOAT }
feature { name: "w" type: FLOAT }
feature { name: "whole" type: INT } feature { name: "word" type: BYTES }
"""


class Linear(tf.Module):
    """Raw examples through one matrix and an activation; knows the grades' names.

    Its preprocessing passes labels that are numbers through `label`, the number of a
    grade through `grade`.
    """

    def __init__(
        self,
        weights,
        activation,
        label=tf.identity,
        columns=2,
        grade=tf.identity,
        grades=GRADES,
    ):
        super().__init__()
        self.label, self.columns, self.grade = label, columns, grade
        self.weights = tf.Variable(np.asarray(weights, np.float32))
        self.activation = activation
        numbers = tf.range(len(grades), dtype=tf.int64)
        table = tf.lookup.KeyValueTensorInitializer([*grades], numbers)
        self.grades = tf.lookup.StaticHashTable(table, -1)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="examples")])
    def serve(self, examples):
        spec = {"x": tf.io.FixedLenFeature([self.columns], tf.float32)}
        x = tf.io.parse_example(examples, spec)["x"]
        return {"predictions": self.activation(x @ self.weights)}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="examples")])
    def transform(self, examples):
        spec = {
            "grade_name": tf.io.FixedLenFeature([], tf.string, ""),
            "late": tf.io.FixedLenFeature([], tf.int64, 0),
            "delay": tf.io.FixedLenFeature([], tf.float32, 0.0),
            "w": tf.io.FixedLenFeature([], tf.float32, 1.0),
        }
        parsed = tf.io.parse_example(examples, spec)
        return {
            "grade_name": self.grade(self.grades.lookup(parsed["grade_name"])),
            "late": self.label(parsed["late"]),
            "delay": self.label(parsed["delay"]),
            "late_xf": parsed["late"],
            "w": parsed["w"],
            "w_xf": 2 * parsed["w"],
        }

    def save(self, folder):
        signatures = {
            "serving_default": self.serve,
            "transform_features": self.transform,
        }
        tf.saved_model.save(self, f"{folder}/Format-Serving", signatures=signatures)
        return str(folder)


def _example(**features):
    result = tf.train.Example()
    for name, values in features.items():
        values = values if isinstance(values, list) else [values]
        feature = result.features.feature[name]
        for value in values:
            if isinstance(value, (str, bytes)):
                value = value.encode() if isinstance(value, str) else value
                feature.bytes_list.value.append(value)
            elif isinstance(value, int):
                feature.int64_list.value.append(value)
            else:
                feature.float_list.value.append(value)
    return result.SerializeToString()


def _write_examples(folder, rows, files=1):
    """Writes the eval split; its last file has no rows if there are several."""
    (folder / "Split-eval").mkdir(parents=True)
    size = -(-len(rows) // max(files - 1, 1))
    for number in range(files):
        name = f"data_tfrecord-{number:05}-of-{files:05}.gz"
        with tf.io.TFRecordWriter(f"{folder}/Split-eval/{name}", "GZIP") as writer:
            for row in rows[number * size : (number + 1) * size]:
                writer.write(_example(**row))
    return str(folder)


@pytest.fixture(scope="module")
def workload(tmp_path_factory):
    """Folders of examples, schema, and two models per task."""
    root = tmp_path_factory.mktemp("workload")
    rng = np.random.default_rng(1)
    rows = []
    for i in range(ROWS):
        x = rng.normal(size=2)
        grade = int(np.argmax([x[0], x[1], rng.normal()]))
        rows.append(
            {
                "x": [float(value) for value in x],
                "late": int(x.sum() + rng.normal() > 0.5),
                "grade": grade,
                "grade_name": GRADES[grade],
                "delay": float(2 + x[0] + rng.normal()),
                # none, one, or two of them
                "carrier": [["OO"], ["UA", "AA"], ["UA"], []][i % 4],
                "month": int(rng.integers(1, 4)),
            }
        )
    (root / "schema").mkdir()
    (root / "schema" / "schema.pbtxt").write_text(SCHEMA)
    shapes = {
        "binary": (([[1.0], [1.0]], [[1.0], [0.2]]), tf.sigmoid),
        "multi_class": (
            ([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]], [[1.0, 0.0, 0.0], [0.0, 0.1, 0.0]]),
            tf.nn.softmax,
        ),
        "regression": (([[1.0], [0.0]], [[0.5], [0.0]]), lambda x: x + 2.0),
    }
    paths = {"examples": _write_examples(root / "examples", rows), "root": root}
    paths |= {"schema": str(root / "schema"), "labels": LABELS, "rows": ROWS}
    paths["shares"] = np.bincount([row["grade"] for row in rows]) / ROWS
    for task, (weights, activation) in shapes.items():
        for role, matrix in zip(("candidate", "baseline"), weights, strict=True):
            paths[task, role] = Linear(matrix, activation).save(root / f"{task}-{role}")
    return paths


def _artifact(kind, uri, **properties):
    result = kind()
    result.uri = str(uri)
    for name, value in properties.items():
        result.set_int_custom_property(name, value)
    return result


def _evaluate(workload, folder, task="binary", baseline=None, examples=None, **section):
    """Runs the executor; returns the summary, the evaluation and the blessing."""
    label, written = section.pop("label", ""), section.pop("written", 0)
    label = label or LABELS[task]
    read = {"label": label, "weight": section.pop("weight", "")}
    model = section.pop("model", "") or workload[task, "candidate"]
    executor = section.pop("executor", Executor)
    names = [x for x in metrics.names(task) if not metrics.METRICS[x].by_query]
    section = {"task": task, "metrics": names, **section}
    data = _artifact(standard_artifacts.Examples, examples or workload["examples"])
    data.split_names = '["train", "eval"]'
    counts.record(data, "eval", written)
    inputs = {
        "examples": [data],
        "model": [_artifact(standard_artifacts.Model, model)],
        "schema": [_artifact(standard_artifacts.Schema, workload["schema"])],
    }
    if baseline is not None:
        inputs["baseline_model"] = [baseline]
    for (each,) in inputs.values():  # as recorded by the run that made them
        each.set_string_custom_property("content", each.uri)
    evaluation = _artifact(standard_artifacts.ModelEvaluation, folder / "evaluation")
    blessing = _artifact(standard_artifacts.ModelBlessing, folder / "blessing")
    for made in (evaluation, blessing):
        tf.io.gfile.makedirs(made.uri)
    properties = {"settings": json.dumps({"evaluator": section, **read})}
    outputs = {"evaluation": [evaluation], "blessing": [blessing]}
    executor().Do(inputs, outputs, properties)
    text = Path(evaluation.uri, summary.FILE).read_text()
    return json.loads(text), evaluation, blessing


def _stock(
    workload, folder, task, section, label, baseline=False, examples=None, weight=""
):
    """Evaluates with TFMA: runs its pipeline on the files and loads the result."""
    config = eval_config.build(section, label, label == "grade_name", weight=weight)
    config = tfma.utils.update_eval_config_with_defaults(config, has_baseline=baseline)
    roles = ["candidate", "baseline"] if baseline else ["candidate"]
    models = [
        tfma.default_eval_shared_model(
            f"{workload[task, role]}/Format-Serving",
            model_name=role if baseline else "",
            eval_config=config,
        )
        for role in roles
    ]
    return tfma.run_model_analysis(
        eval_shared_model=models if baseline else models[0],
        eval_config=config,
        data_location=f"{examples or workload['examples']}/Split-eval/*",
        output_path=str(folder),
        schema=text_format.Parse(SCHEMA, schema_pb2.Schema()),
    )


def _by_slice(result):
    """{slice: {metric: number}} of an EvalResult, undefined numbers as NaN."""
    return {
        key: {name: float(v["doubleValue"]) for name, v in found[""][""].items()}
        for key, found in result.slicing_metrics
    }


@pytest.fixture(scope="module")
def linear():
    return Linear


@pytest.fixture
def artifact():
    return _artifact


@pytest.fixture
def eval_split(tmp_path):
    """Writes rows, dicts of values by feature, as an eval split; returns its folder."""
    return lambda rows, name="examples", files=1: _write_examples(
        tmp_path / name, rows, files
    )


@pytest.fixture
def evaluate():
    return _evaluate


@pytest.fixture
def stock():
    return _stock


@pytest.fixture
def by_slice():
    return _by_slice
