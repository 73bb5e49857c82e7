"""What a pipeline becomes for Kubeflow Pipelines and Vertex AI.

`STRATEGOS_GOLDEN=write pytest tests/pipeline/plan/test_cluster.py` writes the golden
files again.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
import yaml

from strategos.components import node_ids
from strategos.components.shards.engine import Engine
from strategos.components.user_code.workload_paths import WorkloadPaths
from strategos.pipeline.config import loading
from strategos.pipeline.config.cluster.sections import Kubeflow
from strategos.pipeline.plan.cluster import compiling, steps

GOLDEN = Path(__file__).with_name("golden")
SCHEMA = json.loads((GOLDEN / "kubernetes_executor_config.schema.json").read_text())

SECTIONS = """
kubeflow:
  image: registry.example.com/flights:1
  volumes: [{claim: serving, path: /mnt/serving}]
  secrets: [{name: s3, env: {AWS_SECRET_ACCESS_KEY: secret}}]
  config_maps: [{name: hosts, path: /etc/hosts.d}]
  image_pull_policy: IfNotPresent
  image_pull_secrets: [registry]
  steps:
    default: {cpu: 500m, memory: 2Gi, retries: 1}
    Resolve: {cpu: 1, retries: 0}
    Trainer:
      cpu: 8
      accelerator: {type: nvidia.com/gpu, count: 2}
      timeout: 12h
      node_selector: {cloud.google.com/gke-spot: "true"}
      tolerations: [{key: gpu, effect: NoSchedule}, {key: a, operator: Equal, value: b}]
vertex:
  image: registry.example.com/flights:1
  project: p
  root: gs://bucket/root
  steps: {Trainer: {memory: 16G, accelerator: {type: NVIDIA_L4}, cache: false}}
"""
REMEDY = "if that is meant: set STRATEGOS_GOLDEN=write and run this test"
HASHES = r'(\\*"(?:key|fingerprint)\\*": \\*")[0-9a-f]{16}'


@pytest.fixture
def compiled(workload, tmp_path):
    """Compiles the workload for a target with `--set` values; the file."""
    overlays = [str(workload.with_name("cluster.yaml"))]

    def compile_for(target, *sets, sections=SECTIONS, **options):
        workload.with_name("cluster.yaml").write_text(sections)
        config = loading.load(
            workload, overlays, ["pusher.to=/mnt/serving/flights", *sets]
        ).config
        compiling.compile_to(config, target, tmp_path / "out", **options)
        return tmp_path / "out"

    return compile_for


def outline(node, name=""):
    """A spec without TFX's types, and without settings whose tests are elsewhere."""
    if isinstance(node, list):
        return [outline(each, name) for each in node]
    if isinstance(node, dict):
        return {key: outline(each, key) for key, each in node.items()}
    if name == "instanceSchema":
        return node.partition("\n")[0]
    if name in ("sdkVersion", "constant", "tfx_py_version", "tfx_version"):
        return "…"
    if isinstance(node, str) and node.startswith('{"cache": '):
        return re.sub(HASHES, r"\1HASH", node)
    if isinstance(node, str) and node.startswith("{") and node != "{{$}}":
        return "{…}"
    return node


@pytest.mark.parametrize("target", ["kubeflow", "vertex"])
def test_compiled_file_is_the_golden_one(compiled, target):
    documents = yaml.safe_load_all(compiled(target).read_text())
    found = yaml.safe_dump_all(map(outline, documents), allow_unicode=True)
    golden = GOLDEN / f"{target}.yaml"
    if os.environ.get("STRATEGOS_GOLDEN") == "write":
        golden.write_text(found)
    assert found == golden.read_text(), REMEDY
    assert compiled(target).read_bytes() == compiled(target).read_bytes()


def test_spec_is_one_that_kfp_reads(compiled):
    from google.protobuf import json_format
    from kfp.pipeline_spec import pipeline_spec_pb2

    spec, platform = yaml.safe_load_all(compiled("kubeflow").read_text())
    json_format.ParseDict(spec, pipeline_spec_pb2.PipelineSpec())
    json_format.ParseDict(platform, pipeline_spec_pb2.PlatformSpec())
    for executor in spec["deploymentSpec"]["executors"].values():
        json_format.ParseDict(
            executor, pipeline_spec_pb2.PipelineDeploymentConfig.ExecutorSpec()
        )
    assert not any("lifecycle" in str(each) for each in spec["components"].values())
    job = json.loads(compiled("vertex").read_text())
    json_format.ParseDict(job, pipeline_spec_pb2.PipelineJob())


