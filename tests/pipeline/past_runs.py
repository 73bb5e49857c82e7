"""Makes a real history in ML Metadata: TFX runs five times in this process.

Usage: python past_runs.py ROOT. The nodes have the names, parameters and recorded
properties of Strategos' nodes, and do next to nothing. Prints the runs' ids by their
outcomes, as JSON. Annotations must stay real objects: TFX reads them.
"""

import json
import os
import sys
import time

import ml_metadata
import tensorflow as tf
from ml_metadata.proto import metadata_store_pb2
from tfx import v1 as tfx
from tfx.v1.dsl.components import InputArtifact, OutputArtifact, Parameter, component
from tfx.v1.types import standard_artifacts as artifacts

from strategos.components.errors import Place, UserError

OVERALL = {"auc": 0.74, "accuracy": 0.8}


@component
def ExampleGen(
    examples: OutputArtifact[artifacts.Examples],
    pattern: Parameter[str],
    spans: Parameter[str],
    split: Parameter[str],
):
    count = len(json.loads(spans))
    for name, rows in (("rows", 100), ("rows_train", 80), ("rows_eval", 20)):
        examples.set_int_custom_property(name, rows * count)
    files = [pattern.replace("{SPAN}", str(n)) for n, _ in json.loads(spans)]
    examples.set_string_custom_property("files", json.dumps(files))
    _touch(examples)


@component
def ImportSchemaGen(
    schema: OutputArtifact[artifacts.Schema],
    schema_file: Parameter[str],
    fingerprint: Parameter[str],
):
    _touch(schema)


@component
def Transform(
    examples: InputArtifact[artifacts.Examples],
    schema: InputArtifact[artifacts.Schema],
    transform_graph: OutputArtifact[artifacts.TransformGraph],
    transformed_examples: OutputArtifact[artifacts.Examples],
    custom_config: Parameter[str],
):
    if "broken" in custom_config:
        raise ValueError("preprocessing.py: broken")
    _touch(transform_graph)
    _touch(transformed_examples)


@component
def Trainer(
    examples: InputArtifact[artifacts.Examples],
    transform_graph: InputArtifact[artifacts.TransformGraph],
    schema: InputArtifact[artifacts.Schema],
    model: OutputArtifact[artifacts.Model],
    model_run: OutputArtifact[artifacts.ModelRun],
    user_module: Parameter[str],
    hyperparameters: Parameter[str],
    batch_size: Parameter[int],
    epochs: Parameter[int],
    seed: Parameter[int],
):
    model.set_string_custom_property("strategy", "one_device")
    model.set_string_custom_property("reason", "no GPU is visible")
    model.set_int_custom_property("replicas", 1)
    model.set_int_custom_property("steps", 40)
    model.set_string_custom_property("history", json.dumps({"loss": [0.5, 0.4]}))
    model.set_string_custom_property("evaluation", json.dumps({"auc": 0.7}))
    _touch(model)
    with tf.summary.create_file_writer(
        os.path.join(model_run.uri, "train")
    ).as_default():
        tf.summary.scalar("epoch_loss", 0.5, step=0)


@component
def BaselineModel(model: OutputArtifact[artifacts.Model], baseline: Parameter[str]):
    model.set_string_custom_property("path", baseline)
    model.set_int_custom_property("none", int(not baseline))
    _touch(model)


@component
def Evaluator(
    examples: InputArtifact[artifacts.Examples],
    model: InputArtifact[artifacts.Model],
    baseline_model: InputArtifact[artifacts.Model],
    evaluation: OutputArtifact[artifacts.ModelEvaluation],
    blessing: OutputArtifact[artifacts.ModelBlessing],
    required: Parameter[float],
):
    blessed = OVERALL["auc"] >= required
    bound = {"metric": "auc", "slice": "overall", "bound": "at_least", "examples": 20}
    bound |= {"required": required, "received": 0.74, "ok": blessed, "note": None}
    summary = {"task": "binary", "label": "late", "examples": 20, "slices": []}
    summary |= {"overall": OVERALL, "baseline": None, "bounds": [bound]}
    summary |= {"blessed": blessed, "reason": "all 1 bounds hold"}
    with open(os.path.join(evaluation.uri, "summary.json"), "w") as file:
        json.dump(summary, file)
    for name, value in OVERALL.items():
        evaluation.set_float_custom_property(name, value)
    evaluation.set_int_custom_property("examples", 20)
    blessing.set_int_custom_property("blessed", int(blessed))
    _touch(blessing)


@component
def EvaluationGate(
    evaluation: InputArtifact[artifacts.ModelEvaluation],
    blessing: InputArtifact[artifacts.ModelBlessing],
    passed: OutputArtifact[artifacts.String],
):
    if not blessing.get_int_custom_property("blessed"):
        raise ValueError("not blessed")
    passed.value = "yes"


