"""The pipeline as a file for Kubeflow Pipelines and Vertex AI."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

PARSE = """
import json, sys, yaml
from kfp import components
spec = json.load(open(sys.argv[1]))
component = components.load_component_from_text(yaml.safe_dump(spec))
print(len(component.pipeline_spec.root.dag.tasks))
"""


@pytest.fixture
def compiled(make_flights, tmp_path_factory):
    workspace = make_flights()
    overlay = workspace.folder / "cluster.yaml"
    section = {"image": "registry.example.com/flights:1", "context": "../.."}
    vertex = {"project": "p", "root": "gs://bucket/root"}
    sections = {
        "kubeflow": section,
        "vertex": {**section, **vertex},
        "trainer": {
            "distribution": {"max_restarts": 1},
            "warm_start": str(workspace.folder / "old"),
        },
        "pusher": {"to": str(tmp_path_factory.mktemp("mounted"))},
    }
    (workspace.folder / "old" / "Format-Weights").mkdir(parents=True)
    overlay.write_text(json.dumps(sections))

    def compile_for(target, *arguments, expect=0):
        output = workspace.folder / f"{target}.json"
        done = workspace.strategos(
            "compile",
            str(workspace.yaml),
            *("--overlay", str(overlay), "--target", target, "--output", str(output)),
            *arguments,
            expect=expect,
        )
        return done.stderr if expect else (output, json.loads(output.read_text()))

    return compile_for


def test_kubeflow_spec_is_bare_2_1_and_parsed_by_kfp(compiled):
    path, spec = compiled("kubeflow")
    assert spec["schemaVersion"] == "2.1.0"
    parameters = spec["root"]["inputDefinitions"]["parameters"]
    assert {"spans", "epochs", "distribution", "baseline"} <= set(parameters)
    defaults = {name: each["defaultValue"] for name, each in parameters.items()}
    assert defaults["warm_start"] == "/workload/examples/flights/old/Format-Weights"
    assert defaults["distribution"] == '{"strategy": "auto"}'
    assert defaults["batch_size"] == 1024
    tasks = spec["root"]["dag"]["tasks"]
    assert tasks["Transform"]["dependentTasks"][0] == "AnomalyGate"
    executors = spec["deploymentSpec"]["executors"]
    assert all(set(each) == {"container"} for each in executors.values())
    assert not any("lifecycle" in each["container"] for each in executors.values())
    assert "/workload/examples/flights" in json.dumps(tasks["Trainer"])
    for node in ("ExampleGen", "Transform", "Evaluator"):
        (engine,) = executors[f"{node}_executor"]["container"]["env"]
        assert engine["name"] == "STRATEGOS_ENGINE"
    (how,) = executors["Trainer_executor"]["container"]["env"]
    assert how["name"] == "STRATEGOS_TRAINER"
    assert json.loads(how["value"])["max_restarts"] == 1
    parsed = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PARSE, str(path)],
        capture_output=True,
        text=True,
    )
    assert parsed.stdout.strip() == str(len(tasks)), parsed.stderr


def test_vertex_takes_the_whole_job(compiled):
    _, job = compiled("vertex")
    assert job["pipelineSpec"]["schemaVersion"] == "2.1.0"
    assert job["runtimeConfig"]["gcsOutputDirectory"].startswith("gs://bucket/root")


def test_folder_inside_the_container_is_refused_for_pushing(compiled):
    said = compiled("kubeflow", "--set", "pusher.to=serving", expect=2)
    assert "pusher.to" in said