@pytest.mark.long
def test_settings_of_pods_are_those_of_kfp_kubernetes(compiled):
    jsonschema = pytest.importorskip("jsonschema")  # not in the newer stack
    _, platform = yaml.safe_load_all(compiled("kubeflow").read_text())
    executors = platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    validator = jsonschema.Draft202012Validator(SCHEMA)
    for executor in executors.values():
        validator.validate(executor)
    with pytest.raises(jsonschema.ValidationError):
        validator.validate({"pvcMount": [{"claim": "serving"}]})
    trainer, transform = (executors[f"{n}_executor"] for n in ("Trainer", "Transform"))
    assert trainer["activeDeadlineSeconds"] == str(12 * 3600)
    assert transform.keys() == trainer.keys() - {
        *("activeDeadlineSeconds", "nodeSelector", "tolerations")
    }


def test_what_older_releases_of_kfp_do_with_settings_is_said():
    section = yaml.safe_load(SECTIONS)["kubeflow"]
    older = "KFP before 2.1 fails each step that has it"
    assert list(steps.notes(Kubeflow(**section))) == [
        f"kubeflow.config_maps: {older}",
        f"kubeflow.image_pull_policy: {older}",
        f"kubeflow.image_pull_secrets: {older}",
        "kubeflow.steps.default.retries: KFP before 2.5 ignores it",
        f"kubeflow.steps.Trainer.timeout: {older}",
        f"kubeflow.steps.Trainer.tolerations: {older}",
    ]


def test_every_step_waits_for_the_one_that_resolves(compiled):
    spec, _ = yaml.safe_load_all(compiled("kubeflow").read_text())
    tasks = spec["root"]["dag"]["tasks"]
    assert all(
        "Resolve" in t["dependentTasks"] for n, t in tasks.items() if n != "Resolve"
    )
    given = spec["root"]["inputDefinitions"]["parameters"]
    assert given["spans"]["defaultValue"] == "all"
    assert given["baseline"]["defaultValue"] == "production"
    assert given["epochs"]["defaultValue"] == 5
    assert not {"candidate", "data_fingerprint"} & given.keys()
    alone = compiled("kubeflow", without_baseline=True).read_text()
    given, _ = yaml.safe_load_all(alone)
    given = given["root"]["inputDefinitions"]["parameters"]
    assert given["baseline"]["defaultValue"] == "none"
    assert tasks["Resolve"]["cachingOptions"] == {}
    caching = [task["cachingOptions"] for n, task in tasks.items() if n != "Resolve"]
    assert all(each == {"enableCache": True} for each in caching)


@pytest.mark.parametrize("target", ["kubeflow", "vertex"])
def test_files_to_predict_are_chosen_by_the_first_step(compiled, target):
    from google.protobuf import json_format
    from kfp.pipeline_spec import pipeline_spec_pb2

    section = {"data": "new/{SPAN}.csv", "to": "gs://bucket/scored", "columns": ["id"]}
    text = compiled(target, f"predict={json.dumps(section)}").read_text()
    spec = next(yaml.safe_load_all(text))
    spec = spec.get("pipelineSpec", spec)
    json_format.ParseDict(spec, pipeline_spec_pb2.PipelineSpec())
    (task, first) = (
        spec["root"]["dag"]["tasks"][x] for x in ("BulkInferrer", "Pusher")
    )
    parameters, artifacts = task["inputs"]["parameters"], task["inputs"]["artifacts"]
    source = {"producerTask": "Resolve", "outputParameterKey": "predicted_spans"}
    assert parameters["predicted_spans"] == {"taskOutputParameter": source}
    constants = {
        name: each["runtimeValue"]["constant"]
        for name, each in parameters.items()
        if "runtimeValue" in each
    }
    assert constants["pattern"] == "/workload/new/{SPAN}.csv"
    assert constants["destination"] == "gs://bucket/scored"
    producers = {x["taskOutputArtifact"]["producerTask"] for x in artifacts.values()}
    assert producers == {"Trainer", "Evaluator", "Pusher"}
    assert {"Pusher", "Resolve"} <= {*task["dependentTasks"]}
    assert "BulkInferrer" not in first["dependentTasks"]
    assert task["cachingOptions"] == {"enableCache": True}
    assert "predicted_spans" not in spec["root"]["inputDefinitions"]["parameters"]
    executor = spec["deploymentSpec"]["executors"]["Resolve_executor"]
    asked = json.loads(executor["container"]["args"][1])["predicted"]
    assert asked == {"pattern": "/workload/new/{SPAN}.csv", "which": "latest"}