@component
def Pusher(
    model: InputArtifact[artifacts.Model],
    model_blessing: InputArtifact[artifacts.ModelBlessing],
    passed: InputArtifact[artifacts.String],
    pushed_model: OutputArtifact[artifacts.PushedModel],
    destination: Parameter[str],
):
    version = str(int(time.time()))
    pushed_model.set_int_custom_property("pushed", 1)
    pushed_model.set_string_custom_property(
        "pushed_destination", os.path.join(destination, version)
    )
    pushed_model.set_string_custom_property("pushed_version", version)
    _touch(pushed_model)


def _touch(artifact):
    with open(os.path.join(artifact.uri, "made"), "w") as file:
        file.write("by a test")


def _nodes(root, spans, preprocessing, required):
    def module(name, fingerprint):
        return json.dumps({"folder": root, "module": name, "fingerprint": fingerprint})

    example_gen = ExampleGen(
        pattern=os.path.join(root, "span-{SPAN}", "data.csv"),
        spans=json.dumps(spans),
        split=json.dumps({"by": "hash", "keys": ["day"], "train": 8, "eval": 2}),
    )
    examples = example_gen.outputs["examples"]
    schema_gen = ImportSchemaGen(schema_file="flights.pbtxt", fingerprint="5c4e3a")
    schema = schema_gen.outputs["schema"]
    transform = Transform(
        examples=examples,
        schema=schema,
        custom_config=json.dumps(
            {"user_module": module("preprocessing", preprocessing)}
        ),
    )
    trainer = Trainer(
        examples=transform.outputs["transformed_examples"],
        transform_graph=transform.outputs["transform_graph"],
        schema=schema,
        user_module=module("model", "m0de1"),
        hyperparameters=json.dumps({"units": [64, 32], "learning_rate": 0.001}),
        batch_size=512,
        epochs=5,
        seed=1,
    )
    model = trainer.outputs["model"]
    baseline = BaselineModel(baseline="")
    evaluator = Evaluator(
        examples=examples,
        model=model,
        baseline_model=baseline.outputs["model"],
        required=required,
    )
    blessing = evaluator.outputs["blessing"]
    gate = EvaluationGate(evaluation=evaluator.outputs["evaluation"], blessing=blessing)
    pusher = Pusher(
        model=model,
        model_blessing=blessing,
        passed=gate.outputs["passed"],
        destination=os.path.join(root, "serving"),
    )
    return [
        *(example_gen, schema_gen, transform, trainer),
        *(baseline, evaluator, gate, pusher),
    ]


def _run(root, connection, outcome, spans, preprocessing="f00d", required=0.7, **facts):
    pipeline = tfx.dsl.Pipeline(
        "flights",
        os.path.join(root, "flights"),
        components=_nodes(root, spans, preprocessing, required),
        enable_cache=True,
        metadata_connection_config=connection,
    )
    started = time.time()
    try:
        tfx.orchestration.LocalDagRunner().run(pipeline)
    except ValueError:
        assert outcome in ("failed", "not blessed"), outcome
    store = ml_metadata.MetadataStore(connection)
    contexts = store.get_contexts_by_type("pipeline_run")
    context = max(contexts, key=lambda context: context.id)
    if outcome != "interrupted":
        facts |= {"outcome": outcome, "runner": "local", "host": "here"}
        facts |= {"log": os.path.join(root, "log.txt")}
        if outcome != "failed":  # as of versions that recorded none
            facts["spans"] = json.dumps(spans)
        context.custom_properties["started"].double_value = started
        context.custom_properties["finished"].double_value = time.time()
    for key, value in facts.items():
        context.custom_properties[key].string_value = value
    store.put_contexts([context])
    return context.name


def main(root):
    connection = metadata_store_pb2.ConnectionConfig()
    connection.sqlite.filename_uri = os.path.join(root, "metadata.sqlite")
    connection.sqlite.connection_mode = (
        metadata_store_pb2.SqliteMetadataSourceConfig.READWRITE_OPENCREATE
    )
    two, three = [[1, None], [2, None]], [[1, None], [2, None], [3, 4]]
    gate = {"failed_node": "EvaluationGate", "cause": "auc, overall: too low"}
    gate |= {"data": "da7a", "settings": "5e77"}
    error = UserError("broken", place=Place("preprocessing.py", 7))
    broken = {"failed_node": "Transform", "error": json.dumps(error.to_json())}
    ids = {
        "pushed": _run(root, connection, "blessed", two),
        "cached": _run(root, connection, "blessed", two),
        "gated": _run(root, connection, "not blessed", three, required=0.9, **gate),
        "failed": _run(root, connection, "failed", two, "broken", **broken),
        "killed": _run(root, connection, "interrupted", two),
    }
    print(json.dumps(ids))


if __name__ == "__main__":
    main(sys.argv[1])