def environments(spec):
    """The variables of each step's container."""
    executors = spec["deploymentSpec"]["executors"]
    variables = {
        name.removesuffix("_executor"): executor["container"].get("env", ())
        for name, executor in executors.items()
    }
    return {
        node: {each["name"]: each["value"] for each in some}
        for node, some in variables.items()
    }


def test_steps_on_an_engine_get_it_and_the_modules_that_workers_import(compiled):
    sections = "kubeflow: {image: x, root: 's3://bucket/a'}"
    sets = ["run.engine.runner=portable", "run.engine.options.job_endpoint=jobs:8099"]
    (spec,) = yaml.safe_load_all(
        compiled("kubeflow", *sets, sections=sections).read_text()
    )
    for node, variables in environments(spec).items():
        engine = Engine.from_environment(variables)
        workload = WorkloadPaths.from_environment(variables)
        if node in node_ids.ON_ENGINE:
            assert (engine.runner, engine.job_endpoint) == ("portable", "jobs:8099")
            assert workload == WorkloadPaths(folder="/workload")
        else:
            assert (engine, workload) == (Engine(), WorkloadPaths())
    (spec,) = yaml.safe_load_all(compiled("kubeflow", sections=sections).read_text())
    plain = environments(spec)["Transform"]
    assert Engine.from_environment(plain).runner == "direct"
    assert WorkloadPaths.from_environment(plain) == WorkloadPaths()


def test_each_step_knows_the_plug_ins_of_the_workload(compiled, workload):
    (workload.parent / "own.py").write_text("PLUGINS = {}")
    sections = "kubeflow: {image: x, root: 's3://bucket/a'}"
    text = compiled("kubeflow", "plugins=[own]", sections=sections).read_text()
    (spec,) = yaml.safe_load_all(text)
    for variables in environments(spec).values():
        workload = WorkloadPaths.from_environment(variables)
        assert workload == WorkloadPaths(folder="/workload", plugins=("own",))
    for executor in spec["deploymentSpec"]["executors"].values():
        names = [each["name"] for each in executor["container"]["env"]]
        assert len(names) == len(set(names))


def test_pipeline_without_cache_or_settings_of_pods(compiled):
    sections = "kubeflow: {image: x}"
    (spec,) = yaml.safe_load_all(
        compiled("kubeflow", "run.cache=false", sections=sections).read_text()
    )
    tasks = spec["root"]["dag"]["tasks"].values()
    assert all(task["cachingOptions"] == {} for task in tasks)
    containers = [e["container"] for e in spec["deploymentSpec"]["executors"].values()]
    assert not any("resources" in each for each in containers)
    assert {each["image"] for each in containers} == {"x"}


@pytest.mark.long
def test_a_step_asks_for_data_that_are_in_no_image(compiled):
    def asked(examples):
        query = {"database": "postgresql://a@b/c", "sql": "SELECT {SPAN} AS x"}
        sets = (f"data.examples={examples}", f"data.query={json.dumps(query)}")
        spec = next(yaml.safe_load_all(compiled("kubeflow", *sets).read_text()))
        executor = spec["deploymentSpec"]["executors"]["Resolve_executor"]
        return json.loads(executor["container"]["args"][1])["query"]

    on_store = "s3://bucket/{SPAN}.parquet"
    assert asked(on_store) == {
        "database": "postgresql://a@b/c",
        "sql": "SELECT {SPAN} AS x",
        "examples": on_store,
        "first": 1,
    }
    assert asked("data/{SPAN}.parquet") == {}
